//! The atomic cells that owner tracking is made of.
//!
//! Owns the seam between the protocol and the machine: [`Native`] is the machine's own atomics;
//! the model checker and its mutants bring others and run the same protocol.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The pauses between two looks at a lock double up to 2^4. Every look takes the line away from the
/// holder, who needs it to unlock; a lock is held for about ten nanoseconds, so that a few pauses
/// are enough.
const TURNS_MAX: u32 = 4;

/// A word of owner ids or of slot counts. The narrow layout uses only the low 32 bits.
pub trait WordCell {
    /// A cell that holds `value`.
    fn new(value: u64) -> Self;
    /// Reads the cell.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the cell.
    fn store(&self, value: u64, order: Ordering);
    /// Sets `bits` where they are clear: at most one read-modify-write (Acquire), and none where a
    /// look says that they are set. The word before; `None` when it changed nothing.
    fn try_lock(&self, bits: u64) -> Option<u64>;
    /// Lets the holder of a lock finish; `turn` counts the waits in a row from 0. Orders nothing.
    fn wait(&self, turn: u32) {
        for _ in 0..1_u32 << turn.min(TURNS_MAX) {
            std::hint::spin_loop();
        }
    }
}

/// The large mapcount; and each count of a [`Gate`](crate::mapping::gate::Gate).
pub trait CountCell {
    /// A cell that holds `value`.
    fn new(value: i32) -> Self;
    /// Reads the cell.
    fn load(&self, order: Ordering) -> i32;
    /// Writes the cell.
    fn store(&self, value: i32, order: Ordering);
    /// Replaces `current` by `new`.
    ///
    /// # Errors
    /// What the cell holds instead of `current`.
    fn compare_exchange(&self, current: i32, new: i32) -> Result<i32, i32>;
    /// Adds `by`, returns what the cell held before: one read-modify-write that orders nothing.
    fn fetch_add(&self, by: i32) -> i32;
}

/// A family of atomic cells.
pub trait Atomics {
    /// Word of 64 bits.
    type Wide: WordCell;
    /// Word of 32 bits.
    type Narrow: WordCell;
    /// Large mapcount.
    type Count: CountCell;
}

/// The atomics of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {}

impl Atomics for Native {
    type Wide = AtomicU64;
    type Narrow = AtomicU32;
    type Count = AtomicI32;
}

impl WordCell for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn try_lock(&self, bits: u64) -> Option<u64> {
        let now = self.load(Ordering::Relaxed);
        let locks = now & bits == 0
            && self
                .compare_exchange_weak(now, now | bits, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        locks.then_some(now)
    }
}

impl WordCell for AtomicU32 {
    fn new(value: u64) -> Self {
        Self::new(value as u32)
    }

    fn load(&self, order: Ordering) -> u64 {
        self.load(order).into()
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value as u32, order);
    }

    fn try_lock(&self, bits: u64) -> Option<u64> {
        let (now, bits) = (self.load(Ordering::Relaxed), bits as u32);
        let locks = now & bits == 0
            && self
                .compare_exchange_weak(now, now | bits, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        locks.then(|| now.into())
    }
}

impl CountCell for AtomicI32 {
    fn new(value: i32) -> Self {
        Self::new(value)
    }

    fn load(&self, order: Ordering) -> i32 {
        self.load(order)
    }

    fn store(&self, value: i32, order: Ordering) {
        self.store(value, order);
    }

    fn compare_exchange(&self, current: i32, new: i32) -> Result<i32, i32> {
        self.compare_exchange_weak(current, new, Ordering::Relaxed, Ordering::Relaxed)
    }
    fn fetch_add(&self, by: i32) -> i32 {
        self.fetch_add(by, Ordering::Relaxed)
    }
}
