//! What is remembered of evicted pages: whether one that comes back was evicted too early
//! (docs/behaviour G.5.2).
//!
//! A clock counts the pages that left the inactive lists, by eviction or activation. An evicted
//! page leaves its time behind (a shadow); when it is read again, the distance to now says how many
//! more pages memory would have had to hold for it to stay. Where that is no more than what the
//! active list holds, the page is as hot as those: it becomes active at once.
//!
//! Owns the clock, the shadows of one file ([`Shadows`]) and the test. Does not own the lists.
//!
//! Invariants:
//! - I1: ranges of shadows do not overlap and are not empty.

use std::collections::BTreeMap;

use super::lru::{Age, Kind, ListId};
use super::swap::Swap;
use crate::folio::{FolioId, MappingId};
use crate::page_cache::PageCache;
use crate::ram::Ram;

/// What an evicted page leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The clock when it was evicted.
    pub(crate) time: u64,
    /// Whether it had been active once.
    pub(crate) was_workingset: bool,
}

/// Shadows of a file, by range of pages.
#[derive(Clone, Debug, Default)]
pub struct Shadows {
    /// First page -> page after the last, shadow.
    ranges: BTreeMap<u64, (u64, Shadow)>,
}

impl Shadows {
    /// Pages `[first, end)` were evicted.
    pub(crate) fn record(&mut self, (first, end): (u64, u64), shadow: Shadow) {
        let _ = self.take((first, end));
        self.ranges.insert(first, (end, shadow));
    }

    /// Forgets pages `[first, end)`; the last shadow among them.
    pub(crate) fn take(&mut self, (first, end): (u64, u64)) -> Option<Shadow> {
        if self.ranges.is_empty() {
            return None;
        }
        let mut found = None;
        while let Some((&from, &(to, shadow))) = self.ranges.range(..end).next_back() {
            if to <= first {
                break;
            }
            self.ranges.remove(&from);
            if from < first {
                self.ranges.insert(from, (first, shadow));
            }
            if to > end {
                self.ranges.insert(end, (to, shadow));
            }
            found = found.or(Some(shadow));
        }
        found
    }

    /// Pages of `[first, end)` that left a shadow.
    pub(crate) fn nr_in(&self, (first, end): (u64, u64)) -> u64 {
        let overlap =
            |(&from, &(to, _)): (&u64, &(u64, Shadow))| to.min(end).saturating_sub(from.max(first));
        self.ranges.range(..end).rev().map(overlap).take_while(|&nr| nr > 0).sum()
    }

    /// Checks I1; the first page of a range that breaks it.
    pub(crate) fn validate(&self) -> Result<(), u64> {
        let mut last = 0;
        for (&first, &(end, _)) in &self.ranges {
            if first < last || end <= first {
                return Err(first);
            }
            last = end;
        }
        Ok(())
    }
}

/// The clock: pages that left the inactive lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock(u64);

impl Clock {
    pub(crate) fn advance(&mut self, nr_pages: u64) {
        self.0 += nr_pages;
    }

    /// A shadow for a page that is evicted now.
    pub(crate) fn shadow(self, was_workingset: bool) -> Shadow {
        Shadow { time: self.0, was_workingset }
    }
}

impl<R: Ram> PageCache<R> {
    /// Changes the shadows of a file.
    pub(crate) fn with_shadows<T>(
        &mut self,
        file: MappingId,
        change: impl FnOnce(&mut Shadows) -> T,
    ) -> T {
        let shadows = &mut self.mapping_mut(file).shadows;
        let before = shadows.ranges.len();
        let answer = change(shadows);
        let after = shadows.ranges.len();
        self.reclaim.nr_shadows = self.reclaim.nr_shadows - before + after;
        answer
    }

    /// `MADV_FREE`: reclaim looks at the folio next, without asking for swap space.
    pub(crate) fn give_up(&mut self, id: FolioId) {
        let list = ListId::new(Kind::File, Age::Inactive);
        let _ = self.folios.lru_mut().take_referenced(id);
        let _ = self.folios.take_accessed(id);
        self.folios.lru_mut().move_to_head(id, list);
    }

    /// A folio that is evicted leaves this.
    pub(crate) fn evict_shadow(&mut self, id: FolioId) -> Shadow {
        let folio = self.folios.get(id);
        let shadow = self.reclaim.clock.shadow(folio.is_workingset);
        self.reclaim.clock.advance(folio.nr_pages());
        shadow
    }

    /// Pages that were evicted are back in the folio `id`.
    pub(crate) fn refault(&mut self, id: FolioId, shadow: Shadow) {
        let folio = self.folios.get(id);
        let (nr_pages, kind) = (folio.nr_pages(), folio.kind());
        let distance = self.reclaim.clock.0 - shadow.time;
        let is_recent = distance <= self.workingset_pages(kind);
        let is_restored = is_recent && shadow.was_workingset;
        let counters = &mut self.counters.reclaim;
        let (refault, activate, restore) = match kind {
            Kind::Anon => (
                &mut counters.workingset_refault_anon,
                &mut counters.workingset_activate_anon,
                &mut counters.workingset_restore_anon,
            ),
            Kind::File => (
                &mut counters.workingset_refault_file,
                &mut counters.workingset_activate_file,
                &mut counters.workingset_restore_file,
            ),
        };
        *refault += nr_pages;
        *activate += if is_recent { nr_pages } else { 0 };
        *restore += if is_restored { nr_pages } else { 0 };
        if !is_recent {
            return;
        }
        self.folios.lru_mut().move_to_head(id, ListId::new(kind, Age::Active));
        self.reclaim.clock.advance(nr_pages);
        if is_restored {
            self.folios.get_mut(id).is_workingset = true;
            self.reclaim.note_cost(kind, nr_pages);
        }
    }

    /// Pages that an evicted page of `kind` competes with.
    fn workingset_pages(&self, kind: Kind) -> u64 {
        let lru = self.folios.lru();
        let nr = |kind, age| lru.nr_pages(ListId::new(kind, age));
        let mut nr_pages = nr(Kind::File, Age::Active);
        if kind == Kind::Anon {
            nr_pages += nr(Kind::File, Age::Inactive);
        }
        if self.reclaim.swap.as_ref().is_some_and(Swap::has_free) {
            nr_pages += nr(Kind::Anon, Age::Active);
            if kind == Kind::File {
                nr_pages += nr(Kind::Anon, Age::Inactive);
            }
        }
        nr_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: u64) -> Shadow {
        Shadow { time, was_workingset: false }
    }

    #[test]
    fn a_small_folio_takes_its_part_of_a_large_shadow() {
        let mut shadows = Shadows::default();
        shadows.record((0, 512), at(1));
        assert_eq!(shadows.take((100, 101)), Some(at(1)));
        assert_eq!(shadows.take((100, 101)), None);
        assert_eq!(shadows.take((99, 100)), Some(at(1)));
        assert_eq!(shadows.take((101, 1000)), Some(at(1)));
        assert_eq!(shadows.validate(), Ok(()));
        assert_eq!(shadows.take((0, 99)), Some(at(1)));
        assert!(shadows.ranges.is_empty());
    }

    #[test]
    fn a_large_folio_takes_the_last_of_many_shadows() {
        let mut shadows = Shadows::default();
        (0..16).for_each(|page| shadows.record((page, page + 1), at(page)));
        assert_eq!(shadows.take((0, 8)), Some(at(7)));
        assert_eq!(shadows.take((0, 8)), None);
        shadows.record((4, 12), at(99));
        assert_eq!(shadows.validate(), Ok(()));
        assert_eq!(shadows.take((11, 13)), Some(at(12)));
    }
}
