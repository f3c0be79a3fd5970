//! Collapsing pages of a file or of shared memory (docs/behaviour H.4, H.5).
//!
//! Corresponds to: `hpage_collapse_scan_file`, `collapse_file`, `retract_page_tables`,
//! `collapse_pte_mapped_thp`.
//!
//! ```text
//!   page cache   | o0 | o0 | o2         | -  | o0 | ..    gather: each present (files: read in),
//!                   \    \    \   copy    0    /           clean, idle; unmapped everywhere
//!   new folio    [                               o9 ]     replaces them in one step
//! ```
//!
//! Differs: a kernel locks the gathered pages; here nothing else runs at the same time. I/O
//! completes immediately, so a flush that khugepaged started is done when khugepaged returns to the
//! block.
//!
//! Page tables for a collapsed block of a file (docs/behaviour H.5 steps 6 and 7).
//!
//! With the table gone, the next fault can map the block by one entry.

use crate::collapse::{CollapseTarget, Initiator};
use crate::core::NewFolio;
use crate::core::groups::ChargeEffort;
use crate::core::work::steps_of_block;
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::fault::{Access, Fault, FaultCause, Pass};
use crate::folio::{Folio, Owner};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::PmdState;
use crate::policy::Point;
use crate::ram::{Stretch, StretchWork};
use crate::rules::collapse::{DirtyFlush, DirtyRange, LargeFolios, PmdTable, Retract};
use crate::units::{MappingId, MmId, Order, PageIndex, PageRange, Pfn, Vpn};
use crate::vma::{Backing, OpenId, Vma};

#[derive(Clone, Copy, Debug)]
pub(super) struct FileRange {
    pub(super) file: MappingId,
    pub(super) open: OpenId,
    pub(super) first: u64,
    pub(super) order: Order,
    pub(super) initiator: Initiator,
}

impl FileRange {
    pub(super) const fn end(&self) -> u64 {
        self.first + self.order.nr_pages()
    }

    pub(super) const fn pages(&self) -> PageRange {
        PageRange { first: self.first, end: self.end() }
    }
}

struct Gathered {
    entries: Vec<Entry>,
    nr_holes: u64,
}

impl Memory {
    pub(super) fn file_range(&self, target: &CollapseTarget) -> Option<FileRange> {
        let Backing::File { open, .. } = target.vma.backing else { return None };
        let file = self.open_file(open).mapping;
        let first = target.vma.index_of(target.first);
        Some(FileRange { file, open, first, order: target.order, initiator: target.initiator })
    }

    pub(super) fn collapse_file(&mut self, range: &FileRange) -> Result<Done, CollapseRefusal> {
        self.core.work.add(steps_of_block(range.order));
        self.scan_file(range)?;
        let pfn = self.alloc_frames(range)?;
        let collapsed = self.fill_and_replace(range, pfn);
        if collapsed.is_err() {
            self.core.buddy.free(pfn, range.order);
        }
        collapsed.map(|()| Done::Collapsed)
    }

    fn scan_file(&self, range: &FileRange) -> Result<(), CollapseRefusal> {
        let mut nr_present = 0;
        for entry in self.entries_in(range.file, range.pages()) {
            if entry.order >= range.order {
                return Err(CollapseRefusal::PteMappedHugepage);
            }
            self.check_large(entry)?;
            let folio = self.core.folios.get(entry.folio);
            // Already isolated: it may be about to move.
            if !self.core.folios.lru().is_on_lru(entry.folio) {
                return Err(CollapseRefusal::PageLru);
            }
            if folio.has_extra_refs() {
                return Err(CollapseRefusal::PageCount);
            }
            nr_present += folio.nr_pages();
        }
        let nr_evicted = self.core.mapping(range.file).nr_evicted(range.pages());
        let limit = self.rules.collapse.swap_limit(self.rules.page);
        // Reading many pages back costs more than a large folio saves (H.4.1).
        if range.initiator == Initiator::Khugepaged && nr_evicted > limit {
            return Err(CollapseRefusal::ExceedSwapPte);
        }
        let nr_none = range.order.nr_pages() - nr_present;
        let limit = self.rules.anon.none_limit(self.rules.page);
        // The new folio would mostly hold pages that were never read (H.4.2).
        if range.initiator == Initiator::Khugepaged && nr_none > limit {
            return Err(CollapseRefusal::ExceedNonePte);
        }
        Ok(())
    }

    pub(super) fn nr_cached(&self, range: &FileRange) -> u64 {
        let entries = self.entries_in(range.file, range.pages()).into_iter();
        entries.map(|entry| entry.end().min(range.end()) - entry.index.0.max(range.first)).sum()
    }

