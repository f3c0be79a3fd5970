//! Ordering between threads when the address space shrinks.
//!
//! Owns the thread states and the waiting. Rows are ordered only within a thread, but a row from
//! before an munmap must not arrive after it, whichever thread unmaps. The unmapping thread starts
//! an epoch and waits until every other thread has flushed:
//!
//! ```text
//!   RUNNING --syscall--> IN_SYSCALL --waiter--> STEALING (the waiter flushes for it)
//!      ^  `-- sees the epoch at its next block, flushes       |
//!      `--------------- syscall returns, waits for -----------'
//! ```
//!
//! Invariants:
//! - G1: a wait ends after [`WAIT_MAX`]. Each timeout is counted and becomes a warning.
//! - G2: in `RUNNING` the owner flushes a tail, otherwise the holder of `STEALING` does.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::tail::Tail;
use crate::{epoch, send, thread};

pub(crate) const RUNNING: u32 = 0;
const IN_SYSCALL: u32 = 1;
/// The owner is in a system call while another thread flushes its rows.
const STEALING: u32 = 2;

/// Longest wait for other threads. On a busy machine a preempted thread needs a few milliseconds to
/// run again.
const WAIT_MAX: Duration = Duration::from_millis(10);

const PAUSE: Duration = Duration::from_micros(50);

/// Allows other threads to flush `tail`.
pub(crate) fn enter_syscall(tail: &Tail) {
    tail.state().store(IN_SYSCALL, Release);
}

/// Reserves `tail` for its owner again.
pub(crate) fn leave_syscall(tail: &Tail) {
    let leave = || tail.state().compare_exchange(IN_SYSCALL, RUNNING, AcqRel, Acquire);
    while leave() == Err(STEALING) {
        std::thread::yield_now();
    }
}

pub(crate) fn flush_others(own: &Tail) {
    if thread::nr_threads() <= 1 {
        return;
    }
    thread::with_registry(own, || {
        let epoch = epoch::begin(own);
        let deadline = Instant::now() + WAIT_MAX;
        thread::for_each_tail(|other| {
            let is_flushed = std::ptr::eq(own, other) || wait_for(other, epoch, deadline);
            if !is_flushed {
                own.count_grace_expired(1);
            }
        });
    });
}

fn wait_for(other: &Tail, epoch: u32, deadline: Instant) -> bool {
    loop {
        if other.epoch().load(Acquire) == epoch || try_steal(other, epoch) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

fn try_steal(other: &Tail, epoch: u32) -> bool {
    let steal = other.state().compare_exchange(IN_SYSCALL, STEALING, AcqRel, Relaxed);
    if steal.is_err() {
        return false;
    }
    send::flush(other);
    other.epoch().store(epoch, Release);
    other.state().store(IN_SYSCALL, Release);
    true
}
