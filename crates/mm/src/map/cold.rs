//! `MADV_COLD` and `MADV_PAGEOUT`: pages that a program will not need soon (docs/behaviour P.4).
//!
//! Corresponds to: `madvise_cold_or_pageout_pte_range`.
//!
//! Differs: the caller is assumed to have write permission on every file that it maps. Without it,
//! a kernel would reclaim only the process's private copies of that file's pages.

use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{Leaf, LeafKind, Protection, PteFlags};
use crate::rules::reclaim::AdvisedFolios;
use crate::units::{MmId, Order, Vpn, VpnRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unneeded {
    Cold,
    Out,
}

#[derive(Clone, Copy)]
struct ColdRun {
    id: FolioId,
    vpn: Vpn,
    nr: u64,
}

enum Next {
    Skip(Vpn),
    Again,
    Take(ColdRun),
}

impl Memory {
    /// Applies the advice to `range`, which is inside one area, one PTE table at a time. Skips
    /// empty tables, because a range can be as large as the address space.
    pub(super) fn give_up_range(&mut self, mm: MmId, range: VpnRange, how: Unneeded) {
        self.core.drain_lru();
        let pmd = self.space(mm).table.pmd_order();
        let mut start = range.start;
        while start < range.end
            && let Some(first) = self.space(mm).table.first_set_in(start, range.end.0 - start.0)
        {
            self.core.work.add(1);
            let end = Vpn(pmd.round_down(first.0) + pmd.nr_pages()).min(range.end);
            let taken = self.give_up_table(mm, VpnRange { start: first, end }, how);
            self.reclaim_folios(taken);
            start = end;
        }
    }

    fn give_up_table(
        &mut self,
        mm: MmId,
        VpnRange { start, end }: VpnRange,
        how: Unneeded,
    ) -> Vec<FolioId> {
        let mut taken = Vec::new();
        let mut at = start;
        while at < end
            && let Some(vpn) = self.space(mm).table.first_set_in(at, end.0 - at.0)
        {
            at = match self.unneeded_at(mm, vpn, end) {
                Next::Skip(next) => next,
                Next::Again => vpn,
                Next::Take(run) => {
                    self.give_up_folio(mm, run, how, &mut taken);
                    run.vpn.plus(run.nr)
                }
            };
        }
        taken
    }

    fn unneeded_at(&mut self, mm: MmId, vpn: Vpn, end: Vpn) -> Next {
        let Some(leaf) = self.space(mm).table.leaf(vpn) else { return Next::Skip(vpn.plus(1)) };
        let is_pmd = leaf.kind == LeafKind::Pmd;
        let leaf_end = leaf.end_vpn().min(end);
        let is_special = leaf.flags.contains(PteFlags::SPECIAL);
        let holder = self.core.folios.of_pfn(leaf.pfn_of(vpn)).filter(|_| !is_special);
        let Some(id) = holder else {
            return Next::Skip(if is_pmd { leaf_end } else { vpn.plus(1) });
        };
        let nr = self.entries_of(mm, &leaf, id, VpnRange { start: vpn, end });
        let folio = self.core.folios.get(id);
        let is_whole = nr == folio.nr_pages() && !self.is_split_for(is_pmd, id);
        let next = if is_pmd { leaf_end } else { vpn.plus(nr) };
        if is_pmd && self.maybe_mapped_shared(id) {
            return Next::Skip(leaf_end);
        }
        if !is_whole {
            let is_split = !self.maybe_mapped_shared(id) && self.split(id, Order::ZERO).is_ok();
            return if is_split { Next::Again } else { Next::Skip(next) };
        }
        // Other processes need it, or it is already being reclaimed.
        let maps = if is_pmd { 1 } else { nr };
        if folio.maps() != maps || self.core.folios.lru().list_of(id).is_none() {
            return Next::Skip(next);
        }
        Next::Take(ColdRun { id, vpn, nr })
    }

    fn entries_of(&self, mm: MmId, leaf: &Leaf, id: FolioId, range: VpnRange) -> u64 {
        let folio = self.core.folios.get(id);
        let nr_max = range.end.0 - range.start.0;
        if leaf.kind == LeafKind::Pmd {
            return if leaf.first_vpn == range.start { folio.nr_pages().min(nr_max) } else { 1 };
        }
        self.space(mm).table.batch(range.start, nr_max, folio.span(), PteFlags::NONE).nr
    }

    /// Up to 6.9, a PTE-mapped large folio is split even if the advice covers all of it.
    fn is_split_for(&self, is_pmd: bool, id: FolioId) -> bool {
        !is_pmd
            && self.rules.reclaim.advised == AdvisedFolios::Split
            && self.core.folios.get(id).is_large()
    }

    fn give_up_folio(&mut self, mm: MmId, run: ColdRun, how: Unneeded, taken: &mut Vec<FolioId>) {
        self.core.cool(run.id);
        if how == Unneeded::Out {
            if self.core.folios.isolate(run.id) {
                taken.push(run.id);
            }
            return;
        }
        self.flush(mm, run.vpn, run.nr);
        let protection = Protection { set: PteFlags::NONE, clear: PteFlags::YOUNG };
        let (space, folios) = self.space_and_folios(mm);
        space.table.protect_range(run.vpn, run.nr, protection, |pfn| folios.span_of(pfn));
        let _ = self.core.folios.take_accessed(run.id);
        self.core.deactivate(run.id);
    }
}