    /// Early kernels could not merge a file's large folios into the new one (H.4.1).
    fn check_large(&self, entry: Entry) -> Result<(), CollapseRefusal> {
        let is_refused = self.rules.collapse.large == LargeFolios::Refused;
        if is_refused && entry.order > Order::ZERO {
            return Err(CollapseRefusal::PageCompound);
        }
        Ok(())
    }

    fn alloc_frames(&mut self, range: &FileRange) -> Result<Pfn, CollapseRefusal> {
        let pfn =
            self.step(CollapseRefusal::AllocHugePageFail).and_then(|()| self.try_frames(range));
        self.count_alloc(range.order, pfn.map(|_| ()));
        pfn
    }

    fn try_frames(&mut self, range: &FileRange) -> Result<Pfn, CollapseRefusal> {
        let effort = self.collapse_effort(range.initiator);
        let route = self.file_collapse_route(range.file, range.pages());
        let pfn = self.on_route(route, |memory| {
            let is_worth_trying = memory.prepare_large(range.order, effort)
                && memory.charge(range.order.nr_pages(), effort.into());
            is_worth_trying.then(|| memory.core.take_block(range.order, Order::ZERO)).flatten()
        });
        pfn.ok_or(CollapseRefusal::AllocHugePageFail)
    }

    fn fill_and_replace(&mut self, range: &FileRange, pfn: Pfn) -> Result<(), CollapseRefusal> {
        self.step(CollapseRefusal::CgroupChargeFail)?;
        self.step(CollapseRefusal::Fail)?;
        let mut gathered = Gathered { entries: Vec::new(), nr_holes: 0 };
        let filled = self.gather_and_copy(range, &mut gathered, pfn);
        if filled.is_ok() {
            self.replace_gathered(range, &gathered, pfn);
        } else {
            for entry in &gathered.entries {
                self.core.folios.putback(entry.folio);
            }
        }
        filled
    }

    /// Gathers and copies (H.5 steps 3 to 5). Gathered folios leave their lists in any case.
    fn gather_and_copy(
        &mut self,
        range: &FileRange,
        gathered: &mut Gathered,
        pfn: Pfn,
    ) -> Result<(), CollapseRefusal> {
        self.gather(range, gathered)?;
        let is_gated = self.core.mapping(range.file).is_gated(range.order);
        if is_gated {
            // Step 4: the gate counts the folio and refuses it if it sees a writer (H.3.2).
            self.step(CollapseRefusal::Fail)?;
            self.core
                .mapping_mut(range.file)
                .gate
                .try_add_thp()
                .map_err(|_| CollapseRefusal::Fail)?;
            // The next writer's open would lose what earlier writers left dirty (H.3.2).
            self.write_back(range.file, PageRange { first: 0, end: u64::MAX });
        }
        let copied = self.copy_gathered(range, gathered, pfn);
        if copied.is_err() && is_gated {
            self.core.mapping_mut(range.file).gate.remove_thp();
        }
        copied
    }

    fn gather(
        &mut self,
        range: &FileRange,
        gathered: &mut Gathered,
    ) -> Result<(), CollapseRefusal> {
        let is_shmem = self.core.mapping(range.file).is_shmem;
        let mut at = range.first;
        while at < range.end() {
            let entry =
                if is_shmem { self.find_shmem(range, at)? } else { self.find_clean(range, at)? };
            let Some(entry) = entry else {
                gathered.nr_holes += 1;
                at += 1;
                continue;
            };
            self.isolate_entry(range, entry, gathered)?;
            at = entry.end();
        }
        Ok(())
    }

    fn find_shmem(&mut self, range: &FileRange, at: u64) -> Result<Option<Entry>, CollapseRefusal> {
        let index = PageIndex(at);
        if self.core.mapping(range.file).swapped.contains_key(&index) {
            let new = NewFolio::new(range.file, index, Order::ZERO);
            let back = self.insert(new, ChargeEffort::Full);
            back.map_err(|_| CollapseRefusal::Fail)?;
        }
        let Some(entry) = self.core.find(range.file, index) else {
            let is_empty = self.entries_in(range.file, range.pages()).is_empty()
                && self.core.mapping(range.file).nr_evicted(range.pages()) == 0;
            return if is_empty { Err(CollapseRefusal::Truncated) } else { Ok(None) };
        };
        if self.core.folios.get(entry.folio).is_locked {
            return Err(CollapseRefusal::PageLock);
        }
        self.step(CollapseRefusal::PageLock)?;
        Ok(Some(entry))
    }

    fn find_clean(&mut self, range: &FileRange, at: u64) -> Result<Option<Entry>, CollapseRefusal> {
        let found = self.core.find(range.file, PageIndex(at));
        let Some(entry) = found else { return self.read_in(range, at).map(Some) };
        let folio = self.core.folios.get(entry.folio);
        // Its content is not in the file yet: a copy could lose a store (H.5 step 3).
        if folio.is_dirty || folio.is_under_writeback {
            self.start_flush(range);
            return Err(self.dirty_refusal());
        }
        if folio.is_locked {
            return Err(CollapseRefusal::PageLock);
        }
        self.step(CollapseRefusal::PageLock)?;
        Ok(Some(entry))
    }

