//! Removing mappings: munmap, `MADV_DONTNEED` and exit (docs/behaviour G.1).
//!
//! Corresponds to: `unmap_page_range`, `zap_pte_range`, `zap_present_ptes`, `zap_huge_pmd`,
//! `free_pgtables`, `exit_mmap`, `__split_huge_pmd`.

use crate::core::Core;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{Cleared, FolioSpan, LeafKind, PageTable, PteFlags, Zap};
use crate::rules::anon::Batching;
use crate::units::PageRange;
use crate::units::VpnRange;
use crate::units::{MmId, Pfn, Vpn};
use crate::vma::{Backing, Vma};

impl Memory {
    /// Ends a process and unmaps all its areas.
    pub fn exit(&mut self, mm: MmId) {
        let areas: Vec<_> = self.space(mm).vmas.iter().map(|vma| (vma.start, vma.end)).collect();
        for (start, end) in areas {
            self.unmap_pages(mm, start, end);
        }
        self.allow_write(mm);
        let table = self.new_table();
        let space = self.space_mut(mm);
        space.is_dead = true;
        space.uses_huge_zero = false;
        space.table = table;
        self.khugepaged_exit(mm);
        self.core.processes.end(mm);
    }

    pub(crate) fn unmap_pages(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        if start >= end {
            return;
        }
        let removed = self.space_mut(mm).vmas.remove(start, end);
        if removed.is_empty() {
            return;
        }
        self.count_walk(mm, VpnRange { start, end }, removed.len());
        for vma in &removed {
            if vma.huge().is_some() {
                self.zap_huge(mm, vma, vma.start, vma.end);
            } else {
                self.forget_unrecent(mm, vma);
                self.zap(mm, vma.start, vma.end);
            }
        }
        self.free_tables(mm, start, end);
        for vma in removed {
            self.release_anon_shared(&vma);
            self.close_huge(&vma);
            self.release_area(&vma);
        }
    }

    /// Accesses through an area with `MADV_RANDOM` or `MADV_SEQUENTIAL` do not count as use.
    fn forget_unrecent(&mut self, mm: MmId, vma: &Vma) {
        if self.rules.reclaim.recency.counts(vma.advice.access) {
            return;
        }
        let (space, core) = self.space_and_core(mm);
        for leaf in space.table.leaves(vma.start, vma.nr_pages()) {
            let nr_pages = leaf.end_vpn().0 - leaf.first_vpn.0;
            let _ = core.folios.take_accessed_in(leaf.pfn, nr_pages);
        }
    }

    fn release_anon_shared(&mut self, vma: &Vma) {
        let Backing::File { open, .. } = vma.backing else { return };
        let file = self.open_file(open).mapping;
        if self.core.mapping(file).is_anon_shared()
            && self.mapped_ranges(file, PageRange { first: 0, end: u64::MAX }).is_empty()
        {
            self.truncate(file, 0);
        }
    }

    pub(crate) fn free_tables(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        let space = self.space_mut(mm);
        let floor = space.vmas.last_before(start).map_or(Vpn(0), |vma| vma.end);
        let ceiling = space.vmas.first_from(end).map_or(PageTable::VPN_END, |vma| vma.start);
        let pmd = space.table.pmd_order();
        let (lowest, highest) = (Vpn(pmd.round_up(floor.0)), Vpn(pmd.round_down(ceiling.0)));
        let floor = floor.max(Vpn(pmd.round_down(start.0)));
        let ceiling = ceiling.min(Vpn(pmd.round_up(end.0)));
        space.table.free_empty_tables(floor, ceiling.0 - floor.0);
        space.table.free_pmd_tables(lowest, highest);
    }

    pub(crate) fn zap(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        self.cut_pmds(mm, start, end);
        let nr_pages = end.0 - start.0;
        self.drop_swapped(mm, start, nr_pages);
        let batching = self.rules.anon.batching;
        let (space, core) = self.space_and_core(mm);
        let mut zapping = Zapping { core, mm, batching, last: None, has_cleared: false };
        space.table.zap_range(start, nr_pages, &mut zapping);
        if zapping.has_cleared {
            self.flush(mm, start, nr_pages);
        }
    }

    pub(crate) fn drop_swapped(&mut self, mm: MmId, start: Vpn, nr_pages: u64) {
        let taken = self.space_mut(mm).swapped.take(start, nr_pages);
        for entry in taken.into_values() {
            let _ = self.core.put_slot(entry.slot);
        }
    }

