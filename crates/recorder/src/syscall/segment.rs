//! System V shared memory.
//!
//! A segment is recorded as shared anonymous memory with its own flag.
//! Keeps the lengths of attached segments, because shmdt does not report them. A segment beyond
//! [`NR_ATTACHED_MAX`] stays until its process ends.
//!
//! `Differs`: unrelated processes that attach one segment by its id each have their own memory in
//! the trace.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::memory::{MAP_SEGMENT, event};
use super::sysno::Sysno;
use super::{Call, op};
use crate::wire::WireEvent;
use crate::{grace, sys};

const NR_ATTACHED_MAX: usize = 1 << 10;

/// Address (0 for a free slot) and length of each attached segment.
static ATTACHED: [(AtomicU64, AtomicU64); NR_ATTACHED_MAX] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; NR_ATTACHED_MAX];

pub(super) fn before(call: &Call) {
    if call.sysno == Sysno::Shmdt {
        grace::flush_others(call.tail);
    }
}

pub(super) fn after(call: &Call, result: u64) {
    match call.sysno {
        Sysno::Shmat => attach(call, result),
        Sysno::Shmdt => detach(call),
        _ => {}
    }
}

fn attach(call: &Call, address: u64) {
    let Some(len) = sys::segment_bytes(call.descriptor(0)) else { return };
    let is_read_only = call.args[2] & libc::SHM_RDONLY as u64 != 0;
    let prot = if is_read_only { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
    forget(address);
    for (slot, length) in &ATTACHED {
        if slot.compare_exchange(0, address, Relaxed, Relaxed).is_ok() {
            length.store(len, Relaxed);
            break;
        }
    }
    let flags = (libc::MAP_SHARED | libc::MAP_ANONYMOUS).cast_unsigned() | MAP_SEGMENT;
    call.send(&WireEvent {
        flags,
        aux: u64::from(prot.cast_unsigned()),
        ..event(op::MMAP, address, len)
    });
}

fn detach(call: &Call) {
    if let Some(len) = forget(call.args[0]) {
        call.send(&event(op::MUNMAP, call.args[0], len));
    }
}

fn forget(address: u64) -> Option<u64> {
    let (slot, length) = ATTACHED.iter().find(|(slot, _)| slot.load(Relaxed) == address)?;
    let len = length.load(Relaxed);
    slot.store(0, Relaxed);
    Some(len)
}
