//! Mapping counts of folios: what a page-table entry that comes or goes changes in its folio
//! (BEHAVIOUR.md F.3, E.3.7, G.2.1).
//!
//! Owns references and counts of mappings, `AnonExclusive` of new and remapped pages, and the
//! moment at which a folio becomes partially mapped. Does not own the entries themselves.
//!
//! Invariants:
//! - I1: a mapping takes its reference first and is counted then; it is uncounted first and gives
//!   its reference back then. So `refs >= maps` always.
//! - I2: a folio without references is freed.

use crate::folio::{FolioId, Owner};
use crate::frames::Flag;
use crate::owners::Owners;
use crate::page_cache::PageCache;
use crate::ram::Ram;
use crate::rules::anon::{MIN_LARGE_ORDER, Mapcount};
use crate::space::MmId;
use crate::units::Pfn;

/// How a folio is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A PTE for each page.
    Ptes,
    /// One PMD entry.
    Pmd,
}

impl<R: Ram> PageCache<R> {
    /// First mapping of a new anonymous folio, exclusive to `mm` (F.3.3).
    pub(crate) fn map_new_anon(&mut self, id: FolioId, mm: MmId, level: Level) {
        let folio = self.folios.get_mut(id);
        let (pfn, nr) = (folio.pfn, folio.nr_pages());
        let has_page_maps = folio.is_large() && self.mapcount == Mapcount::PerPage;
        let (maps, nr_exclusive) = match level {
            Level::Ptes => (nr, nr),
            Level::Pmd => (1, 1),
        };
        folio.refs += maps;
        folio.maps = maps;
        if folio.is_large() {
            folio.owners = Owners::of(mm, maps);
        }
        match level {
            Level::Pmd => folio.pmd_maps = 1,
            Level::Ptes if has_page_maps => {
                folio.nr_pages_mapped = nr;
                self.folios.frames_mut().add_maps(pfn, nr);
            }
            Level::Ptes => {}
        }
        self.folios.frames_mut().set(Flag::Exclusive, pfn, nr_exclusive);
    }

    /// `nr` PTEs of `mm` map the pages of a folio from `pfn` on (F.3.1).
    pub(crate) fn add_ptes(&mut self, id: FolioId, mm: MmId, pfn: Pfn, nr: u64) {
        let folio = self.folios.get_mut(id);
        folio.refs += nr;
        folio.maps += nr;
        if !folio.is_large() {
            return;
        }
        folio.owners.add(mm, nr, folio.maps);
        if self.mapcount == Mapcount::PerPage {
            let nr_first = self.folios.frames_mut().add_maps(pfn, nr);
            self.folios.get_mut(id).nr_pages_mapped += nr_first;
        }
    }

    /// A PMD entry of `mm` maps a folio (F.3.2).
    pub(crate) fn add_pmd(&mut self, id: FolioId, mm: MmId) {
        let folio = self.folios.get_mut(id);
        folio.refs += 1;
        folio.maps += 1;
        folio.pmd_maps += 1;
        folio.owners.add(mm, 1, folio.maps);
    }

    /// `nr` PTEs of `mm` that mapped the pages from `pfn` on are gone (F.3.4, F.5.3).
    pub(crate) fn remove_ptes(&mut self, id: FolioId, mm: MmId, pfn: Pfn, nr: u64) {
        let folio = self.folios.get_mut(id);
        folio.maps -= nr;
        if folio.is_large() {
            folio.owners.remove(mm, nr, folio.maps);
            let (maps, nr_pages, pmd_maps) = (folio.maps, folio.nr_pages(), folio.pmd_maps);
            let is_partial = match self.mapcount {
                Mapcount::PerPage => {
                    let nr_last = self.folios.frames_mut().drop_maps(pfn, nr);
                    let folio = self.folios.get_mut(id);
                    folio.nr_pages_mapped -= nr_last;
                    pmd_maps == 0 && nr_last > 0 && folio.nr_pages_mapped > 0
                }
                Mapcount::PerFolio => pmd_maps == 0 && maps > 0 && maps < nr_pages,
            };
            if is_partial {
                self.became_partially_mapped(id);
            }
        }
        self.put(id, nr);
    }

    /// A PMD entry of `mm` is gone (F.3.5, F.5.3).
    pub(crate) fn remove_pmd(&mut self, id: FolioId, mm: MmId) {
        let folio = self.folios.get_mut(id);
        folio.maps -= 1;
        folio.pmd_maps -= 1;
        folio.owners.remove(mm, 1, folio.maps);
        let nr_left = match self.mapcount {
            Mapcount::PerPage => folio.nr_pages_mapped,
            Mapcount::PerFolio => folio.maps,
        };
        if folio.pmd_maps == 0 && nr_left > 0 && nr_left < folio.nr_pages() {
            self.became_partially_mapped(id);
        }
        self.put(id, 1);
    }

    /// The PMD entry of `mm` became a PTE for each page (F.3.6).
    pub(crate) fn pmd_to_ptes(&mut self, id: FolioId, mm: MmId) {
        let folio = self.folios.get(id);
        let (pfn, nr) = (folio.pfn, folio.nr_pages());
        if folio.is_anon() && self.folios.is_exclusive(pfn) {
            self.folios.frames_mut().set(Flag::Exclusive, pfn, nr);
        }
        self.add_ptes(id, mm, pfn, nr);
        self.remove_pmd(id, mm);
    }

    /// G.2.1: some pages of the folio are mapped by nobody.
    fn became_partially_mapped(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        if !folio.is_anon() || folio.order < MIN_LARGE_ORDER || folio.is_partially_mapped {
            return;
        }
        folio.is_partially_mapped = true;
        let order = folio.order;
        self.deferred.push(id, folio);
        let size = self.counters.size_mut(order);
        size.split_deferred += 1;
        size.nr_anon_partially_mapped += 1;
    }

    /// Gives `nr` references back; the last one frees the folio.
    pub(crate) fn put(&mut self, id: FolioId, nr: u64) {
        let folio = self.folios.get_mut(id);
        folio.refs -= nr;
        if folio.refs > 0 {
            return;
        }
        let folio = self.take(id);
        self.buddy.free(folio.pfn, folio.order);
    }

    /// Takes a folio out of the table, the queue and the counts; its frames stay allocated.
    pub(crate) fn take(&mut self, id: FolioId) -> crate::folio::Folio {
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
