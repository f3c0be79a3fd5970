//! Counters of one large folio and their transitions (docs/behaviour F.3, F.5).
//!
//! PTE mappings of each page in a large folio (F.1 `_mapcount`, but without the minus one).
//!
//! As long as every operation covers the whole folio, all pages have the same count and one number
//! holds it. fork and munmap of a whole folio then cost the same for every folio size.

use std::ops::Range;

use crate::counters::mapcounts::MapcountUpdates;
use crate::rmap::mapcount::rules::{MapcountKind, MapcountRules, Shape};
use crate::rmap::mapcount::{Change, Violation};
use crate::rmap::owners::{MapcountOverflow, MmOwnerId, Owners};

/// Added to `nr_pages_mapped` while a PMD entry maps the folio (docs/behaviour 0.4).
pub(super) const ENTIRELY_MAPPED: u32 = 0x80_0000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Large {
    pub(super) owners: Owners,
    pub(super) entire_mapcount: u32,
    /// Pages with a PTE mapping, plus [`ENTIRELY_MAPPED`] with a PMD mapping; 0 if not kept.
    pub(super) nr_pages_mapped: u32,
    /// PTE mappings of each page; zero if not kept.
    pub(super) pages: PageCounts,
}

impl Large {
    pub(super) fn new(of: &Shape) -> Self {
        let MapcountRules { layout, stop_above, .. } = of.rules;
        let owners =
            if of.is_tracked() { Owners::new(layout, stop_above) } else { Owners::untracked() };
        Self { owners, entire_mapcount: 0, nr_pages_mapped: 0, pages: PageCounts::ZERO }
    }

    pub(super) fn add_ptes(
        &mut self,
        of: &Shape,
        mm: MmOwnerId,
        pages: Range<u32>,
    ) -> Result<Change, MapcountOverflow> {
        let nr = pages.end - pages.start;
        let total = self.update_of_total();
        let is_first = self.owners.add(mm, nr)? == nr;
        let change = self.count_ptes(of, pages, is_first);
        Ok(change.with(change.updates + total))
    }

    fn update_of_total(&self) -> MapcountUpdates {
        if self.owners.is_tracking() {
            MapcountUpdates { owner_words: 1, ..MapcountUpdates::NONE }
        } else {
            MapcountUpdates::of_folio(true)
        }
    }

    fn count_ptes(&mut self, of: &Shape, pages: Range<u32>, is_first: bool) -> Change {
        if !of.has_page_counts() {
            return Change::mapped(if is_first { of.nr_pages() } else { 0 });
        }
        let updates = MapcountUpdates::of_pages(pages.len());
        let nr_first = self.pages.add(pages, of.nr_pages());
        self.nr_pages_mapped += nr_first;
        let nr_new = if self.nr_pages_mapped < ENTIRELY_MAPPED { nr_first } else { 0 };
        Change::mapped(nr_new).with(updates + MapcountUpdates::of_folio(nr_first > 0))
    }

    pub(super) fn remove_ptes(&mut self, of: &Shape, mm: MmOwnerId, pages: Range<u32>) -> Change {
        let total = self.update_of_total();
        let left = self.owners.remove(mm, pages.end - pages.start);
        if !of.has_page_counts() {
            let is_part = (1..of.nr_pages()).contains(&left) && self.entire_mapcount == 0;
            let nr_last = if left == 0 { of.nr_pages() } else { 0 };
            return Change::unmapped(nr_last, is_part).with(total);
        }
        let updates = total + MapcountUpdates::of_pages(pages.len());
        let nr_last = self.pages.remove(pages, of.nr_pages());
        self.nr_pages_mapped -= nr_last;
        let updates = updates + MapcountUpdates::of_folio(nr_last > 0);
        if self.nr_pages_mapped.is_multiple_of(ENTIRELY_MAPPED) {
            self.pages = PageCounts::ZERO;
        }
        if self.nr_pages_mapped >= ENTIRELY_MAPPED {
            return Change::NONE.with(updates);
        }
        Change::unmapped(nr_last, nr_last > 0 && self.nr_pages_mapped > 0).with(updates)
    }

    pub(super) fn add_pmd(
        &mut self,
        of: &Shape,
        mm: MmOwnerId,
    ) -> Result<Change, MapcountOverflow> {
        let total = self.update_of_total();
        let is_first = self.owners.add(mm, of.pmd_refs())? == of.pmd_refs();
        let change = self.count_pmd(of, is_first);
        let entire = pmd_updates(of, self.entire_mapcount == 1);
        Ok(change.with(total + entire))
    }

    fn count_pmd(&mut self, of: &Shape, is_first: bool) -> Change {
        self.entire_mapcount += 1;
        let is_first_pmd = self.entire_mapcount == 1;
        if of.kind == MapcountKind::Hugetlb {
            return Change::NONE;
        }
        let nr_pages = of.nr_pages();
        let nr_new = match (of.has_page_counts(), is_first_pmd) {
            (true, true) => {
                let nr_ptes = self.nr_pages_mapped;
                self.nr_pages_mapped += ENTIRELY_MAPPED;
                nr_pages - nr_ptes
            }
            (false, _) if is_first => nr_pages,
            _ => 0,
        };
        let pmd_mapped_pages = if is_first_pmd { i64::from(nr_pages) } else { 0 };
        Change { pmd_mapped_pages, ..Change::mapped(nr_new) }
    }

    pub(super) fn remove_pmd(&mut self, of: &Shape, mm: MmOwnerId) -> Change {
        let total = self.update_of_total();
        let left = self.owners.remove(mm, of.pmd_refs());
        let change = self.uncount_pmd(of, left);
        change.with(change.updates + total)
    }

