//! Counts how often a folio and its pages are mapped (docs/behaviour F.1 .. F.3, F.5).
//!
//! Corresponds to: `folio_mapcount`, `folio_maybe_mapped_shared`, `folio_likely_mapped_shared`,
//! `folio_average_page_mapcount`.
//!
//! Owns a folio's counters. Does not own its references ([`Shape::pmd_refs`] is the number that a
//! PMD entry takes) or statistics: each operation returns their [`Change`].
//!
//! |---|---|---|---|
//! | shared? | guess from page 0 | owners | owners |
//! | newly mapped pages | exact | exact | whole folio at the first mapping |
//! | partially mapped | a page without mapping | a page without mapping | fewer mappings than pages |
//! | `kpagecount`, PSS | of the page | of the page | average of the folio |
//! | exclusive bit, USS | page mapped once | page mapped once | not shared |
//! | reuse on copy-on-write | never | owners | owners |
//!
//! A [`Mapcount`] has 16 bytes. That is enough for a small folio. A large folio allocates 56 bytes
//! on the heap at its first mapping. If its rules keep page counts, it allocates one count per page
//! as soon as only *part* of it is mapped or unmapped.
//!
//! # Invariants ([`Mapcount::validate`])
//!
//! - I1: the large mapcount and the owners keep the invariants of [`State`].
//! - I2: PTE mappings of all pages + PMD mappings (times [`Shape::pmd_refs`]) = mapcount (L.6).
//!   Without page counts: PMD mappings <= mapcount; for hugetlb, they are equal.
//! - I3: `nr_pages_mapped` = pages with a PTE mapping, + `0x800000` with a PMD mapping.
//! - I4: counters that the rules do not keep are 0.

mod large;
mod rules;
#[cfg(test)]
mod tests;

use std::ops::{Add, Range};

use self::large::Large;
pub use self::rules::{HugetlbOwners, MapcountKind, MapcountRule, MapcountRules, PmdCount, Shape};
use crate::counters::mapcounts::MapcountUpdates;

use super::owners::{self, MapcountOverflow, MmOwnerId, NotExclusive, State};

/// How a folio is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One PTE per page.
    Ptes,
    /// One PMD entry.
    Pmd,
}

/// Effects of an operation outside the folio's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the machine's statistics change by this"]
pub struct Change {
    /// Change of `NR_ANON_MAPPED` or `NR_FILE_MAPPED`, in pages.
    pub mapped_pages: i64,
    /// Change of the PMD-mapped statistic (`FilePmdMapped`, `ShmemPmdMapped`), in pages.
    pub pmd_mapped_pages: i64,
    /// Whether the folio is now partially mapped: queue it for a deferred split if anonymous (G.2).
    pub is_partially_mapped: bool,
    /// Counters that were updated.
    pub updates: MapcountUpdates,
}

impl Change {
    /// No change.
    pub const NONE: Self = Self {
        mapped_pages: 0,
        pmd_mapped_pages: 0,
        is_partially_mapped: false,
        updates: MapcountUpdates::NONE,
    };

    fn mapped(nr_pages: u32) -> Self {
        Self { mapped_pages: nr_pages.into(), ..Self::NONE }
    }

    fn unmapped(nr_pages: u32, is_partially_mapped: bool) -> Self {
        Self { mapped_pages: -i64::from(nr_pages), is_partially_mapped, ..Self::NONE }
    }

    fn with(self, updates: MapcountUpdates) -> Self {
        Self { updates, ..self }
    }
}

impl Add for Change {
    type Output = Self;

    fn add(self, then: Self) -> Self {
        Self {
            mapped_pages: self.mapped_pages + then.mapped_pages,
            pmd_mapped_pages: self.pmd_mapped_pages + then.pmd_mapped_pages,
            is_partially_mapped: self.is_partially_mapped || then.is_partially_mapped,
            updates: self.updates + then.updates,
        }
    }
}

/// A broken invariant of a [`Mapcount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The owners' own invariants.
    #[error("I1: {0}")]
    I1(owners::Violation),
    /// The mapcount differs from the sum of all mappings.
    #[error("I2: the mapcount is {mapcount}, but pages and PMD entries have {found} mappings")]
    I2 {
        /// The mapcount.
        mapcount: u32,
        /// The sum over pages and PMD entries.
        found: u64,
    },
    /// `nr_pages_mapped` differs from the page counts.
    #[error("I3: nr_pages_mapped is {nr_pages_mapped}, but {found} pages are mapped")]
    I3 {
        /// The counter.
        nr_pages_mapped: u32,
        /// The value that the page counts add up to.
        found: u32,
    },
    /// A counter that the rules do not keep.
    #[error("I4: the folio uses a counter that the rules do not maintain")]
    I4,
}

