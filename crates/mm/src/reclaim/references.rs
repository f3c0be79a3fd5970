//! Whether a folio was accessed through page tables since reclaim last checked (docs/behaviour
//! P.2.3).
//!
//! Corresponds to: `folio_referenced`, `ptep_test_and_clear_young`.
//!
//! Each entry of anonymous memory has its own accessed bit: a child's entries are old after a fork,
//! and two processes that use a page count twice.
//!
//! Differs: all entries of a file page share one accessed bit, so two processes that use it count
//! once.

use std::collections::BTreeSet;

use crate::folio::FolioId;
use crate::folio::frames::Flag;
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::pgtable::PteFlags;
use crate::units::{MmId, Pfn, Vpn};

impl Memory {
    /// Counts the areas that accessed a folio since the last call, each once, however many pages it
    /// maps. Areas with `MADV_RANDOM` or `MADV_SEQUENTIAL` do not count.
    pub(super) fn take_references(&mut self, id: FolioId) -> u64 {
        let folio = self.core.folios.get(id);
        if folio.is_anon() {
            let sites = self.sites_of(id);
            let nr_areas = self.young_areas(&sites).len() as u64;
            self.clear_young_in(&sites);
            return nr_areas;
        }
        let nr_areas =
            if folio.is_large() || self.has_unrecent { self.file_areas(id) } else { u64::MAX };
        self.core.folios.take_accessed(id).min(nr_areas)
    }

    fn young_areas(&self, sites: &[Site]) -> BTreeSet<(MmId, Vpn)> {
        let mut areas = BTreeSet::new();
        for site in sites {
            let vmas = &self.space(site.mm).vmas;
            // A folio can be in several areas of a process.
            for part in vmas.overlapping(site.vpn, site.vpn.plus(site.nr)) {
                let by = part.start.0 - site.vpn.0;
                let (pfn, nr) = (site.pfn.plus(by), part.nr_pages());
                let part_site = Site { vpn: part.start, pfn, nr, ..*site };
                if self.rules.reclaim.recency.counts(part.advice.access)
                    && self.is_young_site(&part_site)
                    && let Some(area) = vmas.find(part.start)
                {
                    areas.insert((site.mm, area.start));
                }
            }
        }
        areas
    }

    fn file_areas(&self, id: FolioId) -> u64 {
        if self.is_old_file(id) {
            return 0;
        }
        let areas: Vec<_> = self.young_areas(&self.sites_of(id)).into_iter().collect();
        let of_process = areas.chunk_by(|one, other| one.0 == other.0);
        of_process.map(|areas| areas.len() as u64).max().unwrap_or(0)
    }

    /// Whether a page was accessed through the entry of `vpn`.
    pub(super) fn is_young(&self, mm: MmId, vpn: Vpn, pfn: Pfn) -> bool {
        if self.is_anon_page(pfn) {
            self.space(mm).table.pte(vpn).flags().contains(PteFlags::YOUNG)
        } else {
            self.core.folios.frames().get(Flag::Accessed, pfn)
        }
    }

    fn is_anon_page(&self, pfn: Pfn) -> bool {
        let folios = &self.core.folios;
        folios.of_pfn(pfn).is_some_and(|id| folios.get(id).is_anon())
    }

    /// Whether no entry of a file folio can be young.
    pub(super) fn is_old_file(&self, id: FolioId) -> bool {
        let folio = self.core.folios.get(id);
        let (pfn, nr) = (folio.pfn, folio.nr_pages());
        !folio.is_anon() && self.core.folios.frames().count(Flag::Accessed, pfn, nr) == 0
    }

    pub(super) fn is_young_site(&self, site: &Site) -> bool {
        (0..site.nr).any(|by| self.is_young(site.mm, site.vpn.plus(by), site.pfn.plus(by)))
    }

    pub(super) fn clear_young(&mut self, mm: MmId, vpn: Vpn, pfn: Pfn) {
        if self.is_anon_page(pfn) {
            let _ = self.space_mut(mm).table.test_and_clear_young(vpn);
        } else {
            self.core.folios.frames_mut().clear(Flag::Accessed, pfn, 1);
        }
    }

    pub(super) fn clear_young_in(&mut self, sites: &[Site]) {
        for site in sites {
            for by in 0..site.nr {
                self.clear_young(site.mm, site.vpn.plus(by), site.pfn.plus(by));
            }
        }
    }
}
