//! Unmapping, protecting and moving huge pages (docs/behaviour O.2.5, O.5).
//!
//! Corresponds to: `__unmap_hugepage_range`, `hugetlb_vm_op_close`, `hugetlb_change_protection`,
//! `move_hugetlb_page_tables`.

use crate::core::hugetlb::HugeOwner;
use crate::memory::Memory;
use crate::rules::anon::HugetlbDrop;
use crate::units::{MmId, Vpn, VpnRange};
use crate::vma::{Backing, HugeFileId, Prot, Sharing, Vma};

impl Memory {
    pub(crate) fn zap_huge(&mut self, mm: MmId, vma: &Vma, start: Vpn, end: Vpn) {
        let Some(area) = vma.huge() else { return };
        let rule = self.rules.anon.hugetlb_drop;
        let (space, core) = self.space_and_core(mm);
        let mut kept = space.huge.split_off(&start);
        let mut after = kept.split_off(&end);
        space.huge.append(&mut after);
        let has_zapped = !kept.is_empty();
        for (vpn, entry) in kept {
            core.work.add(1);
            let owner = core.processes.of(mm);
            let folio = core.hugetlb.folio_mut(entry.order, entry.pfn);
            let returns = match rule {
                HugetlbDrop::Never => false,
                HugetlbDrop::AtOnce => true,
                HugetlbDrop::Unshared => folio.mapcount.mapcount() == 1,
            };
            if returns && area.is_owner && folio.owner == HugeOwner::Anon {
                // The owner can allocate the page again (O.2.5).
                folio.restores_reserve = true;
                let index = vma.index_of(vpn) >> area.order.get();
                core.hugetlb.file_mut(area.file).regions.remove(&index);
            }
            core.hugetlb.remove_map(entry.order, entry.pfn, owner);
        }
        if has_zapped {
            self.flush(mm, start, end.0 - start.0);
        }
    }

    pub(crate) fn close_huge(&mut self, vma: &Vma) {
        let Some(area) = vma.huge() else { return };
        let index = |vpn| vma.index_of(vpn) >> area.order.get();
        let (first, end) = (index(vma.start), index(vma.end));
        if area.is_owner {
            let used = self.core.hugetlb.file(area.file).regions.range(first..end).count() as u64;
            self.core.hugetlb.pool_mut(area.order).unreserve(end - first - used);
        }
        if vma.sharing == Sharing::Shared && !self.is_huge_file_mapped(area.file) {
            self.core.hugetlb.release_file(area.file);
        }
    }

    fn is_huge_file_mapped(&self, file: HugeFileId) -> bool {
        let mut areas = self.spaces().flat_map(|(_, space)| space.vmas.iter());
        areas.any(|vma| vma.huge().is_some_and(|area| area.file == file))
    }

    /// mprotect: a private page becomes writable again only at its next fault.
    pub(crate) fn protect_huge(&mut self, mm: MmId, start: Vpn, end: Vpn, prot: Prot) {
        if self.core.hugetlb.is_empty() {
            return;
        }
        let shared: Vec<(Vpn, Vpn)> = self
            .space(mm)
            .vmas
            .overlapping(start, end)
            .iter()
            .filter(|vma| vma.huge().is_some() && vma.sharing == Sharing::Shared)
            .map(|vma| (vma.start, vma.end))
            .collect();
        let mut has_changed = false;
        for (vpn, entry) in self.space_mut(mm).huge.range_mut(start..end) {
            let is_shared = shared.iter().any(|(start, end)| start <= vpn && vpn < end);
            let is_writable = prot.can_write && (entry.is_writable || is_shared);
            has_changed |= is_writable != entry.is_writable || !prot.can_read;
            entry.is_writable = is_writable;
        }
        if has_changed {
            self.flush(mm, start, end.0 - start.0);
        }
    }

    /// mremap of part of a private area: the rest loses its owner and reservations (O.5.3).
    pub(crate) fn disown_rest(&mut self, mm: MmId, VpnRange { start, end }: VpnRange) {
        let Some(vma) = self.space(mm).vmas.find(start).copied() else { return };
        let Some(area) = vma.huge().filter(|area| area.is_owner) else { return };
        for (from, to) in [(vma.start, start), (end, vma.end)] {
            if from >= to {
                continue;
            }
            let index = |vpn| vma.index_of(vpn) >> area.order.get();
            let range = index(from)..index(to);
            let regions = &self.core.hugetlb.file(area.file).regions;
            let nr_used = regions.range(range.clone()).count() as u64;
            self.core.hugetlb.pool_mut(area.order).lose(range.end - range.start - nr_used);
            self.core.counters.hugetlb.nr_lost += range.end - range.start - nr_used;
            self.space_mut(mm).vmas.change(from, to, |vma| {
                if let Backing::Hugetlb(area) = &mut vma.backing {
                    area.is_owner = false;
                }
            });
        }
    }

    pub(crate) fn move_huge(&mut self, mm: MmId, from: Vpn, to: Vpn, nr_pages: u64) {
        let huge = &mut self.space_mut(mm).huge;
        if huge.is_empty() {
            return;
        }
        let mut moved = huge.split_off(&from);
        huge.append(&mut moved.split_off(&from.plus(nr_pages)));
        huge.extend(moved.into_iter().map(|(vpn, entry)| (to.plus(vpn.0 - from.0), entry)));
    }
}
