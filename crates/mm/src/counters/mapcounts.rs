//! Updates of map counts: how often an entry that came or went changed a counter of its folio
//! (docs/behaviour F.3, F.4.6, F.5.1).
//!
//! Owns the numbers. Does not own when they grow: `rmap/mapcount` counts what it changes.

use std::ops::{Add, AddAssign, Sub};

/// Atomic read-modify-writes of map counts, by what they change. The first mapping of a new
/// anonymous folio stores its counts plainly and is none (F.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapcountUpdates {
    /// `_mapcount` of one page: one for each PTE, of small folios too. None for large folios with
    /// `NO_PAGE_MAPCOUNT`.
    pub pages: u64,
    /// A plain counter of a large folio: `nr_pages_mapped`, the entire mapcount; and the large
    /// mapcount where no owners are tracked.
    pub folios: u64,
    /// The owner word, which locks large mapcount and slots: one a call (6.15+).
    pub owner_words: u64,
}

impl MapcountUpdates {
    /// No update.
    pub const NONE: Self = Self { pages: 0, folios: 0, owner_words: 0 };

    /// `nr` counters of pages.
    pub(crate) fn of_pages(nr: usize) -> Self {
        Self { pages: nr as u64, ..Self::NONE }
    }

    /// A counter of the folio, if it `changes`.
    pub(crate) fn of_folio(changes: bool) -> Self {
        Self { folios: changes.into(), ..Self::NONE }
    }
}

impl Add for MapcountUpdates {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            folios: self.folios + other.folios,
            owner_words: self.owner_words + other.owner_words,
        }
    }
}

impl AddAssign for MapcountUpdates {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for MapcountUpdates {
    type Output = Self;

    /// What was counted since `base`.
    fn sub(self, base: Self) -> Self {
        Self {
            pages: self.pages - base.pages,
            folios: self.folios - base.folios,
            owner_words: self.owner_words - base.owner_words,
        }
    }
}
