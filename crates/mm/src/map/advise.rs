//! madvise and userfaultfd: a program's advice about its areas.
//!
//! Corresponds to: `do_madvise`, `madvise_vma_behavior`, `madvise_dontneed_free`,
//! `madvise_populate`, `madvise_free_pte_range`, `madvise_free_huge_pmd`, `folio_mark_lazyfree`.
//!
//! Folio sizes that an area prefers: the loader's annotation and the program's advice.
//!
//! Differs: proposed in the discussion of series 000 (docs/behaviour K.1.4); no kernel has this. An
//! area with a preferred size is read with the forward window described in B.4.7, like executable
//! memory. A size that the filesystem does not support is ignored.
//!
//! `MADV_FREE`: pages whose content may be discarded (docs/behaviour G.2.5).
//!
//! Base pages shared by fork also qualify, as long as only page tables record that they are dirty.
//! A lazy-free page keeps its content until the program stores to it, unmaps it or gives other
//! advice.

use crate::fault::{Access, FaultCause, FaultError};
use crate::folio::FolioId;
use crate::io::Fadvice;
use crate::map::MapError;
use crate::map::cold::Unneeded;
use crate::memory::Memory;
use crate::pgtable::{LeafKind, Protection, PteFlags};
use crate::rules::Arch;
use crate::rules::anon::DropTables;
use crate::rules::collapse::AdvisedArea;
use crate::units::{ByteRange, MmId, Order, Vaddr, Vpn, VpnRange};
use crate::vma::{AccessAdvice, Backing, HugeAdvice, Lock, Sharing, Vma};

/// The madvise values that affect files and folio sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Madvice {
    /// `MADV_NORMAL`.
    Normal,
    /// `MADV_RANDOM`.
    Random,
    /// `MADV_SEQUENTIAL`.
    Sequential,
    /// `MADV_HUGEPAGE`.
    Hugepage,
    /// `MADV_NOHUGEPAGE`.
    Nohugepage,
    /// `MADV_DONTNEED`: unmaps the pages; anonymous content is lost.
    Dontneed,
    /// `MADV_DONTNEED_LOCKED`: the same for locked pages.
    DontneedLocked,
    /// `MADV_GUARD_INSTALL`: discards the pages.
    ///
    /// Differs: a later access, which would be fatal, gets a new page.
    GuardInstall,
    /// `MADV_FREE`: private anonymous content may be discarded.
    Free,
    /// `MADV_WILLNEED`: reads the pages of files that are not cached yet.
    ///
    /// Differs: a kernel also reads pages from swap space.
    Willneed,
    /// `MADV_DONTFORK`, or `MADV_DOFORK` if false.
    Dontfork(bool),
    /// `MADV_WIPEONFORK`, or `MADV_KEEPONFORK` if false.
    WipeOnFork(bool),
    /// `MADV_COLD`: reclaim scans the pages soon.
    Cold,
    /// `MADV_PAGEOUT`: reclaims the pages now.
    Pageout,
    /// `MADV_POPULATE_READ`: loads from every page.
    PopulateRead,
    /// `MADV_POPULATE_WRITE`: stores to every page.
    PopulateWrite,
}

