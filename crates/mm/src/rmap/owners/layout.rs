//! The two layouts of the owner word and of the word of slot counts (docs/behaviour F.1.1).

use super::atomics::{Atomics, WordCell};
use super::state::{MmOwnerId, Slot, State};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Wide {}
    impl Sealed for super::Narrow {}
}

/// How ids, lock bit, shared bit and slot counts share two words: each word has two halves of
/// [`Layout::HALF_BITS`] bits, one a slot.
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
/// A word that names the same id twice means that tracking has stopped: an mm never holds both
/// slots.
pub trait Layout: sealed::Sealed {
    /// Bits of half a word: 32 or 16.
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
    /// The owner word once tracking has stopped, unlocked.
    const STOPPED: u64 =
        Self::SHARED | ((Self::ID_MAX as u64) << Self::HALF_BITS) | Self::ID_MAX as u64;
}

/// 64-bit kernels: ids of 31 bits, slot counts of 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wide {}

impl Layout for Wide {
    const HALF_BITS: u32 = 32;
    type Cell<A: Atomics> = A::Wide;
}

/// 32-bit kernels: ids of 15 bits, slot counts of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {}

impl Layout for Narrow {
    const HALF_BITS: u32 = 16;
    type Cell<A: Atomics> = A::Narrow;
}

/// The owner word of `state`, unlocked.
pub(super) fn word_of<L: Layout>(state: &State) -> u64 {
    if state.is_stopped {
        return L::STOPPED;
    }
    let [id0, id1] = state.slots.map(|slot| slot.owner.map_or(0, |id| u64::from(id.get())));
    let shared = if state.is_shared { L::SHARED } else { 0 };
    shared | (id1 << L::HALF_BITS) | id0
}

/// The word of slot counts of `state`.
pub(super) fn counts_of<L: Layout>(state: &State) -> u64 {
    let mask = (1 << L::HALF_BITS) - 1;
    let [c0, c1] = state.slots.map(|slot| u64::from(slot.mapcount.cast_unsigned()) & mask);
    (c1 << L::HALF_BITS) | c0
}

/// What two words and the large mapcount say; the lock bit says nothing.
pub(super) fn state_of<L: Layout>(word: u64, counts: u64, large_mapcount: i32) -> State {
    if word & !L::LOCK == L::STOPPED {
        return State::stopped(large_mapcount);
    }
    let slot = |half: u32| Slot {
        owner: MmOwnerId::new((word >> (half * L::HALF_BITS)) as u32 & L::ID_MAX),
        mapcount: signed_half::<L>(counts >> (half * L::HALF_BITS)),
    };
    let is_shared = word & L::SHARED != 0;
    State { large_mapcount, slots: [slot(0), slot(1)], is_shared, is_stopped: false }
}

/// The low half of `counts` as a signed number.
fn signed_half<L: Layout>(counts: u64) -> i32 {
    let unused = 64 - L::HALF_BITS;
    ((counts << unused).cast_signed() >> unused) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<L: Layout>() {
        let id = MmOwnerId::new;
        let slots = [(None, -1), (id(1), 0), (id(L::ID_MAX - 1), L::COUNT_MAX), (id(L::ID_MAX), 7)]
            .map(|(owner, mapcount)| Slot { owner, mapcount });
        for slot0 in slots {
            for slot1 in slots.into_iter().filter(|slot1| *slot1 == slots[0] || *slot1 != slot0) {
                for is_shared in [false, true] {
                    let state = State {
                        large_mapcount: 12,
                        slots: [slot0, slot1],
                        is_shared,
                        is_stopped: false,
                    };
                    let (word, counts) = (word_of::<L>(&state), counts_of::<L>(&state));
                    assert_eq!(word & L::LOCK, 0);
                    assert_eq!(state_of::<L>(word | L::LOCK, counts, 12), state);
                }
            }
        }
        let stopped = State::stopped(5);
        assert_eq!(state_of::<L>(word_of::<L>(&stopped), counts_of::<L>(&stopped), 5), stopped);
    }

    #[test]
    fn both_layouts_keep_every_field() {
        round_trip::<Wide>();
        round_trip::<Narrow>();
    }

    #[test]
    fn the_bits_stand_where_f_1_1_says() {
        assert_eq!((Wide::LOCK, Wide::SHARED), (1 << 31, 1 << 63));
        assert_eq!((Narrow::LOCK, Narrow::SHARED), (1 << 15, 1 << 31));
        assert_eq!((Wide::ID_MAX, Narrow::ID_MAX), ((1 << 31) - 1, (1 << 15) - 1));
    }
}
