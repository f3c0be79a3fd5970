//! Atomic cells for owner tracking.
//!
//! The machine's own atomics are [`Native`]. The model checker and its mutants supply others and
//! run the same protocol.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The pause between two loads of a locked word doubles up to 2^4. Each load takes the cache line
/// from the holder, which needs it to unlock. A lock is held for about ten nanoseconds, so a few
/// pauses suffice.
const TURNS_MAX: u32 = 4;

/// A word of owner ids or slot counts. The narrow layout uses only the low 32 bits.
pub trait WordCell {
    /// Creates a cell with `value`.
    fn new(value: u64) -> Self;
    /// Reads the cell.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the cell.
    fn store(&self, value: u64, order: Ordering);
    /// Sets `bits` if they are clear, with at most one read-modify-write (Acquire). Returns the
    /// previous word; `None` if nothing changed. Writes nothing if a load shows that they are set.
    fn try_lock(&self, bits: u64) -> Option<u64>;
    /// Lets the lock holder finish. `turn` counts consecutive waits from 0. Orders nothing.
    fn wait(&self, turn: u32) {
        for _ in 0..1_u32 << turn.min(TURNS_MAX) {
            std::hint::spin_loop();
        }
    }
}

/// The large mapcount, or a count of a [`Gate`](crate::gate::Gate).
pub trait CountCell {
    /// Creates a cell with `value`.
    fn new(value: i32) -> Self;
    /// Reads the cell.
    fn load(&self, order: Ordering) -> i32;
    /// Writes the cell.
    fn store(&self, value: i32, order: Ordering);
    /// Replaces `current` with `new`.
    ///
    /// # Errors
    /// The actual value, if it is not `current`.
    fn compare_exchange(&self, current: i32, new: i32) -> Result<i32, i32>;
    /// Adds `by` and returns the previous value, in one read-modify-write that orders nothing.
    fn fetch_add(&self, by: i32) -> i32;
}

/// A family of atomic cells.
pub trait Atomics {
    /// A 64-bit word.
    type Wide: WordCell;
    /// A 32-bit word.
    type Narrow: WordCell;
    /// The large mapcount.
    type Count: CountCell;
}

/// The machine's atomics.
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