impl Memory {
    /// Applies advice to a range.
    ///
    /// # Errors
    /// Fails if the range is invalid. `PopulateRead` and `PopulateWrite` also fail if a page cannot
    /// be touched.
    pub fn madvise(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        len_bytes: u64,
        advice: Madvice,
    ) -> Result<(), MapError> {
        let VpnRange { start, end } = self.checked_range(addr, len_bytes)?;
        self.count_walk(mm, VpnRange { start, end }, self.space(mm).vmas.nr_in(start, end));
        let huge = |huge| move |vma: &mut Vma| vma.advice.huge = huge;
        let access = |access| move |vma: &mut Vma| vma.advice.access = access;
        let range = VpnRange { start, end };
        self.has_unrecent |= matches!(advice, Madvice::Random | Madvice::Sequential);
        match advice {
            Madvice::Hugepage => self.advise_huge(mm, range),
            Madvice::Nohugepage => self.change_areas(mm, range, huge(HugeAdvice::Nohuge)),
            Madvice::Normal => self.change_areas(mm, range, access(AccessAdvice::Normal)),
            Madvice::Random => self.change_areas(mm, range, access(AccessAdvice::Random)),
            Madvice::Sequential => self.change_areas(mm, range, access(AccessAdvice::Sequential)),
            Madvice::Dontneed => {
                let unlocked = self.unlocked(mm, range);
                self.drop_pages(mm, start, unlocked.end)?;
                unlocked.refusal?;
            }
            Madvice::DontneedLocked | Madvice::GuardInstall => self.drop_pages(mm, start, end)?,
            Madvice::Free => {
                let unlocked = self.unlocked(mm, range);
                self.free_range(mm, start, unlocked.end)?;
                unlocked.refusal?;
            }
            Madvice::Cold => self.give_up_areas(mm, range, Unneeded::Cold)?,
            Madvice::Pageout => self.give_up_areas(mm, range, Unneeded::Out)?,
            Madvice::PopulateRead => {
                self.populate_range(mm, range, Access::Read, FaultCause::Advice)?;
            }
            Madvice::PopulateWrite => {
                self.populate_range(mm, range, Access::Write, FaultCause::Advice)?;
            }
            Madvice::Willneed => self.read_areas(mm, range),
            Madvice::Dontfork(is_left_out) => {
                self.change_areas(mm, range, |vma| vma.advice.fork.is_left_out = is_left_out);
            }
            Madvice::WipeOnFork(is_wiped) => self.wipe_on_fork(mm, range, is_wiped)?,
        }
        Ok(())
    }

    /// Reads the files of a range, each in one request (`madvise_willneed`).
    fn read_areas(&mut self, mm: MmId, VpnRange { start, end }: VpnRange) {
        let page = self.rules.page;
        for vma in self.space(mm).vmas.overlapping(start, end) {
            let Backing::File { open, pgoff } = vma.backing else { continue };
            if self.core.mapping(self.open_file(open).mapping).is_shmem {
                continue;
            }
            let len_bytes = vma.nr_pages() << page.shift();
            let range = ByteRange { pos: pgoff << page.shift(), len_bytes };
            self.fadvise(open, range, Fadvice::Willneed);
        }
    }

    fn wipe_on_fork(&mut self, mm: MmId, range: VpnRange, is_wiped: bool) -> Result<(), MapError> {
        for vma in self.space(mm).vmas.overlapping(range.start, range.end) {
            if is_wiped && vma.backing != Backing::Anon {
                return Err(MapError::NotAnonymous(vma.start.vaddr(self.rules.page).0));
            }
            let part = VpnRange { start: vma.start, end: vma.end };
            self.change_areas(mm, part, |vma| vma.advice.fork.is_wiped = is_wiped);
        }
        Ok(())
    }

    fn advise_huge(&mut self, mm: MmId, range: VpnRange) {
        let before: Vec<Vma> = self.whole_areas(mm, range);
        let huge = |vma: &mut Vma| vma.advice.huge = HugeAdvice::Huge;
        self.change_areas(mm, range, huge);
        match self.rules.collapse.advised {
            AdvisedArea::Whole => {
                let advised = |mut vma: Vma| {
                    huge(&mut vma);
                    vma
                };
                let wholes: Vec<Vma> = before.into_iter().map(advised).collect();
                self.khugepaged_enter_for(mm, &wholes);
                self.khugepaged_enter_areas(mm, range);
            }
            AdvisedArea::Changed => {
                let changed = before.iter().filter(|vma| vma.advice.huge != HugeAdvice::Huge);
                let (first, last) = (range.start, range.end);
                let parts: Vec<VpnRange> = changed
                    .map(|vma| VpnRange { start: vma.start.max(first), end: vma.end.min(last) })
                    .collect();
                for part in parts {
                    self.khugepaged_enter_areas(mm, part);
                }
            }
        }
    }

