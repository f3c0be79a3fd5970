//! Epochs: a new one begins when the address space shrinks, and every thread flushes once for it.
//!
//! [`crate::grace`] owns the waiting.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::send;
use crate::tail::Tail;

static EPOCH: AtomicU32 = AtomicU32::new(0);

#[inline]
pub(crate) fn is_behind(tail: &Tail) -> bool {
    tail.epoch().load(Relaxed) != EPOCH.load(Relaxed)
}

/// Lets a new thread skip all earlier epochs.
pub(crate) fn join(tail: &Tail) {
    tail.epoch().store(EPOCH.load(SeqCst), Release);
}

#[cold]
pub(crate) fn catch_up(tail: &Tail) {
    let epoch = EPOCH.load(SeqCst);
    send::flush(tail);
    tail.epoch().store(epoch, Release);
}

/// Begins an epoch. The caller has already flushed its `own` tail for it.
pub(crate) fn begin(own: &Tail) -> u32 {
    let epoch = EPOCH.fetch_add(1, SeqCst).wrapping_add(1);
    own.epoch().store(epoch, Release);
    epoch
}
