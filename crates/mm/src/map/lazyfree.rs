//! `MADV_FREE`: pages whose content may be discarded (docs/behaviour G.2.5).
//!
//! Answers to: `madvise_free_pte_range`, `madvise_free_huge_pmd`, `folio_mark_lazyfree`.
//!
//! Base pages shared by fork also qualify, as long as only page tables record that they are dirty.
//! A lazy-free page keeps its content until it is stored to, unmapped or advised otherwise.

use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{LeafKind, Protection, PteFlags};
use crate::units::{MmId, Order, Vpn};

impl Memory {
    /// Marks the anonymous pages of `[start, end)`: their PTEs become clean and old. Splits a large
    /// folio that is only partly covered, unless other processes may map it.
    pub(crate) fn free_lazily(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        self.drop_swapped(mm, start, end.0 - start.0);
        let mut at = start;
        while at < end
            && let Some(vpn) = self.space(mm).table.first_set_in(at, end.0 - at.0)
        {
            at = self.free_lazily_at(mm, vpn, end);
        }
    }

    fn free_lazily_at(&mut self, mm: MmId, vpn: Vpn, end: Vpn) -> Vpn {
        let Some(leaf) = self.space(mm).table.leaf(vpn) else { return vpn.plus(1) };
        let is_pmd = leaf.kind == LeafKind::Pmd;
        let id = match self.core.folios.of_pfn(leaf.pfn_of(vpn)) {
            Some(id) if self.core.folios.get(id).is_anon() => id,
            _ => return if is_pmd { leaf.end_vpn().min(end) } else { vpn.plus(1) },
        };
        let folio = self.core.folios.get(id).clone();
        let nr = if is_pmd {
            if leaf.first_vpn == vpn { folio.nr_pages().min(end.0 - vpn.0) } else { 1 }
        } else {
            let table = &self.space(mm).table;
            table.batch(vpn, end.0 - vpn.0, folio.span(), PteFlags::NONE).nr
        };
        let is_whole = nr == folio.nr_pages();
        if !is_whole {
            let next = if is_pmd { leaf.end_vpn().min(end) } else { vpn.plus(nr) };
            let is_split = !self.maybe_mapped_shared(id) && self.split(id, Order::ZERO).is_ok();
            // The folio is now split into small ones: retry the same page.
            return if is_split { vpn } else { next };
        }
        let is_kept = if is_pmd {
            self.maybe_mapped_shared(id)
        } else {
            // Must be exclusive to the process only if the folio itself is dirty.
            (folio.is_dirty || folio.is_in_swap_cache) && folio.maps() != nr
        };
        // The swap slots must be freed first.
        if !is_kept && (folio.slot.is_none() || self.core.free_swap_cache(id)) {
            self.mark_lazyfree(mm, vpn, nr, id);
        }
        vpn.plus(nr)
    }

    fn mark_lazyfree(&mut self, mm: MmId, vpn: Vpn, nr: u64, id: FolioId) {
        let folio = self.core.folios.get_mut(id);
        (folio.is_lazyfree, folio.is_dirty) = (true, false);
        self.core.give_up(id);
        self.flush(mm, vpn, nr);
        let protection = Protection { set: PteFlags::NONE, clear: PteFlags::ACCESSED_DIRTY };
        let (space, folios) = self.space_and_folios(mm);
        space.table.protect_range(vpn, nr, protection, |pfn| folios.span_of(pfn));
    }
}
