//! Evicting one folio (docs/behaviour G.5.1, G.5.2).
//!
//! Corresponds to: `shrink_folio_list`, `try_to_unmap`, `pageout`, `reclaim_pages`,
//! `reclaim_folio_list`.
//!
//! Reclaim of memory that a program advised as unneeded, without a second chance (docs/behaviour
//! P.4).

use crate::core::space::SwapEntry;
use crate::folio::frames::Flag;
use crate::folio::{Content, FolioId, Owner, SwapState};
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::ram::FilePages;
use crate::reclaim::zswap::{Placed, SwappedPages};
use crate::reclaim::{EvictOutcome, Victim};
use crate::rules::reclaim::AdvisedFolios;
use crate::units::{Order, PageRange, SwapSlot};

impl Memory {
    pub(super) fn evict(&mut self, id: FolioId) -> EvictOutcome {
        if let Some(outcome) = self.busy(id) {
            return outcome;
        }
        match self.decided_victim(id) {
            Victim::Done(outcome) => outcome,
            Victim::Own => self.take(id),
            Victim::Evict => {
                let outcome = self.take(id);
                self.count_taken(outcome);
                outcome
            }
        }
    }

    /// Evicts a folio that the policy chose itself.
    pub(super) fn evict_as_chosen(&mut self, id: FolioId) -> EvictOutcome {
        self.busy(id).unwrap_or_else(|| self.take(id))
    }

    /// What becomes of a folio that is in use otherwise; `None` if it is not.
    fn busy(&mut self, id: FolioId) -> Option<EvictOutcome> {
        let folio = self.core.folios.get(id);
        if folio.is_locked || folio.is_under_writeback {
            return Some(EvictOutcome::Keep);
        }
        if folio.has_extra_refs() {
            return Some(self.keep_held(id));
        }
        self.is_locked_in(id).then_some(EvictOutcome::Activate)
    }

    /// An unsplittable large folio is skipped for long (G.5.1); others may become free soon. By
    /// then anonymous memory has its slots, and all entries are gone, those of files too (P.5.2).
    fn keep_held(&mut self, id: FolioId) -> EvictOutcome {
        let folio = self.core.folios.get(id);
        let (order, slot) = (folio.order, folio.slot());
        if let Owner::File { mapping, index } = folio.owner
            && !self.is_locked_in(id)
            && let Some(entry) = self.core.find(mapping, index)
        {
            self.unmap_file_pages(entry);
            return EvictOutcome::Keep;
        }
        if !folio.is_anon() || folio.is_lazyfree {
            return EvictOutcome::Keep;
        }
        if slot.is_none() && folio.is_large() {
            return EvictOutcome::Activate;
        }
        if folio.pins > 0 || self.is_locked_in(id) {
            return EvictOutcome::Keep;
        }
        let Some(first) = slot.or_else(|| self.alloc_slots(order)) else {
            return EvictOutcome::Activate;
        };
        if slot.is_none() {
            if let Some(swap) = &mut self.core.pressure.swap {
                swap.store(first, Content::Compressible, None);
            }
            self.core.add_to_swap_cache(id, first);
        }
        let sites = self.pte_sites(id);
        // Nothing was written yet.
        let is_dirty = slot.is_none() || self.has_dirty_entry(&sites);
        self.core.folios.get_mut(id).is_dirty |= is_dirty;
        for site in sites {
            self.swap_site(id, &site);
        }
        EvictOutcome::Keep
    }

    fn pte_sites(&mut self, id: FolioId) -> Vec<Site> {
        for site in self.sites_of(id).iter().filter(|site| site.is_pmd) {
            self.split_pmd(site.mm, site.vpn);
        }
        self.sites_of(id)
    }

    fn take(&mut self, id: FolioId) -> EvictOutcome {
        let folio = self.core.folios.get(id);
        match folio.owner {
            Owner::Detached => EvictOutcome::Keep,
            Owner::Anon { .. } if folio.is_lazyfree => self.evict_lazyfree(id),
            Owner::Anon { .. } => self.evict_anon(id),
            Owner::File { mapping, index } if folio.is_swapbacked => {
                self.evict_shmem(id, FilePages { file: mapping, index })
            }
            Owner::File { mapping, index } => {
                self.evict_file(id, FilePages { file: mapping, index })
            }
        }
    }

