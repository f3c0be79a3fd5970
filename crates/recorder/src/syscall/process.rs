//! Calls that make, replace and end threads and processes.
//!
//! Owns clone, fork, vfork, execve, exit and `exit_group`. QEMU runs vfork (and the clone of
//! `posix_spawn`) as fork, and what ran is recorded: the child is a process with a copy of the
//! memory. Thread numbers are the kernel's; the parent makes them dense.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::{Call, op};
use crate::wire::{Kind, NEW_PROCESS, SHARES_MEMORY, WireEvent};
use crate::{grace, send, sys, thread};

/// Longest path read from the program (`PATH_MAX`).
const PATH_MAX: usize = 4096;

/// The process the plugin believes it is in; differs after a fork.
static PID: AtomicU32 = AtomicU32::new(0);

/// Whether a call can come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Returns,
    Ends,
}

/// What must be said before the call.
pub(super) fn before(call: &Call) -> Next {
    PID.store(std::process::id(), Relaxed);
    match call.number {
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3
            if !is_thread(call) =>
        {
            grace::flush_others(call.tail);
        }
        libc::SYS_execve | libc::SYS_execveat => {
            let path_index = usize::from(call.number == libc::SYS_execveat);
            let path = string_at(call.args[path_index]);
            grace::flush_others(call.tail);
            send::send(call.tail, Kind::ExecveTry, [&path, &[]]);
        }
        libc::SYS_exit if thread::nr_threads() > 1 => return end_thread(call),
        libc::SYS_exit | libc::SYS_exit_group => {
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

/// What must be said after it.
pub(super) fn after(call: &Call, result: i64) {
    match call.number {
        libc::SYS_execve | libc::SYS_execveat => {
            send::send(call.tail, Kind::ExecveFailed, [&[], &[]]);
        }
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 if result > 0 => {
            // Differs: a kernel's vfork lends the child its parent's memory and suspends the
            // parent; under QEMU the child has a copy and both run on.
            let flags = if is_thread(call) { SHARES_MEMORY } else { NEW_PROCESS };
            let aux = result.cast_unsigned();
            call.send(&WireEvent { op: op::FORK, flags, aux, ..WireEvent::default() });
        }
        _ => {}
    }
}

/// QEMU makes a thread of a clone that shares memory and does not suspend its parent, and a fork
/// of every other.
fn is_thread(call: &Call) -> bool {
    call.number == libc::SYS_clone
        && has(clone_flags(call), libc::CLONE_VM)
        && !has(clone_flags(call), libc::CLONE_VFORK)
}

fn clone_flags(call: &Call) -> u64 {
    call.args[0]
}

fn has(flags: u64, flag: i32) -> bool {
    flags & u64::from(flag.cast_unsigned()) != 0
}

/// Whether the call that returned `result` returned in a new process.
pub(super) fn is_new_child(number: i64, result: i64) -> bool {
    let is_fork =
        matches!(number, libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3);
    is_fork && result == 0 && PID.load(Relaxed) != std::process::id()
}

/// First callback in a forked child: its rows are its own from here on.
pub(super) fn start_child(vcpu: u32) {
    let parent = PID.swap(std::process::id(), Relaxed);
    thread::restart_in_child(vcpu, parent);
}

/// The C string at `address` of the program, cut at 4095 bytes.
pub(super) fn string_at(address: u64) -> Vec<u8> {
    let mut bytes = vec![0; PATH_MAX];
    let address = address.wrapping_add(crate::layout::guest_base());
    let nr_page = 4096 - (address % 4096) as usize;
    // The string may end on its page with nothing mapped behind it.
    let mut nr_read = sys::read_memory(address, &mut bytes[..nr_page.min(PATH_MAX)]);
    if nr_read == nr_page && !bytes[..nr_read].contains(&0) {
        nr_read += sys::read_memory(address + nr_page as u64, &mut bytes[nr_page..]);
    }
    let end = bytes[..nr_read].iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(nr_read.min(PATH_MAX - 1)));
    bytes
}
