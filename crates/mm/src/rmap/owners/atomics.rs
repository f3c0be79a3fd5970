//! The atomic cells that owner tracking is made of.
//!
//! Owns the seam between the protocol and the machine: [`Native`] is the machine's own atomics;
//! the model checker and its mutants bring others and run the same protocol.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// A word of owner ids or of slot counts. The narrow layout uses only the low 32 bits.
pub trait WordCell {
    /// A cell that holds `value`.
    fn new(value: u64) -> Self;
    /// Reads the cell.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the cell.
    fn store(&self, value: u64, order: Ordering);
    /// Sets `bits`, returns what the cell held before: one read-modify-write.
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// Waits until `bits` seem to be clear. May return early, orders nothing.
    fn wait(&self, bits: u64) {
        while self.load(Ordering::Relaxed) & bits != 0 {
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

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
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

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits as u32, order).into()
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
