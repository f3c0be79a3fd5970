//! A table in front of the search: the slot that last held a recorded page's entry.
//!
//! Owns the table. [`super::front`] reads and fills it.

use super::entry::Key;
use super::walker::NR_PAGES;

/// Hints of one side, a power of two: 1,024 x 16 bytes, of which a program uses one line per active
/// page. Of 8 million rows of `cc1 -O2`, 8.6% have no hint with 128, 5.0% with 256, 1.5% with 512
/// and 0.4% with 1,024; 3.8% of the rows miss a level 1 of 48 entries.
const NR_HINTS: usize = 1 << HINT_BITS;
const HINT_BITS: u32 = 10;
const _: () = assert!(NR_HINTS == NR_PAGES);
const SLOT_BITS: u32 = 20;
/// A flag above the slot's number.
const WRITTEN: usize = 1 << (SLOT_BITS - 1);

/// The slot that last held a recorded page's entry. Valid only if `keys[slot] == key`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    /// `tag << SLOT_BITS | WRITTEN or 0 | slot`. The tag is the part of the page that [`hint_of`]
    /// drops, so the bounds check on the slot also compares the page.
    tagged_slot: u64,
    pub(super) key: Key,
}

impl Hint {
    /// An unused hint. A tag has at most 42 bits, so no page matches.
    const NONE: Self = Self { tagged_slot: u64::MAX, key: Key::EMPTY };

    pub(super) fn new(page: u64, slot: usize, key: Key, is_written: bool) -> Self {
        let written = if is_written { WRITTEN } else { 0 };
        Self { tagged_slot: Self::tag_of(page) | (written | slot) as u64, key }
    }

    /// Returns the slot, and whether a store to the page was seen, if this is the hint of `page`;
    /// else a number that is out of bounds.
    #[inline]
    pub(super) fn slot_of(self, page: u64) -> (usize, bool) {
        let slot = usize::try_from(self.tagged_slot ^ Self::tag_of(page)).unwrap_or(usize::MAX);
        (slot & !WRITTEN, slot & WRITTEN != 0)
    }

    #[inline]
    const fn tag_of(page: u64) -> u64 {
        page >> HINT_BITS << SLOT_BITS
    }
}

#[derive(Clone, Debug)]
pub(super) struct Front {
    pub(super) hints: Box<[Hint; 2 * NR_HINTS]>,
    pub(super) epoch: u64,
}

impl Default for Front {
    fn default() -> Self {
        let hints = vec![Hint::NONE; 2 * NR_HINTS].into_boxed_slice();
        let Ok(hints) = hints.try_into() else { unreachable!("it was made as long") };
        Self { hints, epoch: 0 }
    }
}

impl Front {
    #[cold]
    pub(super) fn begin(&mut self, epoch: u64) {
        self.hints.fill(Hint::NONE);
        self.epoch = epoch;
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
pub(super) const fn hint_of(side: usize, page: u64) -> usize {
    side * NR_HINTS + page as usize % NR_HINTS
}
