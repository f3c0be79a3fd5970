//! mremap: areas that move or change their length.
//!
//! Corresponds to: `mremap_to`, `move_vma`, `move_page_tables`.

use super::MapError;
use crate::memory::Memory;
use crate::rules::anon::Remap;
use crate::units::AddrRange;
use crate::units::VpnRange;
use crate::units::{MmId, Vaddr, Vpn};
use crate::vma::{Backing, HugeArea, MappedShmem, Sharing, Vma};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OldArea {
    Unmapped,
    Kept,
}

impl Memory {
    /// Moves or resizes a mapping to `[to, to + new_bytes)`. The caller knows the new address.
    ///
    /// # Errors
    /// Fails if a range is invalid or nothing is mapped at `from`.
    pub fn mremap(&mut self, mm: MmId, from: AddrRange, to: AddrRange) -> Result<(), MapError> {
        self.remap_area(mm, from, to, OldArea::Unmapped)
    }

    /// Moves the pages of `from` to `to`. The old area stays, without pages (`MREMAP_DONTUNMAP`).
    ///
    /// # Errors
    /// As [`Memory::mremap`].
    pub fn mremap_dontunmap(
        &mut self,
        mm: MmId,
        from: AddrRange,
        to: Vaddr,
    ) -> Result<(), MapError> {
        let to = AddrRange { addr: to, len_bytes: from.len_bytes };
        self.remap_area(mm, from, to, OldArea::Kept)
    }

    /// Maps the shared memory at `from` a second time, at `to` (mremap with an old size of 0).
    ///
    /// # Errors
    /// Fails if the range is invalid, or no shared memory is mapped at `from`.
    pub fn mremap_again(&mut self, mm: MmId, from: Vaddr, to: AddrRange) -> Result<(), MapError> {
        let VpnRange { start, end } = self.checked_range(to.addr, to.len_bytes)?;
        let old = self.checked_range(from, self.rules.page.bytes())?.start;
        let vma = *self.space(mm).vmas.find(old).ok_or(MapError::NotMapped(from.0))?;
        let (Backing::File { open, .. }, Sharing::Shared) = (vma.backing, vma.sharing) else {
            return Err(MapError::NotShared(from.0));
        };
        let backing = Backing::File { open, pgoff: vma.index_of(old) };
        self.check_offset(backing, end.0 - start.0)?;
        self.unmap_pages(mm, start, end);
        self.space_mut(mm).vmas.insert(Vma { start, end, backing, ..vma });
        Ok(())
    }