    fn whole_areas(&self, mm: MmId, VpnRange { start, end }: VpnRange) -> Vec<Vma> {
        let vmas = &self.space(mm).vmas;
        let parts = vmas.overlapping(start, end);
        parts.iter().filter_map(|part| vmas.find(part.start)).copied().collect()
    }

    /// Marks all pages of a process as not referenced, like writing 1 to `/proc/PID/clear_refs`.
    pub fn clear_refs(&mut self, mm: MmId) {
        let areas: Vec<Vma> = self.space(mm).vmas.iter().copied().collect();
        for vma in areas {
            self.flush(mm, vma.start, vma.nr_pages());
            let table = &mut self.space_mut(mm).table;
            let leaves: Vec<Vpn> =
                table.leaves(vma.start, vma.nr_pages()).map(|leaf| leaf.first_vpn).collect();
            for vpn in leaves {
                let _ = table.test_and_clear_young(vpn);
            }
        }
    }

    fn drop_pages(&mut self, mm: MmId, start: Vpn, end: Vpn) -> Result<(), MapError> {
        let frees_tables = match self.rules.anon.drop_tables {
            DropTables::Kept => false,
            DropTables::FreedOnX86 => self.arch == Arch::X86_64,
            DropTables::Freed => true,
        };
        for vma in self.space(mm).vmas.overlapping(start, end) {
            if let Some(area) = vma.huge() {
                // Only whole huge pages: a range that begins inside one is refused (O.5.2).
                if !area.order.is_aligned(vma.start.0) {
                    return Err(MapError::HugeCut(vma.start.vaddr(self.rules.page).0));
                }
                self.zap_huge(mm, &vma, vma.start, Vpn(area.order.round_down(vma.end.0)));
                continue;
            }
            self.zap(mm, vma.start, vma.end);
            if frees_tables {
                self.space_mut(mm).table.free_empty_tables(vma.start, vma.nr_pages());
            }
        }
        Ok(())
    }

    fn free_range(&mut self, mm: MmId, start: Vpn, end: Vpn) -> Result<(), MapError> {
        let areas = self.space(mm).vmas.overlapping(start, end);
        for vma in areas {
            if vma.huge().is_some() {
                return Err(MapError::HugeAdvice(vma.start.vaddr(self.rules.page).0));
            }
            if vma.backing != Backing::Anon {
                return Err(MapError::NotAnonymous(vma.start.vaddr(self.rules.page).0));
            }
            self.free_lazily(mm, vma.start, vma.end);
        }
        Ok(())
    }

    /// `MADV_COLD` and `MADV_PAGEOUT`; hugetlb areas refuse both.
    fn give_up_areas(&mut self, mm: MmId, range: VpnRange, how: Unneeded) -> Result<(), MapError> {
        for vma in self.space(mm).vmas.overlapping(range.start, range.end) {
            if vma.huge().is_some() {
                return Err(MapError::HugeAdvice(vma.start.vaddr(self.rules.page).0));
            }
            if vma.advice.lock != Lock::None {
                return Err(MapError::Locked(vma.start.vaddr(self.rules.page).0));
            }
            self.give_up_range(mm, VpnRange { start: vma.start, end: vma.end }, how);
        }
        Ok(())
    }

    /// Touches every page of a range, as `MAP_POPULATE` and mlock do: by stores only where a later
    /// store would copy the page. No fault counts as major (B.2.5).
    ///
    /// # Errors
    /// Fails if the range is invalid, or a page cannot be touched; earlier pages are populated.
    pub fn populate(&mut self, mm: MmId, addr: Vaddr, len_bytes: u64) -> Result<(), MapError> {
        let VpnRange { start, end } = self.checked_range(addr, len_bytes)?;
        for vma in self.space(mm).vmas.overlapping(start, end) {
            let is_copied = vma.prot.can_write && vma.sharing == Sharing::Private;
            let access = if is_copied { Access::Write } else { Access::Read };
            let range = VpnRange { start: vma.start, end: vma.end };
            self.populate_range(mm, range, access, FaultCause::Populate)?;
        }
        Ok(())
    }

