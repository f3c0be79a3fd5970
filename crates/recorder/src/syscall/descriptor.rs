//! Calls that close our descriptor.
//!
//! Owns the watch over `close`, `close_range`, `dup2` and `dup3`. On a hit, ours is closed first,
//! as it would not exist in a native run. No thread can reconnect until the call has returned.

use super::Call;
use super::sysno::Sysno;
use crate::link;

pub(super) fn before(call: &Call) {
    let [a1, a2, a3, ..] = call.args;
    let (first, last) = match call.sysno {
        Sysno::Close => (low(a1), low(a1)),
        // CLOSE_RANGE_CLOEXEC only sets a flag that ours has already.
        Sysno::CloseRange if a3 & u64::from(libc::CLOSE_RANGE_CLOEXEC) == 0 => (low(a1), low(a2)),
        Sysno::Dup2 | Sysno::Dup3 => (low(a2), low(a2)),
        _ => return,
    };
    if link::step_aside(call.tail.tid(), first, last) {
        call.thread.is_aside.set(true);
    }
}

fn low(word: u64) -> u64 {
    word & u64::from(u32::MAX)
}