    fn read_in(&mut self, range: &FileRange, at: u64) -> Result<Entry, CollapseRefusal> {
        if at < self.core.mapping(range.file).nr_file_pages(self.rules.page) {
            self.read_absent(range.open, PageRange { first: at, end: range.end() });
        }
        let entry = self.core.find(range.file, PageIndex(at)).ok_or(CollapseRefusal::Fail)?;
        self.step(CollapseRefusal::Fail)?;
        self.core.folios.get_mut(entry.folio).is_locked = false;
        Ok(entry)
    }

    fn start_flush(&mut self, range: &FileRange) {
        let may_flush = match self.rules.collapse.flush {
            DirtyFlush::Always => true,
            DirtyFlush::UnlessOpenForWrite => {
                !self.core.mapping(range.file).gate.is_open_for_write()
            }
        };
        if !may_flush {
            return;
        }
        match range.initiator {
            // Writeback runs while khugepaged scans other blocks of the file.
            Initiator::Khugepaged => self.khugepaged.flushed.push(range.file),
            Initiator::Advice => self.write_back(range.file, PageRange { first: 0, end: u64::MAX }),
        }
    }

    fn dirty_refusal(&self) -> CollapseRefusal {
        match self.rules.collapse.dirty {
            DirtyRange::Fails => CollapseRefusal::Fail,
            DirtyRange::Again | DirtyRange::WrittenBack => CollapseRefusal::PageDirtyOrWriteback,
        }
    }

    /// Takes a folio off its list and out of every page table, so its content cannot change.
    fn isolate_entry(
        &mut self,
        range: &FileRange,
        entry: Entry,
        gathered: &mut Gathered,
    ) -> Result<(), CollapseRefusal> {
        // Already large enough; only its PMD entry may be missing.
        if entry.order >= range.order {
            return Err(CollapseRefusal::PteMappedHugepage);
        }
        self.check_large(entry)?;
        self.step(CollapseRefusal::Truncated)?;
        self.step(CollapseRefusal::DelPageLru)?;
        if !self.core.folios.isolate(entry.folio) {
            return Err(CollapseRefusal::DelPageLru);
        }
        gathered.entries.push(entry);
        self.step(CollapseRefusal::PageHasPrivate)?;
        // The filesystem could not find its private data in the new folio.
        if self.core.folios.get(entry.folio).has_private {
            return Err(CollapseRefusal::PageHasPrivate);
        }
        self.unmap_file_pages(entry);
        self.step(CollapseRefusal::PageCount)?;
        let folio = self.core.folios.get(entry.folio);
        // Unmapped everywhere: any remaining reference may read or write it at any time.
        if folio.has_extra_refs() {
            return Err(CollapseRefusal::PageCount);
        }
        // Unmapping revealed a store (H.5 step 3, 7.2).
        if folio.is_dirty && !self.core.mapping(range.file).is_shmem {
            return Err(self.dirty_refusal());
        }
        Ok(())
    }

    fn copy_gathered(
        &mut self,
        range: &FileRange,
        gathered: &Gathered,
        pfn: Pfn,
    ) -> Result<(), CollapseRefusal> {
        let mut at = range.first;
        let mut stretch = Stretch::default();
        for entry in &gathered.entries {
            self.core.ram.zero(pfn.plus(at - range.first), entry.index.0 - at);
            stretch.add(StretchWork::Clear, entry.index.0 - at, 1);
            let from = self.core.folios.get(entry.folio).pfn;
            let nr = entry.order.nr_pages();
            for _ in 0..nr {
                self.step(CollapseRefusal::CopyMc)?;
            }
            let plan = self.rules.clear.move_plan(self.arch, self.rules.page, nr);
            self.core.ram.copy_folio(from, pfn.plus(entry.index.0 - range.first), &plan);
            stretch.add_units(StretchWork::Copy, &plan);
            at = entry.end();
        }
        self.core.ram.zero(pfn.plus(at - range.first), range.end() - at);
        stretch.add(StretchWork::Clear, range.end() - at, 1);
        self.core.stretches.stretch(stretch); // D.4.7: no point in a collapse
        if gathered.nr_holes > 0 {
            self.step(CollapseRefusal::PageFilled)?;
            // Filling a hole here would hide it from userfaultfd (H.5 step 5).
            if self.is_watched(range) {
                return Err(CollapseRefusal::ExceedNonePte);
            }
        }
        self.step(CollapseRefusal::StoreFailed)
    }