    fn remap_area(
        &mut self,
        mm: MmId,
        from: AddrRange,
        to: AddrRange,
        old: OldArea,
    ) -> Result<(), MapError> {
        let VpnRange { start: old_start, end: old_end } =
            self.checked_range(from.addr, from.len_bytes)?;
        let VpnRange { start: new_start, end: new_end } =
            self.checked_range(to.addr, to.len_bytes)?;
        let not_mapped = MapError::NotMapped(from.addr.0);
        let new = VpnRange { start: new_start, end: new_end };
        let overlaps = old_start < new_end && new_start < old_end;
        let found = self.space(mm).vmas.find(old_start).copied();
        let is_refused = found.is_some_and(|vma| old_end > vma.end);
        if is_refused && !overlaps && self.rules.anon.remap == Remap::OneArea {
            // By the time the kernel looks at the end of the old range, it has unmapped the new one.
            self.unmap_pages(mm, new_start, new_end);
        }
        let vma = found.ok_or(not_mapped)?;
        self.check_huge_move(&vma, VpnRange { start: old_start, end: old_end }, new)?;
        self.check_huge_cut(mm, new)?;
        if old_start != new_start && overlaps {
            return Err(MapError::Overlap { from: from.addr.0, to: to.addr.0 });
        }
        if old_end > vma.end {
            let mut areas = self.space(mm).vmas.overlapping(old_start, old_end).into_iter();
            if self.rules.anon.remap == Remap::OneArea
                || areas.any(|vma| self.moves_alone(&vma))
                || from.len_bytes != to.len_bytes
                || from.addr == to.addr
            {
                return Err(MapError::NotMapped(vma.end.vaddr(self.rules.page).0));
            }
            let range = VpnRange { start: old_start, end: old_end };
            return self.move_areas(mm, range, new_start, old);
        }
        let keep = (old_end.0 - old_start.0).min(new_end.0 - new_start.0);
        let mut moved = Vma { start: new_start, end: new_end, ..vma };
        if vma.backing == Backing::Anon {
            // Pages keep the index they were created with; an area without pages starts over.
            let by = old_start.0.wrapping_sub(new_start.0);
            moved.moved_by = if vma.has_anon() { vma.moved_by.wrapping_add(by) } else { 0 };
        }
        if let Backing::File { open, .. } = vma.backing {
            moved.backing = Backing::File { open, pgoff: vma.index_of(old_start) };
        }
        if let Backing::Hugetlb(area) = vma.backing {
            let pgoff = vma.index_of(old_start);
            moved.backing = Backing::Hugetlb(HugeArea { pgoff, ..area });
        }
        self.check_offset(moved.backing, moved.nr_pages())?;
        self.unmap_pages(mm, old_start.plus(keep), old_end);
        if old_start == new_start {
            self.unmap_pages(mm, old_start.plus(keep), new_end);
        } else {
            self.unmap_pages(mm, new_start, new_end);
            self.disown_rest(mm, VpnRange { start: old_start, end: old_end });
            self.move_entries(mm, old_start, new_start, keep);
        }
        if old == OldArea::Kept {
            if (vma.start, vma.end) == (old_start, old_end) {
                self.space_mut(mm).vmas.change(old_start, old_end, |vma| vma.anon = None);
            }
            self.space_mut(mm).vmas.insert(moved);
            return Ok(());
        }
        self.space_mut(mm).vmas.remove(old_start, old_start.plus(keep));
        self.space_mut(mm).vmas.insert(moved);
        if old_start != new_start {
            self.free_tables(mm, old_start, old_start.plus(keep));
        }
        Ok(())
    }

    /// Whether one call cannot move other areas too: where its file's pages can be placed is the
    /// filesystem's or the segment's choice (E.4.4).
    fn moves_alone(&self, vma: &Vma) -> bool {
        let Backing::File { open, .. } = vma.backing else { return false };
        vma.shmem == MappedShmem::Segment
            || self.core.mapping(self.open_file(open).mapping).disk.places_aligned
    }

    fn move_areas(
        &mut self,
        mm: MmId,
        VpnRange { start, end }: VpnRange,
        to: Vpn,
        old: OldArea,
    ) -> Result<(), MapError> {
        let page = self.rules.page;
        for vma in self.space(mm).vmas.overlapping(start, end) {
            let len_bytes = vma.nr_pages() << page.shift();
            let to = to.plus(vma.start.0 - start.0).vaddr(page);
            let from = AddrRange { addr: vma.start.vaddr(page), len_bytes };
            self.remap_area(mm, from, AddrRange { addr: to, len_bytes }, old)?;
        }
        Ok(())
    }

    fn move_entries(&mut self, mm: MmId, from: Vpn, to: Vpn, nr_pages: u64) {
        self.cut_pmds(mm, from, from.plus(nr_pages));
        let pmd = self.rules.page.pmd_order();
        if !pmd.is_aligned(from.0 ^ to.0) {
            self.split_pmds(mm, from, nr_pages);
        }
        self.count_walk(mm, VpnRange { start: from, end: from.plus(nr_pages) }, 1);
        self.flush(mm, from, nr_pages);
        let (space, folios) = self.space_and_folios(mm);
        space.table.move_range(from, to, nr_pages, |pfn| folios.span_of(pfn));
        self.move_swapped(mm, from, to, nr_pages);
        self.move_huge(mm, from, to, nr_pages);
    }

    fn move_swapped(&mut self, mm: MmId, from: Vpn, to: Vpn, nr_pages: u64) {
        let swapped = &mut self.space_mut(mm).swapped;
        for (vpn, entry) in swapped.take(from, nr_pages) {
            swapped.insert(to.plus(vpn.0 - from.0), entry);
        }
    }
}
