//! A lock that the child of a fork can free.
//!
//! Owns nothing but one bit. The child of a fork has one thread, so a lock held by another thread
//! of the parent at that moment would stay held for ever in a `std::sync::Mutex`.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A lock held for microseconds.
pub(crate) struct Spin {
    is_held: AtomicBool,
}

impl Spin {
    /// A free lock.
    pub(crate) const fn new() -> Self {
        Self { is_held: AtomicBool::new(false) }
    }

    /// Waits for the lock; `meanwhile` runs between tries.
    pub(crate) fn lock(&self, meanwhile: impl Fn()) {
        while self.is_held.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            meanwhile();
            std::thread::yield_now();
        }
    }

    /// Frees the lock; the caller holds it.
    pub(crate) fn unlock(&self) {
        self.is_held.store(false, Release);
    }

    /// Frees the lock whoever held it: in the child of a fork.
    pub(crate) fn reset(&self) {
        self.is_held.store(false, Release);
    }
}