    fn is_watched(&self, range: &FileRange) -> bool {
        let areas = self.mapped_ranges(range.file, range.pages());
        let is_armed = |(mm, vpn, _)| self.space(mm).vmas.find(vpn).is_some_and(|vma| vma.is_armed);
        areas.into_iter().any(is_armed)
    }

    fn replace_gathered(&mut self, range: &FileRange, gathered: &Gathered, pfn: Pfn) {
        for &entry in &gathered.entries {
            self.core.remove(range.file, entry);
        }
        let (file, index) = (range.file, PageIndex(range.first));
        let mut folio = Folio::new(pfn, range.order, Owner::File { mapping: file, index });
        folio.refs = range.order.nr_pages();
        folio.is_swapbacked = self.core.mapping(file).is_shmem;
        folio.is_dirty = self.core.mapping(file).is_shmem;
        folio.group = self.core.groups.current();
        let id = self.core.folios.insert(folio);
        self.core.folios.enlist(id);
        let mapping = self.core.mapping_mut(file);
        mapping.count_inserted(range.order);
        let Ok(()) = mapping.tree.insert(index, range.order, id) else {
            unreachable!("the range was just emptied")
        };
        self.core.note(Point::Added, id);
        let is_own =
            range.initiator == Initiator::Advice && self.rules.collapse.retract == Retract::Own;
        if range.order == self.rules.page.pmd_order() && !is_own {
            self.retract_tables(range);
        }
    }
}

impl Memory {
    /// Frees the tables of areas that map the whole block aligned and have no private pages.
    pub(super) fn retract_tables(&mut self, range: &FileRange) {
        for (mm, start, end) in self.mapped_ranges(range.file, range.pages()) {
            let is_whole = end.0 - start.0 == range.order.nr_pages();
            let is_aligned = range.order.is_aligned(start.0);
            let has_anon = self.space(mm).vmas.find(start).is_some_and(Vma::has_anon);
            // The table may hold a private copy, or another area may need part of it (H.5).
            if is_whole && is_aligned && !has_anon {
                self.drop_table(mm, start);
            }
        }
    }

    fn drop_table(&mut self, mm: MmId, first: Vpn) {
        let nr = self.rules.page.pmd_order().nr_pages();
        if self.space_mut(mm).table.free_empty_tables(first, nr) > 0 {
            self.flush(mm, first, nr);
        }
    }

    /// Frees one process's table if it maps only the folio's pages. `Already`: there is no table.
    pub(super) fn retract_one(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        let entry = self.huge_entry(target)?;
        match self.space(target.mm).table.pmd(target.first) {
            PmdState::Empty | PmdState::Leaf => return Ok(Done::Already),
            PmdState::Table { .. } => {}
        }
        self.step(CollapseRefusal::Fail)?;
        // A private page would be lost with the table.
        if !self.maps_only(target, entry) {
            return Err(CollapseRefusal::Fail);
        }
        self.zap(target.mm, target.first, target.first.plus(target.nr_pages()));
        self.drop_table(target.mm, target.first);
        Ok(Done::Collapsed)
    }

    pub(super) fn lacks_table(&self, target: &CollapseTarget) -> bool {
        let has_one = self.space(target.mm).table.has_pmd_table(target.first);
        self.rules.collapse.pmd_table != PmdTable::Made && !has_one
    }

    pub(super) fn lacks_ptes(&self, target: &CollapseTarget) -> bool {
        let pmd = self.space(target.mm).table.pmd(target.first);
        self.rules.collapse.pmd_table == PmdTable::Block && pmd == PmdState::Empty
    }

    pub(super) fn install_pmd(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        let done = self.retract_one(target)?;
        if self.space(target.mm).table.pmd(target.first) == PmdState::Leaf {
            return Ok(Done::Already);
        }
        let entry = self.huge_entry(target)?;
        let CollapseTarget { mm, vma, first: vpn, .. } = *target;
        let cause = FaultCause::default();
        let fault = Fault { mm, vpn, access: Access::Read, vma, pass: Pass::First, cause };
        if self.try_map_pmd(&fault, entry, true) { Ok(done) } else { Err(CollapseRefusal::Fail) }
    }

    fn huge_entry(&self, target: &CollapseTarget) -> Result<Entry, CollapseRefusal> {
        let range = self.file_range(target).ok_or(CollapseRefusal::VmaCheck)?;
        let entry = self.core.find(range.file, PageIndex(range.first));
        entry.filter(|entry| entry.order == target.order).ok_or(CollapseRefusal::Fail)
    }

    fn maps_only(&self, target: &CollapseTarget, entry: Entry) -> bool {
        let pfn = self.core.folios.get(entry.folio).pfn;
        let ptes = self.ptes_of(target).unwrap_or_default();
        !self.has_swapped(target)
            && (pfn.0..).zip(ptes).all(|(expected, pte)| pte.is_none() || pte.pfn().0 == expected)
    }
}
