//! The two layouts of the owner word and the slot counts (docs/behaviour F.1.1).

use super::atomics::{Atomics, WordCell};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Wide {}
    impl Sealed for super::Narrow {}
}

/// Places ids, lock bit, shared bit and slot counts in two words. Each slot has one half,
/// [`Layout::HALF_BITS`] wide, of each word.
///
/// ```text
///               half 1                     half 0
///          +---+-----------------+    +---+-----------------+
///   word   | S | id of slot 1    |    | L | id of slot 0    |     S shared, L lock
///          +---+-----------------+    +---+-----------------+
///   counts |  count of slot 1    |    |  count of slot 0    |     signed, minus one
///          +---------------------+    +---------------------+
/// ```
///
/// If both halves hold the same id, tracking has stopped: an mm never holds both slots.
pub trait Layout: sealed::Sealed {
    /// Bits per half word: 32 or 16.
    const HALF_BITS: u32;
    /// The atomic word in a family of atomics.
    type Cell<A: Atomics>: WordCell;

    /// Lock bit: bit 31 or 15.
    const LOCK: u64 = 1 << (Self::HALF_BITS - 1);
    /// Shared bit: bit 63 or 31.
    const SHARED: u64 = 1 << (2 * Self::HALF_BITS - 1);
    /// Largest id: `2^31 - 1` or `2^15 - 1`.
    const ID_MAX: u32 = (1 << (Self::HALF_BITS - 1)) - 1;
    /// Largest slot count, minus one: `2^31 - 1` or `2^15 - 1`.
    const COUNT_MAX: i32 = Self::ID_MAX.cast_signed();
    /// Mask of slot 0's half.
    const HALF: u64 = (1 << Self::HALF_BITS) - 1;
    /// Slot counts with both slots free: -1 in each half.
    const COUNTS_FREE: u64 = Self::HALF << Self::HALF_BITS | Self::HALF;
    /// The owner word after tracking has stopped, unlocked.
    const STOPPED: u64 =
        Self::SHARED | ((Self::ID_MAX as u64) << Self::HALF_BITS) | Self::ID_MAX as u64;
}

/// 64-bit kernels: 31-bit ids, 32-bit slot counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wide {}

impl Layout for Wide {
    const HALF_BITS: u32 = 32;
    type Cell<A: Atomics> = A::Wide;
}

/// 32-bit kernels: 15-bit ids, 16-bit slot counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {}

impl Layout for Narrow {
    const HALF_BITS: u32 = 16;
    type Cell<A: Atomics> = A::Narrow;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_stand_where_f_1_1_says() {
        assert_eq!((Wide::LOCK, Wide::SHARED), (1 << 31, 1 << 63));
        assert_eq!((Narrow::LOCK, Narrow::SHARED), (1 << 15, 1 << 31));
        assert_eq!((Wide::ID_MAX, Narrow::ID_MAX), ((1 << 31) - 1, (1 << 15) - 1));
    }
}
