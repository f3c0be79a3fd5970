//! Mapcount updates when entries are set or cleared (docs/behaviour F.3, F.4.6, F.5.1).

use std::ops::{Add, AddAssign, Sub};

/// Atomic read-modify-writes of map counts, by counter. The first mapping of a new anonymous folio
/// uses plain stores and does not count (F.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MapcountUpdates {
    /// `_mapcount` of one page, one per PTE; zero for large folios with `NO_PAGE_MAPCOUNT`.
    pub pages: u64,
    /// A plain counter of a large folio: `nr_pages_mapped` or the entire mapcount; also the large
    /// mapcount if owners are not tracked.
    pub folios: u64,
    /// The owner word, which locks the large mapcount and the slots: one per call (6.15+).
    pub owner_words: u64,
}

impl MapcountUpdates {
    /// No updates.
    pub const NONE: Self = Self { pages: 0, folios: 0, owner_words: 0 };

    pub(crate) fn of_pages(nr: usize) -> Self {
        Self { pages: nr as u64, ..Self::NONE }
    }

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

    fn sub(self, base: Self) -> Self {
        Self {
            pages: self.pages - base.pages,
            folios: self.folios - base.folios,
            owner_words: self.owner_words - base.owner_words,
        }
    }
}
