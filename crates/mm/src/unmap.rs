//! Taking mappings away: munmap, `MADV_DONTNEED`, exit (BEHAVIOUR.md G.1).

use crate::memory::Memory;
use crate::pgtable::{Cleared, LeafKind, PageTable};
use crate::ram::Ram;
use crate::space::MmId;
use crate::units::Vpn;

impl<R: Ram> Memory<R> {
    /// Ends a process: everything it maps is unmapped.
    pub fn exit(&mut self, mm: MmId) {
        let areas: Vec<_> = self.space(mm).vmas.iter().map(|vma| (vma.start, vma.end)).collect();
        for (start, end) in areas {
            self.unmap_pages(mm, start, end);
        }
        self.space_mut(mm).is_dead = true;
    }

    /// Removes areas and pages of `[start, end)`.
    pub(crate) fn unmap_pages(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        if start >= end {
            return;
        }
        let is_mapped = !self.space_mut(mm).vmas.remove(start, end).is_empty();
        if is_mapped {
            self.zap(mm, start, end);
            self.free_tables(mm, start, end);
        }
    }

    /// Frees the PTE tables that no area needs any more: those between the neighbouring areas.
    fn free_tables(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        let space = self.space_mut(mm);
        let floor = space.vmas.last_before(start).map_or(Vpn(0), |vma| vma.end);
        let ceiling = space.vmas.first_from(end).map_or(PageTable::VPN_END, |vma| vma.start);
        let pmd = space.table.pmd_order();
        let floor = floor.max(Vpn(pmd.round_down(start.0)));
        let ceiling = ceiling.min(Vpn(pmd.round_up(end.0)));
        space.table.free_empty_tables(floor, ceiling.0 - floor.0);
    }

    /// Removes the pages of `[start, end)`, the areas stay.
    pub(crate) fn zap(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        let nr_pages = end.0 - start.0;
        self.cut_pmds(mm, start, end);
        let mut cleared = Vec::new();
        let (space, folios) = self.space_and_folios(mm);
        space.table.clear_range(start, nr_pages, |pfn| folios.span_of(pfn), |c| cleared.push(c));
        if cleared.is_empty() {
            return;
        }
        self.flush(mm, start, nr_pages);
        for part in cleared {
            self.drop_cleared(part);
        }
    }

    fn drop_cleared(&mut self, part: Cleared) {
        // The zero page belongs to no folio.
        let Some(id) = self.cache.folios.of_pfn(part.pfn) else { return };
        let nr = if part.kind == LeafKind::Pmd { 1 } else { part.nr };
        self.cache.drop_maps(id, nr);
    }

    /// Drops PMD entries that an edge of `[start, end)` cuts. Only files are mapped by PMD entries
    /// here, and a file's PMD entry is not split but dropped: its pages fault again.
    pub(crate) fn cut_pmds(&mut self, mm: MmId, start: Vpn, end: Vpn) {
        for edge in [start, end] {
            let leaf = self.space(mm).table.leaf(edge);
            if let Some(leaf) = leaf
                && leaf.kind == LeafKind::Pmd
                && leaf.first_vpn != edge
            {
                self.drop_pmd(mm, edge);
            }
        }
    }

    /// Drops every PMD entry of the range.
    pub(crate) fn drop_pmds(&mut self, mm: MmId, start: Vpn, nr_pages: u64) {
        let leaves = self.space(mm).table.leaves(start, nr_pages);
        let pmds: Vec<_> =
            leaves.filter(|leaf| leaf.kind == LeafKind::Pmd).map(|leaf| leaf.first_vpn).collect();
        for vpn in pmds {
            self.drop_pmd(mm, vpn);
        }
    }

    /// Drops the PMD entry that maps `vpn`, if one does.
    pub(crate) fn drop_pmd(&mut self, mm: MmId, vpn: Vpn) {
        let Some(leaf) = self.space(mm).table.leaf(vpn) else { return };
        if leaf.kind != LeafKind::Pmd {
            return;
        }
        self.flush(mm, leaf.first_vpn, leaf.order.nr_pages());
        self.space_mut(mm).table.clear_pmd(vpn);
        let Some(id) = self.cache.folios.of_pfn(leaf.pfn) else {
            unreachable!("a PMD entry maps a folio")
        };
        self.cache.drop_maps(id, 1);
    }
}