/// The counters of one folio.
///
/// Every operation takes the folio's [`Shape`], which must stay the same for the folio's life. All
/// queries treat an unmapped folio like `Mapcount::default()`, unless its owners are no longer
/// tracked: that is permanent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapcount(Repr);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    /// A small folio, or a large folio that was never mapped.
    Small(u32),
    Large(Box<Large>),
}

impl Default for Mapcount {
    fn default() -> Self {
        Self(Repr::Small(0))
    }
}

impl Mapcount {
    /// A new anonymous folio that `mm` maps entirely (F.3.3).
    pub fn new_anon(of: &Shape, mm: MmOwnerId, level: Level) -> (Self, Change) {
        let mut new = Self::default();
        let change = match level {
            Level::Ptes => new.add_ptes(of, mm, 0..of.nr_pages()),
            Level::Pmd => new.add_pmd(of, mm),
        };
        let Ok(change) = change else { unreachable!("a first mapping overflows no counter") };
        (new, change)
    }

    /// Maps `pages` with one PTE of `mm` each (F.3.1).
    ///
    /// # Errors
    /// If the mappings cannot be counted. Nothing changes.
    ///
    /// # Panics
    /// If `pages` is empty or not inside the folio, or if the folio is hugetlb.
    pub fn add_ptes(
        &mut self,
        of: &Shape,
        mm: MmOwnerId,
        pages: Range<u32>,
    ) -> Result<Change, MapcountOverflow> {
        check(of, &pages);
        match self.made(of) {
            Repr::Large(large) => large.add_ptes(of, mm, pages),
            Repr::Small(count) => {
                let large_mapcount = (*count).wrapping_sub(1).cast_signed();
                if large_mapcount == i32::MAX {
                    return Err(MapcountOverflow { large_mapcount, nr: 1 });
                }
                *count += 1;
                Ok(Change::mapped(u32::from(*count == 1)).with(MapcountUpdates::of_pages(1)))
            }
        }
    }

    /// Removes one PTE mapping by `mm` from each of `pages` (F.3.4).
    ///
    /// # Panics
    /// If one of the pages is not mapped, or if `pages` is empty or not inside the folio.
    pub fn remove_ptes(&mut self, of: &Shape, mm: MmOwnerId, pages: Range<u32>) -> Change {
        check(of, &pages);
        match &mut self.0 {
            Repr::Large(large) => {
                let is_mapped = !of.has_page_counts() || large.pages.are_mapped(pages.clone());
                assert!(
                    is_mapped,
                    "pages {pages:?} are being unmapped, but one of them is not mapped"
                );
                large.remove_ptes(of, mm, pages)
            }
            Repr::Small(count) => {
                assert!(*count > 0, "a page is being unmapped that is not mapped");
                *count -= 1;
                Change::unmapped(u32::from(*count == 0), false).with(MapcountUpdates::of_pages(1))
            }
        }
    }

    /// Maps the whole folio with a PMD entry of `mm`, or a hugetlb folio with its entry (F.3.2).
    ///
    /// # Errors
    /// If the mapping cannot be counted. Nothing changes.
    ///
    /// # Panics
    /// If the folio is small.
    pub fn add_pmd(&mut self, of: &Shape, mm: MmOwnerId) -> Result<Change, MapcountOverflow> {
        let Repr::Large(large) = self.made(of) else {
            panic!("a PMD entry maps a folio of order {}", of.order.get())
        };
        large.add_pmd(of, mm)
    }

    /// Removes a PMD mapping by `mm` (F.3.5).
    ///
    /// # Panics
    /// If the folio has none.
    pub fn remove_pmd(&mut self, of: &Shape, mm: MmOwnerId) -> Change {
        self.large_mut().remove_pmd(of, mm)
    }

    /// Replaces a PMD mapping of `mm` with one PTE per page (F.3.6). The caller first takes the
    /// additional `nr_pages - pmd_refs` references.
    ///
    /// # Errors
    /// If the mappings cannot be counted. Nothing changes.
    ///
    /// # Panics
    /// If the folio has no PMD mapping.
    pub fn split_pmd(&mut self, of: &Shape, mm: MmOwnerId) -> Result<Change, MapcountOverflow> {
        self.large_mut().split_pmd(of, mm)
    }

    /// Mappings of the folio (F.2.1).
    #[must_use]
    pub fn mapcount(&self) -> u32 {
        match &self.0 {
            Repr::Small(count) => *count,
            Repr::Large(large) => large.owners.mapcount(),
        }
    }

