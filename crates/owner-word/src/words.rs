//! The transitions of owner tracking, on the raw words (docs/behaviour F.4).
//!
//! Corresponds to: `folio_add_return_large_mapcount`, `folio_sub_return_large_mapcount`.
//!
//! Owns the rules, as pure functions from old words to new words. Does not own the memory or the
//! lock: a caller reads the words, either under the lock ([`super::Owners`]) or as their only user,
//! and stores the result. Both kinds of caller run the same functions, so the model checker tests
//! the code that both use.
//!
//! Nothing is decoded: a slot is found by its shift, and only the changed half is written.
//! [`super::State`] is the decoded form.

use super::MapcountOverflow;
use super::layout::Layout;
use super::state::{MmOwnerId, Slot, State};

/// The three words of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Ids of both slots and S, without L; [`Layout::STOPPED`] once tracking has stopped.
    pub word: u64,
    /// Counts of both slots, minus one; all ones = both free.
    pub counts: u64,
    /// Mappings of the folio, minus one.
    pub large_mapcount: i32,
}

impl Words {
    /// No mappings.
    #[must_use]
    pub const fn unmapped<L: Layout>() -> Self {
        Self { word: 0, counts: L::COUNTS_FREE, large_mapcount: -1 }
    }

    /// A counter without owners.
    #[must_use]
    pub const fn stopped<L: Layout>(large_mapcount: i32) -> Self {
        Self { word: L::STOPPED, counts: L::COUNTS_FREE, large_mapcount }
    }

    /// The decoded words.
    #[must_use]
    pub fn state<L: Layout>(&self) -> State {
        let Self { word, counts, large_mapcount } = *self;
        if word == L::STOPPED {
            return State::stopped(large_mapcount);
        }
        let slot = |shift: u32| Slot {
            owner: MmOwnerId::new(id_of::<L>(word, shift)),
            mapcount: count_of::<L>(counts, shift),
        };
        let is_shared = word & L::SHARED != 0;
        State { large_mapcount, slots: [slot(0), slot(L::HALF_BITS)], is_shared, is_stopped: false }
    }

    /// Mappings of the folio (F.2.1).
    #[must_use]
    pub const fn mapcount(&self) -> u32 {
        self.large_mapcount.wrapping_add(1).cast_unsigned()
    }

    /// F.4 Add: `nr` mappings by `mm`. Tracking stops above `stop_above` mappings (K.5.2).
    ///
    /// # Errors
    /// If the large mapcount would overflow.
    ///
    /// # Panics
    /// If the id of `mm` does not fit the layout.
    #[inline]
    pub fn add<L: Layout>(
        self,
        mm: MmOwnerId,
        nr: u32,
        stop_above: u32,
    ) -> Result<Self, MapcountOverflow> {
        check_id::<L>(mm);
        let large_mapcount = sum(self.large_mapcount, nr)?;
        let new = Self { large_mapcount, ..self };
        if self.word == L::STOPPED || new.mapcount() > stop_above {
            return Ok(Self::stopped::<L>(large_mapcount));
        }
        let word = self.word;
        let Some(slot) = slot_of::<L>(word, mm.get()).or_else(|| slot_of::<L>(word, 0)) else {
            // Case 5: others hold both slots; S is already set.
            return Ok(new);
        };
        match sum(count_of::<L>(self.counts, slot), nr) {
            Ok(count) if count <= L::COUNT_MAX => {
                let counts = with_count::<L>(self.counts, slot, count);
                let is_new = id_of::<L>(word, slot) == 0;
                let word = if is_new { word | u64::from(mm.get()) << slot } else { word };
                // Cases 3 and 4: another mm also maps it.
                let is_shared = is_new && count != large_mapcount;
                let word = if is_shared { word | L::SHARED } else { word };
                Ok(Self { word, counts, large_mapcount })
            }
            // The overflow rule of cases 1 and 2: the mm's mappings become untracked.
            Ok(_) | Err(_) => {
                let freed = new.without_slot::<L>(slot);
                Ok(Self { word: freed.word | L::SHARED, ..freed })
            }
        }
    }

