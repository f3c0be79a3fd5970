//! Calls that change the address space.
//!
//! Owns mmap, munmap, mprotect, mremap, madvise and brk. Keeps brk's previous end, because the call
//! does not report it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::sysno::Sysno;
use super::{Call, file, low, op};
use crate::grace;
use crate::wire::WireEvent;

static BRK: AtomicU64 = AtomicU64::new(0);

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// Sends other threads' rows first if the call removes memory or access rights.
pub(super) fn before(call: &Call) {
    if takes_away(call) {
        grace::flush_others(call.tail);
    }
}

fn takes_away(call: &Call) -> bool {
    match call.sysno {
        Sysno::Munmap | Sysno::Mremap => true,
        Sysno::Mmap => call.args[3] & libc::MAP_FIXED as u64 != 0,
        // A change to read-write (malloc growing an arena) removes nothing that a row needs.
        Sysno::Mprotect => call.args[2] & READ_WRITE != READ_WRITE,
        Sysno::Madvise => call.args[2] == libc::MADV_DONTNEED as u64,
        Sysno::Brk => call.args[0] != 0 && call.args[0] < BRK.load(Relaxed),
        _ => false,
    }
}

pub(super) fn after(call: &Call, result: u64) {
    let [a1, a2, a3, a4, ..] = call.args;
    match call.sysno {
        Sysno::Mmap => map(call, result),
        Sysno::Munmap => call.send(&event(op::MUNMAP, a1, a2)),
        Sysno::Mprotect => {
            call.send(&WireEvent { flags: low(a3), ..event(op::MPROTECT, a1, a2) });
        }
        Sysno::Mremap => {
            let moved =
                WireEvent { pos: result, aux: a3, flags: low(a4), ..event(op::MREMAP, a1, a2) };
            call.send(&moved);
        }
        Sysno::Madvise => call.send(&WireEvent { aux: a3, ..event(op::MADVISE, a1, a2) }),
        Sysno::Brk => brk(call, result),
        _ => {}
    }
}

/// The trace's flag of an attached System V segment (`event::abi` of the trace crate).
pub(super) const MAP_SEGMENT: u32 = 0x80_0000;

pub(super) fn event(op: u32, addr: u64, len: u64) -> WireEvent {
    WireEvent { op, addr, len, ..WireEvent::default() }
}

fn map(call: &Call, address: u64) {
    let [_, len, prot, flags, _, pos] = call.args;
    let is_anonymous = flags & libc::MAP_ANONYMOUS as u64 != 0;
    let file = if is_anonymous { 0 } else { file::announce(call, call.descriptor(4)) };
    let pos = if is_anonymous { 0 } else { pos };
    let flags = low(flags) & !MAP_SEGMENT;
    call.send(&WireEvent { flags, aux: prot, pos, file, ..event(op::MMAP, address, len) });
}

/// The first call reports the start of the heap, with an old end of 0.
fn brk(call: &Call, result: u64) {
    let old = BRK.swap(result, Relaxed);
    if old != result {
        call.send(&WireEvent { pos: result, aux: call.args[0], ..event(op::BRK, old, 0) });
    }
}
