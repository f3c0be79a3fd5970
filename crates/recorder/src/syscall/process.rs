//! Calls that create, replace and end threads and processes.
//!
//! QEMU runs vfork (and `posix_spawn`'s clone) as fork. The kernel lends the child its parent's
//! memory and suspends the parent, and the event says so. `folio record` puts the rows into that
//! order, and makes the kernel's TIDs dense.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::sysno::Sysno;
use super::{Call, execve, op, order};
use crate::arch::Arch;
use crate::arguments::Arguments;
use crate::block::{Direction, touch_buffer};
use crate::placed::Turn;
use crate::wire::{BORROWS_MEMORY, Kind, NEW_PROCESS, SHARES_MEMORY, WireEvent};
use crate::{grace, send, thread};

/// PID at the last callback. It differs from the real one after a fork.
static PID: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Returns,
    Ends,
}

pub(super) fn before(call: &Call) -> Next {
    PID.store(std::process::id(), Relaxed);
    match call.sysno {
        Sysno::Fork | Sysno::Vfork | Sysno::Clone | Sysno::Clone3 if !is_thread(call) => {
            grace::flush_others(call.tail);
        }
        Sysno::Execve | Sysno::Execveat => execve::before(call),
        Sysno::Exit if thread::nr_threads() > 1 => return end_thread(call),
        Sysno::Exit | Sysno::ExitGroup => {
            grace::flush_others(call.tail);
            let status = status(call).to_le_bytes();
            send::send(call.tail, Kind::Ending, [&status, &[]]);
        }
        _ => {}
    }
    Next::Returns
}

fn end_thread(call: &Call) -> Next {
    let event = WireEvent { op: op::EXIT, pos: status(call), ..WireEvent::default() };
    call.send(&event);
    thread::detach(call.vcpu);
    Next::Ends
}

fn status(call: &Call) -> u64 {
    call.args[0] & 0xff
}

pub(super) fn after(call: &Call, result: i64) {
    match call.sysno {
        Sysno::Execve | Sysno::Execveat => execve::failed(call),
        Sysno::RtSigprocmask if result >= 0 => execve::note_blocked(call),
        Sysno::Fork | Sysno::Vfork | Sysno::Clone | Sysno::Clone3 if result > 0 => {
            let flags = match call {
                _ if is_thread(call) => SHARES_MEMORY,
                _ if is_vfork(call) => NEW_PROCESS | BORROWS_MEMORY,
                _ => NEW_PROCESS,
            };
            order::forked();
            let aux = result.cast_unsigned();
            call.send(&WireEvent { op: op::FORK, flags, aux, ..WireEvent::default() });
        }
        _ => {}
    }
}

/// Returns whether QEMU makes a thread: only a clone that shares memory and does not suspend its
/// parent. Every other one is a fork.
fn is_thread(call: &Call) -> bool {
    call.sysno == Sysno::Clone
        && has(clone_flags(call), libc::CLONE_VM)
        && !has(clone_flags(call), libc::CLONE_VFORK)
}

/// Returns whether the kernel would run the child in the caller's memory and suspend the caller.
fn is_vfork(call: &Call) -> bool {
    let flags = clone_flags(call);
    call.sysno == Sysno::Vfork
        || call.sysno == Sysno::Clone && has(flags, libc::CLONE_VM) && has(flags, libc::CLONE_VFORK)
}

fn clone_flags(call: &Call) -> u64 {
    call.args[0]
}

fn has(flags: u64, flag: i32) -> bool {
    flags & u64::from(flag.cast_unsigned()) != 0
}

pub(super) fn is_new_child(sysno: Sysno, result: i64) -> bool {
    let is_fork = matches!(sysno, Sysno::Fork | Sysno::Vfork | Sysno::Clone | Sysno::Clone3);
    is_fork && result == 0 && PID.load(Relaxed) != std::process::id()
}

/// Records the kernel's store of a new child's TID (`CLONE_CHILD_SETTID`) into the child's memory.
pub(super) fn store_tid(call: &Call) {
    if call.sysno != Sysno::Clone || !has(clone_flags(call), libc::CLONE_CHILD_SETTID) {
        return;
    }
    // arm64 passes the TLS before it.
    let at = match Arguments::kept().map(|kept| kept.arch) {
        Some(Arch::Arm64) => call.args[4],
        _ => call.args[3],
    };
    touch_buffer(call.tail, Direction::KernelWrites, at, size_of::<u32>() as u64);
}

pub(super) fn start_child(vcpu: u32) {
    order::forked();
    let parent = PID.swap(std::process::id(), Relaxed);
    Turn::restart_in_child();
    thread::restart_in_child(vcpu, parent);
}