    /// F.4 Remove: `nr` existing mappings by `mm`.
    ///
    /// # Panics
    /// If the folio has fewer mappings, or the id of `mm` does not fit the layout.
    #[inline]
    #[must_use]
    pub fn remove<L: Layout>(self, mm: MmOwnerId, nr: u32) -> Self {
        check_id::<L>(mm);
        if nr > self.mapcount() {
            refuse(nr, self.mapcount());
        }
        let large_mapcount = self.large_mapcount.wrapping_sub_unsigned(nr);
        let mut new = Self { large_mapcount, ..self };
        if self.word == L::STOPPED {
            return new;
        }
        if let Some(slot) = slot_of::<L>(self.word, mm.get()) {
            let count = count_of::<L>(self.counts, slot).saturating_sub_unsigned(nr);
            if count >= 0 {
                return Self { counts: with_count::<L>(self.counts, slot, count), ..new };
            }
            new = new.without_slot::<L>(slot);
        }
        let has_all = |slot: u32| count_of::<L>(new.counts, slot) == large_mapcount;
        if has_all(0) || has_all(L::HALF_BITS) {
            new.word &= !L::SHARED;
        }
        new
    }

    const fn without_slot<L: Layout>(self, shift: u32) -> Self {
        let word = self.word & !((L::ID_MAX as u64) << shift);
        Self { word, counts: self.counts | L::HALF << shift, ..self }
    }
}

fn slot_of<L: Layout>(word: u64, id: u32) -> Option<u32> {
    if id_of::<L>(word, 0) == id {
        Some(0)
    } else {
        (id_of::<L>(word, L::HALF_BITS) == id).then_some(L::HALF_BITS)
    }
}

const fn id_of<L: Layout>(word: u64, shift: u32) -> u32 {
    (word >> shift) as u32 & L::ID_MAX
}

const fn count_of<L: Layout>(counts: u64, shift: u32) -> i32 {
    let unused = 64 - L::HALF_BITS;
    ((counts >> shift << unused).cast_signed() >> unused) as i32
}

const fn with_count<L: Layout>(counts: u64, shift: u32, count: i32) -> u64 {
    let half = count.cast_unsigned() as u64 & L::HALF;
    counts & !(L::HALF << shift) | half << shift
}

pub(super) fn sum(count: i32, nr: u32) -> Result<i32, MapcountOverflow> {
    count.checked_add_unsigned(nr).ok_or(MapcountOverflow { large_mapcount: count, nr })
}

/// An id that does not fit its slot would set L.
pub(super) fn check_id<L: Layout>(mm: MmOwnerId) {
    assert!(mm.get() <= L::ID_MAX, "owner id {} does not fit in the layout", mm.get());
}

#[cold]
pub(super) fn refuse(nr: u32, mapcount: u32) -> ! {
    panic!("{nr} mappings are removed of {mapcount}")
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Narrow, Wide};
    use super::*;

    fn halves<L: Layout>() {
        let free = Words::unmapped::<L>();
        assert_eq!(free.state::<L>(), State::UNMAPPED);
        assert_eq!(Words::stopped::<L>(5).state::<L>(), State::stopped(5));
        for (at, shift) in [(0, 0), (1, L::HALF_BITS)] {
            for (id, count) in [(1, 0), (L::ID_MAX, L::COUNT_MAX)] {
                for shared in [0, L::SHARED] {
                    let word = shared | u64::from(id) << shift;
                    let counts = free.counts & !(L::HALF << shift)
                        | u64::from(count.cast_unsigned()) << shift;
                    let state = Words { word, counts, large_mapcount: count }.state::<L>();
                    let owner = MmOwnerId::new(id);
                    assert_eq!(state.slots[at], Slot { owner, mapcount: count });
                    assert_eq!(state.slots[1 - at], Slot::FREE);
                    assert_eq!((state.is_shared, state.large_mapcount), (shared != 0, count));
                }
            }
        }
    }

    #[test]
    fn both_layouts_keep_every_field() {
        halves::<Wide>();
        halves::<Narrow>();
    }
}