    /// Unmaps and frees the whole folio (G.5.2). A dirty one is left to the flusher (P.6.2).
    fn evict_file(&mut self, id: FolioId, FilePages { file, index }: FilePages) -> EvictOutcome {
        let Some(entry) = self.core.find(file, index) else {
            unreachable!("the page cache has the folios that it owns")
        };
        self.unmap_file_pages(entry);
        let folio = self.core.folios.get(id);
        if folio.is_dirty {
            self.core.counters.reclaim.nr_vmscan_immediate_reclaim += folio.nr_pages();
            self.core.folios.lru_mut().marks_mut(id).is_reclaim = true;
            return EvictOutcome::Activate;
        }
        // Held by the activation batch: evictable once that is drained. Differs: anonymous memory
        // in the batch is evicted anyway; no recording shows that case.
        if self.core.folios.lru().marks(id).is_activating {
            return EvictOutcome::Keep;
        }
        self.core.counters.reclaim.nr_evicted_file += 1;
        let shadow = self.core.evict_shadow(id);
        let range = PageRange { first: index.0, end: entry.end() };
        self.core.with_shadows(file, |shadows| shadows.record(range, shadow));
        self.core.remove(file, entry);
        EvictOutcome::Freed
    }

    /// Splits a partially mapped folio first (up to 6.9: one without a PMD entry). A whole one goes to
    /// contiguous slots, or is split if there are none, even without swap space (G.5.1).
    fn evict_anon(&mut self, id: FolioId) -> EvictOutcome {
        let folio = self.core.folios.get(id);
        let order = folio.order;
        if let Some(first) = folio.slot() {
            return self.swap_out(id, first);
        }
        let is_split_first = match self.rules.reclaim.advised {
            AdvisedFolios::Split => folio.is_large() && folio.pmd_maps() == 0,
            AdvisedFolios::Whole => folio.is_partially_mapped,
        };
        if is_split_first {
            return self.split_for_reclaim(id);
        }
        match self.alloc_slots(order) {
            Some(first) => self.swap_out(id, first),
            None if order == Order::ZERO => EvictOutcome::Activate,
            None => self.split_for_reclaim(id),
        }
    }

    fn split_for_reclaim(&mut self, id: FolioId) -> EvictOutcome {
        if self.split(id, Order::ZERO).is_ok() {
            EvictOutcome::Split
        } else {
            EvictOutcome::Activate
        }
    }

    fn alloc_slots(&mut self, order: Order) -> Option<SwapSlot> {
        let slot = self.core.pressure.swap.as_mut()?.alloc(order);
        let is_pmd = order == self.rules.page.pmd_order();
        let counters = &mut self.core.counters.reclaim;
        let count = match (slot.is_some(), is_pmd) {
            _ if order == Order::ZERO => return slot,
            (true, true) => &mut counters.thp_swpout,
            (true, false) => &mut counters.swpout_large,
            (false, true) => &mut counters.thp_swpout_fallback,
            (false, false) => &mut counters.swpout_large_fallback,
        };
        *count += 1;
        slot
    }

    fn swap_out(&mut self, id: FolioId, first: SwapSlot) -> EvictOutcome {
        let sites = self.pte_sites(id);
        let shadow = self.core.evict_shadow(id);
        let folio = self.core.folios.get(id);
        let is_cached = folio.slot().is_some();
        let is_written = !is_cached || folio.is_dirty || self.has_dirty_entry(&sites);
        let placed = if is_written { self.write_to_slots(id, first) } else { Placed::InMemory };
        if !is_cached {
            self.core.add_to_swap_cache(id, first);
        }
        let folio = self.core.folios.get_mut(id);
        folio.refs += 1;
        // The entries' dirty bits are gone, and the slots do not hold the content.
        folio.is_dirty = placed == Placed::Nowhere;
        for site in sites {
            self.swap_site(id, &site);
        }
        let outcome = match placed {
            Placed::Nowhere => EvictOutcome::Activate,
            placed if self.is_write_awaited(placed) => EvictOutcome::Keep,
            _ => EvictOutcome::Freed,
        };
        if outcome != EvictOutcome::Freed {
            self.core.put(id, 1);
            return outcome;
        }
        self.core.leave_swap_cache(id, Some(shadow));
        self.core.put(id, 1);
        EvictOutcome::Freed
    }

    fn write_to_slots(&mut self, id: FolioId, first: SwapSlot) -> Placed {
        let folio = self.core.folios.get(id);
        let (pfn, nr, is_cached) = (folio.pfn, folio.nr_pages(), folio.slot().is_some());
        let (group, index) = (folio.group, folio.anon_index());
        for by in 0..nr {
            let content = self.core.folios.content(pfn.plus(by));
            self.core.ram.swap_out(pfn.plus(by), first.plus(by).0);
            let Some(swap) = &mut self.core.pressure.swap else { return Placed::Nowhere };
            if is_cached {
                swap.note_content(first.plus(by), content);
            } else {
                swap.store(first.plus(by), content, None);
            }
        }
        self.place_swapped(SwappedPages { first, nr, group, index })
    }

