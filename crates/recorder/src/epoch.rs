//! Epochs: each begins when the address space shrinks, and every thread flushes once for it.
//!
//! Owns the number of the present epoch, and whether a tail was flushed for it. Who waits for whom
//! is [`crate::grace`]'s.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::send;
use crate::tail::Tail;

static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Whether an epoch began that `tail` was not flushed for.
#[inline]
pub(crate) fn is_behind(tail: &Tail) -> bool {
    tail.epoch().load(Relaxed) != EPOCH.load(Relaxed)
}

/// A new thread owes nothing to earlier epochs.
pub(crate) fn join(tail: &Tail) {
    tail.epoch().store(EPOCH.load(SeqCst), Release);
}

/// Flushes the caller's own `tail` for the present epoch.
#[cold]
pub(crate) fn catch_up(tail: &Tail) {
    let epoch = EPOCH.load(SeqCst);
    send::flush(tail);
    tail.epoch().store(epoch, Release);
}

/// Begins an epoch, for which the caller's `own` tail is flushed already.
pub(crate) fn begin(own: &Tail) -> u32 {
    let epoch = EPOCH.fetch_add(1, SeqCst).wrapping_add(1);
    own.epoch().store(epoch, Release);
    epoch
}