    fn uncount_pmd(&mut self, of: &Shape, left: u32) -> Change {
        assert!(self.entire_mapcount > 0, "a PMD mapping is being removed, but there is none");
        self.entire_mapcount -= 1;
        let is_last_pmd = self.entire_mapcount == 0;
        if of.kind == MapcountKind::Hugetlb {
            return Change::NONE.with(pmd_updates(of, is_last_pmd));
        }
        let nr_pages = of.nr_pages();
        let change = match (of.has_page_counts(), is_last_pmd) {
            (true, true) => {
                self.nr_pages_mapped -= ENTIRELY_MAPPED;
                let nr_last = nr_pages - self.nr_pages_mapped;
                Change::unmapped(nr_last, (1..nr_pages).contains(&nr_last))
            }
            (false, true) if left == 0 => Change::unmapped(nr_pages, false),
            (false, true) => Change::unmapped(0, left < nr_pages),
            (_, false) => Change::NONE,
        };
        let pmd_mapped_pages = if is_last_pmd { -i64::from(nr_pages) } else { 0 };
        Change { pmd_mapped_pages, updates: pmd_updates(of, is_last_pmd), ..change }
    }

    /// F.3.6: adds PTEs for all pages, then drops the PMD entry.
    pub(super) fn split_pmd(
        &mut self,
        of: &Shape,
        mm: MmOwnerId,
    ) -> Result<Change, MapcountOverflow> {
        let all = 0..of.nr_pages();
        if of.pmd_refs() == of.nr_pages() {
            // The PMD entry already counted all pages as mapped.
            let mapped = self.count_ptes(of, all, false);
            return Ok(mapped + self.uncount_pmd(of, self.owners.mapcount()));
        }
        let mapped = self.add_ptes(of, mm, all)?;
        Ok(mapped + self.remove_pmd(of, mm))
    }

    pub(super) fn nr_mapped(&self, of: &Shape) -> u32 {
        if self.nr_pages_mapped < ENTIRELY_MAPPED { self.nr_pages_mapped } else { of.nr_pages() }
    }

    pub(super) fn validate(&self, of: &Shape) -> Result<(), Violation> {
        self.owners.state().validate().map_err(Violation::I1)?;
        let mapcount = self.owners.mapcount();
        let pmd = u64::from(self.entire_mapcount) * u64::from(of.pmd_refs());
        if !of.has_page_counts() {
            let is_clean = self.nr_pages_mapped == 0 && self.pages == PageCounts::ZERO;
            let fits = pmd <= mapcount.into()
                && (of.kind == MapcountKind::Normal || pmd == mapcount.into());
            return if !is_clean {
                Err(Violation::I4)
            } else if fits {
                Ok(())
            } else {
                Err(Violation::I2 { mapcount, found: pmd })
            };
        }
        let counts = (0..of.nr_pages()).map(|page| self.pages.get(page));
        let found = pmd + counts.clone().map(u64::from).sum::<u64>();
        if found != mapcount.into() {
            return Err(Violation::I2 { mapcount, found });
        }
        let bias = if self.entire_mapcount > 0 { ENTIRELY_MAPPED } else { 0 };
        let found = bias + counts.map(|count| u32::from(count > 0)).sum::<u32>();
        if found != self.nr_pages_mapped {
            return Err(Violation::I3 { nr_pages_mapped: self.nr_pages_mapped, found });
        }
        Ok(())
    }
}

/// Counters that a PMD entry updates besides the total: the entire mapcount, and `nr_pages_mapped`
/// for the first or last entry if the rules keep it.
fn pmd_updates(of: &Shape, is_only: bool) -> MapcountUpdates {
    let of_folio = MapcountUpdates::of_folio;
    of_folio(true) + of_folio(is_only && of.has_page_counts())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageCounts {
    Uniform(u32),
    Each(Box<[u32]>),
}

impl PageCounts {
    pub(super) const ZERO: Self = Self::Uniform(0);

    pub(super) fn get(&self, page: u32) -> u32 {
        match self {
            Self::Uniform(count) => *count,
            Self::Each(counts) => counts[page as usize],
        }
    }

    /// Adds a mapping to each of `pages`. Returns how many had none before.
    pub(super) fn add(&mut self, pages: Range<u32>, nr_pages: u32) -> u32 {
        if let Self::Uniform(count) = self
            && pages.len() == nr_pages as usize
        {
            *count += 1;
            return if *count == 1 { nr_pages } else { 0 };
        }
        let mut nr_first = 0;
        for count in self.each(pages, nr_pages) {
            nr_first += u32::from(*count == 0);
            *count += 1;
        }
        nr_first
    }

    /// Removes a mapping from each of `pages`. Returns how many now have none.
    pub(super) fn remove(&mut self, pages: Range<u32>, nr_pages: u32) -> u32 {
        if let Self::Uniform(count) = self
            && pages.len() == nr_pages as usize
        {
            *count -= 1;
            return if *count == 0 { nr_pages } else { 0 };
        }
        let mut nr_last = 0;
        for count in self.each(pages, nr_pages) {
            *count -= 1;
            nr_last += u32::from(*count == 0);
        }
        nr_last
    }

    pub(super) fn are_mapped(&self, pages: Range<u32>) -> bool {
        match self {
            Self::Uniform(count) => *count > 0,
            Self::Each(counts) => {
                counts[pages.start as usize..pages.end as usize].iter().all(|&count| count > 0)
            }
        }
    }

    fn each(&mut self, pages: Range<u32>, nr_pages: u32) -> &mut [u32] {
        if let Self::Uniform(count) = self {
            *self = Self::Each(vec![*count; nr_pages as usize].into_boxed_slice());
        }
        let Self::Each(counts) = self else { unreachable!("made so above") };
        &mut counts[pages.start as usize..pages.end as usize]
    }
}