    fn swap_site(&mut self, id: FolioId, site: &Site) {
        let folio = self.core.folios.get(id);
        let (pfn, Some(first)) = (folio.pfn, folio.slot()) else { return };
        let is_exclusive: Vec<bool> =
            (0..site.nr).map(|by| self.core.folios.is_exclusive(site.pfn.plus(by))).collect();
        self.zap(site.mm, site.vpn, site.vpn.plus(site.nr));
        // From here on, the entries say so, and a fork can clear it there.
        self.core.folios.frames_mut().clear(Flag::Exclusive, site.pfn, site.nr);
        for (by, is_exclusive) in (0..).zip(is_exclusive) {
            let slot = first.plus(site.pfn.0 - pfn.0 + by);
            let entry = SwapEntry { slot, is_exclusive };
            self.space_mut(site.mm).swapped.insert(site.vpn.plus(by), entry);
            if let Some(swap) = &mut self.core.pressure.swap {
                swap.get(slot);
            }
        }
    }

    fn evict_shmem(&mut self, id: FolioId, FilePages { file, index }: FilePages) -> EvictOutcome {
        let order = self.core.folios.get(id).order;
        if !self.can_swap() {
            return self.unmap_shmem(id, FilePages { file, index });
        }
        let Some(first) = self.alloc_slots(order) else {
            let is_large = order > self.core.mapping(file).orders.min;
            return if is_large { self.split_for_reclaim(id) } else { EvictOutcome::Activate };
        };
        let Some(entry) = self.core.find(file, index) else {
            unreachable!("the page cache has the folios that it owns")
        };
        let shadow = self.core.evict_shadow(id);
        let folio = self.core.folios.get(id);
        let (pfn, nr, group) = (folio.pfn, order.nr_pages(), folio.group);
        let slots = (0..nr).map(|by| first.plus(by));
        if let Some(swap) = &mut self.core.pressure.swap {
            slots.for_each(|slot| swap.store(slot, Content::Compressible, Some(shadow)));
        }
        if self.place_swapped(SwappedPages { first, nr, group, index: None }) == Placed::Nowhere {
            self.core.drop_unused_slots(first, nr);
            return EvictOutcome::Activate;
        }
        self.unmap_file_pages(entry);
        for by in 0..nr {
            let slot = first.plus(by);
            self.core.ram.write_out(pfn.plus(by), 1, FilePages { file, index: index.plus(by) });
            if let Some(swap) = &mut self.core.pressure.swap {
                swap.get(slot);
            }
            self.core.mapping_mut(file).swapped.insert(index.plus(by), slot);
        }
        self.core.remove(file, entry);
        EvictOutcome::Freed
    }

    /// Without swap space, shared memory is unmapped before it turns out that it must stay; a page
    /// that nothing was stored to is freed.
    fn unmap_shmem(&mut self, id: FolioId, FilePages { file, index }: FilePages) -> EvictOutcome {
        let Some(entry) = self.core.find(file, index) else {
            unreachable!("the page cache has the folios that it owns")
        };
        self.unmap_file_pages(entry);
        if self.core.folios.get(id).is_dirty || self.core.pressure.swap.is_some() {
            return EvictOutcome::Activate;
        }
        self.core.remove(file, entry);
        EvictOutcome::Freed
    }

    fn evict_lazyfree(&mut self, id: FolioId) -> EvictOutcome {
        let sites = self.sites_of(id);
        // Stored to after `MADV_FREE`: the program still needs it (G.2.5).
        if self.has_dirty_entry(&sites) {
            self.core.folios.get_mut(id).is_lazyfree = false;
            return EvictOutcome::Activate;
        }
        let nr = self.core.folios.get(id).nr_pages();
        self.core.counters.reclaim.pglazyfreed += nr;
        let folio = self.core.folios.get_mut(id);
        folio.swap = SwapState::Discarded;
        folio.refs += 1;
        for site in sites {
            self.zap(site.mm, site.vpn, site.vpn.plus(site.nr));
        }
        self.core.put(id, 1);
        EvictOutcome::Freed
    }
}

impl Memory {
    pub(crate) fn reclaim_folios(&mut self, folios: Vec<FolioId>) {
        self.core.pressure.is_advised = true;
        for id in self.examine_in_order(folios, Self::evict).kept {
            self.core.folios.putback(id);
        }
        self.core.pressure.is_advised = false;
    }
}