    /// Whether any process maps the folio.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapcount() > 0
    }

    /// PMD entries that map the folio.
    #[must_use]
    pub fn entire_mapcount(&self) -> u32 {
        self.large().map_or(0, |large| large.entire_mapcount)
    }

    /// Whether the kernel considers the folio shared: F.2.2 with tracked owners, otherwise F.2.3.
    #[must_use]
    pub fn maybe_mapped_shared(&self, of: &Shape) -> bool {
        let mapcount = self.mapcount();
        match self.large() {
            Some(large) if of.is_tracked() => large.owners.maybe_mapped_shared(),
            Some(large) if of.kind == MapcountKind::Normal && mapcount > 1 => {
                large.entire_mapcount > 0 || mapcount > of.nr_pages() || large.pages.get(0) > 1
            }
            _ => mapcount > 1,
        }
    }

    /// Mappings of `page` in `kpagecount` (F.5.4): PTEs plus PMD entries, or the folio's average.
    #[must_use]
    pub fn page_mapcount(&self, of: &Shape, page: u32) -> u32 {
        match self.large() {
            Some(large) if of.has_page_counts() => large.pages.get(page) + large.entire_mapcount,
            Some(_) => self.average_mapcount(of),
            None => self.mapcount(),
        }
    }

    /// Average mappings per page, rounded to nearest; at least 1 if the folio is mapped (F.5.5).
    #[must_use]
    pub fn average_mapcount(&self, of: &Shape) -> u32 {
        let entire = self.entire_mapcount();
        let ptes = self.mapcount() - entire * of.pmd_refs();
        let nr_pages = of.nr_pages();
        match (ptes, of.kind) {
            (0, _) | (_, MapcountKind::Hugetlb) => entire,
            _ => (ptes.saturating_add(nr_pages / 2) / nr_pages + entire).max(1),
        }
    }

    /// Whether `page` counts as private to one process, in pagemap's exclusive bit and in USS
    /// (F.5.4). A folio with one reference always does (F.5.6): it has at most one mapping.
    #[must_use]
    pub fn is_page_exclusive(&self, of: &Shape, page: u32) -> bool {
        if of.rules.counts == MapcountRule::NoPageMapcount && self.large().is_some() {
            return self.is_mapped() && !self.maybe_mapped_shared(of);
        }
        self.page_mapcount(of, page) == 1
    }

    /// Pages that the folio adds to the mapped-pages statistic (F.3.1, F.5.2): its mapped pages, or
    /// without page counts, all pages if any is mapped.
    #[must_use]
    pub fn mapped_pages(&self, of: &Shape) -> u32 {
        match self.large() {
            _ if of.kind == MapcountKind::Hugetlb => 0,
            None => u32::from(self.is_mapped()),
            Some(large) if of.has_page_counts() => large.nr_mapped(of),
            Some(_) if self.is_mapped() => of.nr_pages(),
            Some(_) => 0,
        }
    }

    /// Whether `mm` may write to a PTE-mapped large folio in place. The folio has `references`
    /// (E.3.3). For a small folio, its references alone decide (E.3.2).
    ///
    /// # Errors
    /// The reason against it.
    pub fn try_exclusive(
        &self,
        of: &Shape,
        mm: MmOwnerId,
        references: u64,
    ) -> Result<(), NotExclusive> {
        match self.large() {
            Some(large) if of.is_tracked() => large.owners.try_exclusive(mm, references),
            _ => Err(NotExclusive::Untracked),
        }
    }

    /// The folio's owners, if they are tracked.
    #[must_use]
    pub fn owners(&self, of: &Shape) -> Option<State> {
        of.is_tracked().then(|| self.large().map_or(State::UNMAPPED, |it| it.owners.state()))
    }

    /// Checks I1 .. I4.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self, of: &Shape) -> Result<(), Violation> {
        match &self.0 {
            Repr::Large(large) => large.validate(of),
            Repr::Small(count) if is_large(of) && *count > 0 => Err(Violation::I4),
            Repr::Small(_) => Ok(()),
        }
    }

    fn made(&mut self, of: &Shape) -> &mut Repr {
        if let Repr::Small(0) = self.0
            && is_large(of)
        {
            self.0 = Repr::Large(Box::new(Large::new(of)));
        }
        &mut self.0
    }

    fn large(&self) -> Option<&Large> {
        match &self.0 {
            Repr::Small(_) => None,
            Repr::Large(large) => Some(large),
        }
    }

    fn large_mut(&mut self) -> &mut Large {
        let Repr::Large(large) = &mut self.0 else { panic!("the folio has no PMD mapping") };
        large
    }
}

fn is_large(of: &Shape) -> bool {
    of.order.get() > 0
}

fn check(of: &Shape, pages: &Range<u32>) {
    assert!(
        pages.start < pages.end && pages.end <= of.nr_pages() && of.kind == MapcountKind::Normal,
        "pages {pages:?} of a folio of {}, {:?}",
        of.nr_pages(),
        of.kind
    );
}
