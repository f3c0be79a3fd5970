//! System calls, and the events they become.
//!
//! The folder's files own the call numbers ([`sysno`]), memory ([`memory`], [`segment`]), buffers
//! ([`buffers`]), files ([`file`], [`position`], [`storage`], [`name`]) and processes ([`process`],
//! [`execve`], [`order`]). Invariants:
//! - C1: only a successful call becomes an event, after it returned. An exit and an execve do not
//!   return, so they are sent before.
//! - C2: before a call that removes address space, every thread's rows have been sent (within the
//!   bound of [`crate::grace`]).

mod buffers;
mod descriptor;
mod execve;
mod file;
mod guest;
mod memory;
mod name;
mod order;
mod position;
mod process;
mod refused;
mod segment;
mod storage;
mod sysno;

use std::ffi::c_uint;

use self::sysno::Sysno;
use crate::arguments::Arguments;
use crate::placed::Turn;
use crate::qemu::PluginId;
use crate::tail::Tail;
use crate::thread::Thread;
use crate::wire::WireEvent;
use crate::{grace, link, send, thread};

struct Call {
    tail: &'static Tail,
    thread: &'static Thread,
    vcpu: u32,
    number: i64,
    sysno: Sysno,
    args: [u64; 6],
}

impl Call {
    fn send(&self, event: &WireEvent) {
        send::send_event(self.tail, event);
    }

    fn descriptor(&self, index: usize) -> i32 {
        let word = self.args.get(index).copied().unwrap_or(u64::MAX);
        low(word).cast_signed()
    }
}

/// The op numbers of `largefolio_trace::event::Op`.
mod op {
    pub(super) const MMAP: u32 = 3;
    pub(super) const MUNMAP: u32 = 4;
    pub(super) const MPROTECT: u32 = 5;
    pub(super) const MREMAP: u32 = 6;
    pub(super) const MADVISE: u32 = 7;
    pub(super) const BRK: u32 = 8;
    pub(super) const FORK: u32 = 9;
    pub(super) const EXIT: u32 = 10;
    pub(super) const OPEN: u32 = 11;
    pub(super) const PREAD: u32 = 12;
    pub(super) const PWRITE: u32 = 13;
    pub(super) const TRUNCATE: u32 = 14;
    pub(super) const FADVISE: u32 = 15;
    pub(super) const CLOSE: u32 = 18;
    pub(super) const SYNC: u32 = 20;
    pub(super) const FALLOCATE: u32 = 21;
    pub(super) const UNLINK: u32 = 22;
    pub(super) const MLOCK: u32 = 23;
    pub(super) const THP_DISABLE: u32 = 24;
    pub(super) const MEMPOLICY: u32 = 25;
}

pub(crate) extern "C" fn entered(
    _id: PluginId,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _a7: u64,
    _a8: u64,
) {
    if link::is_stopped() {
        return;
    }
    let Some((tail, thread)) = thread::thread_of(vcpu) else { return };
    let args = [a1, a2, a3, a4, a5, a6];
    thread.args.set(args);
    let call = Call { tail, thread, vcpu, number, sysno: sysno(number), args };
    memory::before(&call);
    segment::before(&call);
    descriptor::before(&call);
    file::before(&call);
    name::before(&call);
    buffers::before(&call);
    order::before(&call);
    if process::before(&call) == process::Next::Returns {
        grace::enter_syscall(tail);
    }
}

pub(crate) extern "C" fn left(_id: PluginId, vcpu: c_uint, number: i64, result: i64) {
    let _turn = Turn;
    let sysno = sysno(number);
    if process::is_new_child(sysno, result) {
        process::start_child(vcpu);
        if let Some((tail, thread)) = thread::thread_of(vcpu) {
            let args = thread.args.get();
            process::store_tid(&Call { tail, thread, vcpu, number, sysno, args });
        }
        return;
    }
    let Some((tail, thread)) = thread::thread_of(vcpu) else { return };
    if thread.is_aside.take() {
        link::allow_reopen();
    }
    grace::leave_syscall(tail);
    if link::is_stopped() {
        return;
    }
    let call = Call { tail, thread, vcpu, number, sysno, args: thread.args.get() };
    process::after(&call, result);
    // -4095..=-1 are errors. QEMU's own restart codes are among them.
    if (-4095..0).contains(&result) {
        let error = i32::try_from(-result).unwrap_or(0);
        memory::failed(&call, error);
        refused::note(&call, error);
        return;
    }
    let result = result.cast_unsigned();
    memory::after(&call, result);
    segment::after(&call, result);
    file::after(&call, result);
    buffers::written(&call, result);
    name::after(&call);
    storage::after(&call);
    buffers::after(&call, result);
}

fn sysno(number: i64) -> Sysno {
    Arguments::kept().map_or(Sysno::Other, |kept| Sysno::of(kept.arch, number))
}

/// Returns the low 32 bits, as the kernel reads an `int` argument.
fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
