//! Updates a folio's mapcount and references when a page-table entry is added or removed
//! (docs/behaviour F.3, E.3.7, G.2.1).
//!
//! Corresponds to: `__folio_add_rmap`, `__folio_remove_rmap`, `folio_add_new_anon_rmap`,
//! `folio_put`.
//!
//! Owns references and mapcounts, the machine's counts of mapped pages (F.5.2, F.5.7),
//! `AnonExclusive` for new and remapped pages, and the moment at which a folio becomes partially
//! mapped. Does not own the entries themselves.
//!
//! Invariants:
//! - I1: mapping takes the reference first, then counts the mapping; unmapping does the reverse. So
//!   `refs >= maps` always holds.
//! - I2: a folio without references is freed.

use std::ops::Range;

use crate::core::Core;
use crate::counters::mapped::{MappedCounters, MappedKind};
use crate::folio::frames::Flag;
use crate::folio::{Folio, FolioId, Owner, SwapState};
use crate::rmap::Mapcount;
use crate::rmap::mapcount::Change;
use crate::rmap::owners::MapcountOverflow;
use crate::rules::anon::MIN_LARGE_ORDER;
use crate::units::{MmId, Order, Pfn};

pub(crate) use crate::rmap::mapcount::Level;

fn count(mapped: &mut MappedCounters, kind: MappedKind, change: &Change) {
    mapped.add(kind, change.mapped_pages, change.pmd_mapped_pages);
}

fn pages_of(folio: &Folio, pfn: Pfn, nr: u64) -> Range<u32> {
    let first = (pfn.0 - folio.pfn.0) as u32;
    first..first + nr as u32
}

/// Page tables limit the number of mappings, and memory limits page tables.
fn counted(change: Result<Change, MapcountOverflow>) -> Change {
    let Ok(change) = change else { unreachable!("fewer than 2^31 mappings") };
    change
}

impl Core {
    /// Maps a new anonymous folio that is exclusive to `mm` (F.3.3).
    pub(crate) fn map_new_anon(&mut self, id: FolioId, mm: MmId, level: Level) {
        let shape = self.shape(self.folios.get(id).order);
        let owner = self.processes.of(mm);
        let folio = self.folios.get_mut(id);
        folio.note_mapper(mm);
        let (pfn, nr_pages) = (folio.pfn, folio.nr_pages());
        let (refs, nr_exclusive) = match level {
            Level::Ptes => (nr_pages, nr_pages),
            Level::Pmd => (shape.pmd_refs().into(), 1),
        };
        match level {
            Level::Ptes => {
                self.counters.nr_ptes_set += nr_pages;
                self.counters.nr_batches_set += 1;
            }
            Level::Pmd => self.counters.nr_pmds_set += 1,
        }
        folio.refs += refs;
        let (mapcount, change) = Mapcount::new_anon(&shape, owner, level);
        folio.mapcount = mapcount;
        count(&mut self.counters.mapped, folio.mapped_kind(), &change);
        self.folios.frames_mut().set(Flag::Exclusive, pfn, nr_exclusive);
    }

    /// Counts `nr` PTEs of `mm` for the pages from `pfn` (F.3.1).
    pub(crate) fn add_ptes(&mut self, id: FolioId, mm: MmId, pfn: Pfn, nr: u64) {
        let shape = self.shape(self.folios.get(id).order);
        let owner = self.processes.of(mm);
        self.work.add_cheap(nr);
        self.counters.nr_ptes_set += nr;
        self.counters.nr_batches_set += 1;
        let folio = self.folios.get_mut(id);
        folio.note_mapper(mm);
        folio.refs += nr;
        let pages = pages_of(folio, pfn, nr);
        let change = counted(folio.mapcount.add_ptes(&shape, owner, pages));
        self.counters.mapcounts_set += change.updates;
        count(&mut self.counters.mapped, folio.mapped_kind(), &change);
    }

    /// Counts a PMD entry of `mm` (F.3.2).
    pub(crate) fn add_pmd(&mut self, id: FolioId, mm: MmId) {
        let shape = self.shape(self.folios.get(id).order);
        let owner = self.processes.of(mm);
        self.work.add(1);
        self.counters.nr_pmds_set += 1;
        let folio = self.folios.get_mut(id);
        folio.note_mapper(mm);
        folio.refs += u64::from(shape.pmd_refs());
        let change = counted(folio.mapcount.add_pmd(&shape, owner));
        self.counters.mapcounts_set += change.updates;
        count(&mut self.counters.mapped, folio.mapped_kind(), &change);
    }