    fn populate_range(
        &mut self,
        mm: MmId,
        range: VpnRange,
        access: Access,
        cause: FaultCause,
    ) -> Result<(), MapError> {
        let VpnRange { start, end } = range;
        let nr_pages = (end.0 - start.0).min(self.core.buddy.nr_pages());
        for vpn in start.0..start.0 + nr_pages {
            self.core.work.add(1);
            if self.core.work.is_spent() {
                return Ok(());
            }
            let addr = Vpn(vpn).vaddr(self.rules.page);
            match self.touch_for(mm, addr, access, cause) {
                Ok(_) => {}
                Err(FaultError::NotMapped(addr) | FaultError::Protected(addr)) => {
                    return Err(MapError::NotMapped(addr));
                }
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Registers a range with `userfaultfd`: faults then allocate single pages (D.2.3).
    ///
    /// # Errors
    /// Fails if the range is empty, unaligned or outside the address space.
    pub fn arm_userfaultfd(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        len_bytes: u64,
    ) -> Result<(), MapError> {
        let range = self.checked_range(addr, len_bytes)?;
        self.change_areas(mm, range, |vma| vma.is_armed = true);
        Ok(())
    }
}

impl Memory {
    /// Requests folios of `bytes` in a range; `None` removes the preference.
    ///
    /// ```
    /// use largefolio_mm::fault::Access;
    /// use largefolio_mm::map::Map;
    /// use largefolio_mm::memory::{Config, Memory};
    /// use largefolio_mm::rules::{Arch, Rules};
    /// use largefolio_mm::vma::Prot;
    ///
    /// let mut memory = Memory::new(Rules::example(), &Config::new(Arch::X86_64))?;
    /// let file = memory.add_file(1 << 20, "xfs");
    /// let (open, mm) = (memory.open(file), memory.new_space());
    /// let at = memory.mmap(mm, Map::file(open, 0, 1 << 20, Prot::READ))?;
    /// memory.prefer_folios(mm, at, 1 << 20, Some(64 << 10))?;
    /// memory.touch(mm, at, Access::Read)?;
    /// let orders: Vec<_> = memory.folios(file).map(|folio| folio.order.get()).collect();
    /// assert_eq!(orders, [4, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the range is invalid, or the page cache has no folios of this size.
    pub fn prefer_folios(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        len_bytes: u64,
        bytes: Option<u64>,
    ) -> Result<(), MapError> {
        let range = self.checked_range(addr, len_bytes)?;
        let preferred = bytes.map(|bytes| self.folio_order(bytes)).transpose()?;
        self.change_areas(mm, range, |vma| vma.advice.preferred = preferred);
        Ok(())
    }

    pub(crate) fn folio_order(&self, bytes: u64) -> Result<Order, MapError> {
        let page = self.rules.page;
        let order = page.order_of_bytes(bytes);
        let is_size = page.bytes() << order.get() == bytes;
        let max = self.rules.max_pagecache_order();
        if is_size && order <= max {
            return Ok(order);
        }
        let max_bytes = page.bytes() << max.get();
        Err(MapError::NoSuchFolio { bytes, page_bytes: page.bytes(), max_bytes })
    }
}

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
            (folio.is_dirty || folio.slot().is_some()) && folio.maps() != nr
        };
        // The swap slots must be freed first.
        if !is_kept && (folio.slot().is_none() || self.core.free_swap_cache(id)) {
            self.mark_lazyfree(mm, vpn, nr, id);
        }
        vpn.plus(nr)
    }

    fn mark_lazyfree(&mut self, mm: MmId, vpn: Vpn, nr: u64, id: FolioId) {
        let folio = self.core.folios.get_mut(id);
        folio.is_dirty = false;
        // A second call leaves the folio where it is on its list.
        if !std::mem::replace(&mut folio.is_lazyfree, true) {
            self.core.give_up(id);
        }
        self.flush(mm, vpn, nr);
        let protection = Protection { set: PteFlags::NONE, clear: PteFlags::ACCESSED_DIRTY };
        let (space, folios) = self.space_and_folios(mm);
        space.table.protect_range(vpn, nr, protection, |pfn| folios.span_of(pfn));
    }
}