    pub(crate) fn cut_pmds(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        for edge in [start, end] {
            let leaf = self.space(mm).table.leaf(edge);
            if let Some(leaf) = leaf
                && leaf.kind == LeafKind::Pmd
                && leaf.first_vpn != edge
            {
                self.split_pmd(mm, edge);
            }
        }
    }

    pub(crate) fn split_pmds(&mut self, mm: MmId, start: Vpn, nr_pages: u64) {
        let leaves = self.space(mm).table.leaves(start, nr_pages);
        let pmds: Vec<_> =
            leaves.filter(|leaf| leaf.kind == LeafKind::Pmd).map(|leaf| leaf.first_vpn).collect();
        for vpn in pmds {
            self.split_pmd(mm, vpn);
        }
    }

    pub(crate) fn split_pmd(&mut self, mm: MmId, vpn: Vpn) {
        let Some(leaf) = self.space(mm).table.leaf(vpn) else { return };
        if leaf.kind != LeafKind::Pmd {
            return;
        }
        self.flush(mm, leaf.first_vpn, leaf.order.nr_pages());
        self.reopen_whole(mm, &leaf);
        if leaf.flags.contains(PteFlags::SPECIAL) {
            let zero = self.zero_pfn;
            self.space_mut(mm).table.split_zero_pmd(vpn, zero);
            return;
        }
        let Some(id) = self.core.folios.of_pfn(leaf.pfn) else {
            unreachable!("I3: an entry maps a folio or is special")
        };
        if self.core.folios.get(id).is_anon() {
            self.core.folios.get_mut(id).is_dirty |= leaf.flags.contains(PteFlags::DIRTY);
            self.core.counters.thp_split_pmd += 1;
            self.core.pmd_to_ptes(id, mm);
            self.space_mut(mm).table.split_pmd(vpn);
        } else {
            if leaf.flags.contains(PteFlags::DIRTY) {
                self.core.set_dirty(id);
            }
            self.space_mut(mm).table.clear_pmd(vpn);
            self.core.remove_pmd(id, mm);
        }
    }
}

/// Differs: all entries of a page share one accessed bit, so another process's bit is cleared too.
struct Zapping<'a> {
    core: &'a mut Core,
    mm: MmId,
    batching: Batching,
    last: Option<FolioId>,
    has_cleared: bool,
}

impl Zap for Zapping<'_> {
    fn folio_of(&mut self, pfn: Pfn) -> FolioSpan {
        self.last = self.core.folios.of_pfn(pfn);
        match self.last {
            Some(id) => self.core.folios.get(id).span(),
            None => FolioSpan::single(pfn),
        }
    }

    fn cleared(&mut self, part: Cleared) {
        self.has_cleared = true;
        if part.flags.contains(PteFlags::SPECIAL) {
            return;
        }
        let id =
            if part.kind == LeafKind::Pmd { self.core.folios.of_pfn(part.pfn) } else { self.last };
        let Some(id) = id else { unreachable!("I3: an entry maps a folio or is special") };
        if part.flags.contains(PteFlags::DIRTY) {
            // The entry's flags move to the file folio (G.1.1).
            if !self.core.folios.get(id).is_anon() {
                self.core.set_dirty(id);
            }
        }
        self.pass_on_access(id, &part);
        match (part.kind, self.batching) {
            (LeafKind::Pmd, _) => self.core.remove_pmd(id, self.mm),
            (_, Batching::Folio) => self.core.remove_ptes(id, self.mm, part.pfn, part.nr),
            (_, Batching::PageByPage) => {
                for by in 0..part.nr {
                    self.core.remove_ptes(id, self.mm, part.pfn.plus(by), 1);
                }
            }
        }
    }
}

impl Zapping<'_> {
    fn pass_on_access(&mut self, id: FolioId, part: &Cleared) {
        let folio = self.core.folios.get(id);
        if folio.is_anon() {
            return;
        }
        let nr_pages = if part.kind == LeafKind::Pmd { folio.nr_pages() } else { part.nr };
        let nr_accessed = self.core.folios.take_accessed_in(part.pfn, nr_pages);
        let nr_marks = match self.batching {
            Batching::PageByPage if part.kind != LeafKind::Pmd => nr_accessed,
            Batching::PageByPage | Batching::Folio => 1,
        };
        (0..nr_marks).for_each(|_| self.core.mark_accessed(id));
    }
}