    /// Uncounts `nr` PTEs of `mm` for the pages from `pfn` (F.3.4, F.5.3).
    pub(crate) fn remove_ptes(&mut self, id: FolioId, mm: MmId, pfn: Pfn, nr: u64) {
        let shape = self.shape(self.folios.get(id).order);
        let owner = self.processes.of(mm);
        self.work.add_cheap(nr);
        self.counters.nr_ptes_cleared += nr;
        self.counters.nr_batches_cleared += 1;
        let folio = self.folios.get_mut(id);
        self.counters.nr_large_batches_cleared += u64::from(folio.order > Order::ZERO);
        let pages = pages_of(folio, pfn, nr);
        let change = folio.mapcount.remove_ptes(&shape, owner, pages);
        self.after_removal(id, change);
        self.put_unmapped(id, nr);
    }

    /// Uncounts a PMD entry of `mm` (F.3.5, F.5.3).
    pub(crate) fn remove_pmd(&mut self, id: FolioId, mm: MmId) {
        let shape = self.shape(self.folios.get(id).order);
        let owner = self.processes.of(mm);
        self.work.add(1);
        self.counters.nr_pmds_cleared += 1;
        let change = self.folios.get_mut(id).mapcount.remove_pmd(&shape, owner);
        self.after_removal(id, change);
        self.put_unmapped(id, shape.pmd_refs().into());
    }

    pub(crate) fn pmd_to_ptes(&mut self, id: FolioId, mm: MmId) {
        let shape = self.shape(self.folios.get(id).order);
        let owner = self.processes.of(mm);
        let folio = self.folios.get_mut(id);
        let (pfn, nr, is_anon) = (folio.pfn, folio.nr_pages(), folio.is_anon());
        self.work.add_cheap(nr);
        self.counters.nr_pmds_cleared += 1;
        self.counters.nr_ptes_set += nr;
        folio.refs += nr - u64::from(shape.pmd_refs());
        let change = counted(folio.mapcount.split_pmd(&shape, owner));
        if is_anon && self.folios.is_exclusive(pfn) {
            self.folios.frames_mut().set(Flag::Exclusive, pfn, nr);
        }
        self.after_removal(id, change);
    }

    /// Uncounts the mappings of a folio that is split. It has already left the table.
    pub(crate) fn count_split(&mut self, whole: &Folio) {
        let nr_pages = whole.mapcount.mapped_pages(&self.shape(whole.order));
        self.counters.mapped.add(whole.mapped_kind(), -i64::from(nr_pages), 0);
    }

    pub(crate) fn count_part(&mut self, part: &Folio) {
        let nr_pages = part.mapcount.mapped_pages(&self.shape(part.order));
        self.counters.mapped.add(part.mapped_kind(), nr_pages.into(), 0);
    }

    fn after_removal(&mut self, id: FolioId, change: Change) {
        self.counters.mapcounts_cleared += change.updates;
        count(&mut self.counters.mapped, self.folios.get(id).mapped_kind(), &change);
        if change.is_partially_mapped {
            self.became_partially_mapped(id);
        }
    }

    /// Handles a page that lost its last mapping (G.2.1).
    pub(crate) fn became_partially_mapped(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        if !folio.is_anon()
            || folio.order < MIN_LARGE_ORDER
            || folio.is_partially_mapped
            || folio.swap != SwapState::Outside
        {
            return;
        }
        folio.is_partially_mapped = true;
        let order = folio.order;
        self.deferred.push(id, folio);
        let size = self.counters.size_mut(order);
        size.split_deferred += 1;
        size.nr_anon_partially_mapped += 1;
    }

    fn put_unmapped(&mut self, id: FolioId, nr: u64) {
        let folio = self.folios.get(id);
        if folio.refs == nr {
            self.counters.nr_unmapped_freed += 1;
            self.counters.nr_unmapped_freed_pages += folio.nr_pages();
        }
        self.put(id, nr);
    }

    pub(crate) fn put(&mut self, id: FolioId, nr: u64) {
        let folio = self.folios.get_mut(id);
        folio.refs -= nr;
        if folio.refs > 0 {
            self.drop_unmapped_cache(id);
            return;
        }
        self.free_unused(id);
    }

    /// Frees a new folio that nothing refers to.
    pub(crate) fn free_unused(&mut self, id: FolioId) {
        let folio = self.take(id);
        self.buddy.free(folio.pfn, folio.order);
    }

    /// Removes a folio from the table, the queue and the counts. Its frames stay allocated.
    pub(crate) fn take(&mut self, id: FolioId) -> Folio {
        let mut folio = self.folios.remove(id);
        self.deferred.remove(&mut folio);
        if let Owner::Anon { .. } = folio.owner {
            let size = self.counters.size_mut(folio.order);
            size.nr_anon -= 1;
            size.nr_anon_partially_mapped -= u64::from(folio.is_partially_mapped);
            self.folios.frames_mut().clear(Flag::Exclusive, folio.pfn, folio.nr_pages());
        }
        folio
    }
}
