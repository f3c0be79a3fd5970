//! A lock that the child of a fork can free.
//!
//! The child has only one thread. A `std::sync::Mutex` held by another thread of the parent at the
//! fork would stay locked forever.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(crate) struct Spin {
    is_held: AtomicBool,
}

impl Spin {
    pub(crate) const fn new() -> Self {
        Self { is_held: AtomicBool::new(false) }
    }

    /// Waits for the lock, and runs `meanwhile` between attempts.
    pub(crate) fn lock(&self, meanwhile: impl Fn()) {
        while self.is_held.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            meanwhile();
            std::thread::yield_now();
        }
    }

    pub(crate) fn unlock(&self) {
        self.is_held.store(false, Release);
    }

    /// Frees the lock regardless of its holder, in the child of a fork.
    pub(crate) fn reset(&self) {
        self.is_held.store(false, Release);
    }
}
