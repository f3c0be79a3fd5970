//! Changes to the machine from outside: by a kernel recording, a device or a test.
//!
//! Each method also updates the state that depends on the change. Code outside this crate changes
//! parts of the machine only through these methods.

use super::Memory;
use crate::buddy::MigrateType;
use crate::core::in_flight::Completion;
use crate::core::observed::Observed;
use crate::core::watermarks::Watermarks;
use crate::core::{InsertRefusal, NewFolio};
use crate::folio::{Content, FolioId};
use crate::mapping::reserve::{BLOCK_BYTES, Extent, ExtentKind, Reservations};
use crate::mapping::tree::Entry;
use crate::ram::Ram;
use crate::rules::Rules;
use crate::rules::anon::Enabled;
use crate::units::{ByteRange, MappingId, MmId, Order, PageIndex, PageRange, Pfn, Vaddr};
use crate::vma::OpenId;

/// Folio state that a device or a filesystem sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioState {
    /// Locked, as during a read.
    Locked,
    /// Differs from its file.
    Dirty,
    /// Written to its file; entries that map it may still be dirty.
    Clean,
    /// Being written to the disk.
    UnderWriteback,
    /// The filesystem keeps private data with it and does not release it.
    PrivateData,
}

impl Memory {
    /// Changes rules, like a write to sysfs. Recomputes the watermarks. Files keep the orders that
    /// they were added with, as inodes do.
    ///
    /// # Panics
    /// Panics if `change` alters the base page, contpte, the counting of mappings, or the set of
    /// LRU lists: existing page tables and folios depend on them.
    pub fn change_rules(&mut self, change: impl FnOnce(&mut Rules)) {
        let built_on =
            |rules: &Rules| (rules.page, rules.contpte, rules.anon.mapcount_rules(), rules.reclaim);
        let before = built_on(&self.rules);
        let was_on = self.is_khugepaged_on();
        change(&mut self.rules);
        self.core.pressure.zswap.was_on |= self.rules.zswap.enabled;
        assert_eq!(built_on(&self.rules), before, "the machine is built on these rules");
        let has_thp = self.rules.anon.thp != Enabled::Never;
        let nr_pages = self.core.buddy.nr_pages();
        self.khugepaged.waits |= !was_on && self.is_khugepaged_on();
        self.core.pressure.watermarks = Watermarks::new(self.rules.page, nr_pages, has_thp);
    }

    /// Gives `file` the limits that its device, `disk`, has now. Open files keep their readahead
    /// window.
    pub fn renew_device(&mut self, file: MappingId, disk: &str) {
        self.core.mapping_mut(file).device = self.rules.device(disk);
    }

    /// Starts recording events for [`Memory::take_observed`].
    pub fn watch(&mut self) {
        self.core.watched = Some(Vec::new());
    }

    /// Takes the events since the last call, in order; empty if recording is off.
    pub fn take_observed(&mut self) -> Vec<Observed> {
        self.core.watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes the read of a page slow: its folio stays locked from insertion until a fault has
    /// waited for it, even after the fault or call that read it. In a recording, only in-flight I/O
    /// does not follow from the touches.
    pub fn delay_read(&mut self, file: MappingId, index: PageIndex) {
        self.core.slow.insert((file, index));
    }

    /// Sets when reads by faults complete.
    pub fn set_completion(&mut self, completion: Completion) {
        self.core.in_flight.set_completion(completion);
    }

    /// Puts the read of a cached folio back in flight. A folio with the marker stays readable.
    pub fn read_again(&mut self, id: FolioId) {
        let folio = self.core.folios.get_mut(id);
        folio.is_locked |= !folio.is_marked;
    }

    /// Reads one folio into the page cache, whatever readahead would choose.
    ///
    /// # Errors
    /// Fails without changes if any of its pages is cached or no block of its order is free.
    pub fn cache_folio(&mut self, folio: NewFolio) -> Result<FolioId, InsertRefusal> {
        self.core.insert(folio)
    }

    /// Drops the folio that covers `index`, unless it does not exist, is mapped or is pinned.
    pub fn drop_folio(&mut self, file: MappingId, index: PageIndex) -> Option<Entry> {
        self.core.remove_unmapped(file, index)
    }

    /// Marks the cached folio that covers `index` as read again soon after its eviction (G.5.2).
    pub fn mark_workingset(&mut self, file: MappingId, index: PageIndex) -> Option<Entry> {
        let entry = self.core.find(file, index)?;
        self.core.folios.get_mut(entry.folio).is_workingset = true;
        Some(entry)
    }

    /// Says what a present page of private memory holds. A store says only that it holds data.
    pub fn set_content(&mut self, mm: MmId, addr: Vaddr, content: Content) {
        if let Some(view) = self.page_at(mm, addr) {
            self.core.folios.set_content(view.pfn, content);
        }
    }

    /// Sets a folio's state.
    pub fn set_folio_state(&mut self, id: FolioId, state: FolioState) {
        let folio = self.core.folios.get_mut(id);
        match state {
            FolioState::Locked => folio.is_locked = true,
            FolioState::Dirty => self.core.set_dirty(id),
            FolioState::Clean => self.core.set_clean(id),
            FolioState::UnderWriteback => folio.is_under_writeback = true,
            FolioState::PrivateData => folio.has_private = true,
        }
    }

    /// Takes a folio off its LRU list. Returns `false` if it is already isolated.
    pub fn isolate(&mut self, id: FolioId) -> bool {
        self.core.folios.isolate(id)
    }

    /// Puts an isolated folio back at the head of its list.
    pub fn putback(&mut self, id: FolioId) {
        self.core.folios.putback(id);
    }

    /// Sets a file's extents on its device, if the filesystem splits writes by extents.
    pub fn set_extents(&mut self, file: MappingId, extents: impl IntoIterator<Item = Extent>) {
        if let Some(space) = &mut self.core.mapping_mut(file).reservations {
            space.report(extents);
        }
    }

    /// Sets parts of a file that have no data in storage, in bytes.
    pub fn set_holes(&mut self, file: MappingId, holes: impl IntoIterator<Item = ByteRange>) {
        for hole in holes {
            self.add_hole(file, hole);
        }
        let page = self.rules.page;
        let mapping = self.core.mapping_mut(file);
        let all = PageRange { first: 0, end: mapping.nr_file_pages(page) };
        let blocks = |pages: u64| pages.saturating_mul(page.bytes() / BLOCK_BYTES);
        let extents = mapping.holes.data_in(all).map(|PageRange { first, end }| Extent {
            first: blocks(first),
            end: blocks(end),
            kind: ExtentKind::Written,
            is_next: false,
        });
        if let Some(space) = mapping.reservations.as_mut().filter(|_| !mapping.holes.is_empty()) {
            space.report(extents);
        }
    }

    /// Makes a file one hole, without blocks, if the filesystem splits writes by extents.
    pub fn set_hole(&mut self, file: MappingId) {
        if let Some(space) = &mut self.core.mapping_mut(file).reservations {
            *space = Reservations::default();
        }
    }

    /// Fills a file's storage with zeroes.
    pub fn zero_storage(&mut self, file: MappingId) {
        let size_bytes = self.core.mapping(file).size_bytes;
        self.core.ram.punch(file, 0, size_bytes);
    }

    /// Counts `nr` cold mapped faults on an open file that the model did not run.
    pub fn count_misses(&mut self, open: OpenId, nr: u32) {
        for _ in 0..nr {
            let _ = self.open_file_mut(open).state.count_miss();
        }
    }

    /// Allocates a block for the kernel's own use; `None` if none is free.
    pub fn take_block(&mut self, order: Order) -> Option<Pfn> {
        let pfn = self.core.buddy.alloc(order, MigrateType::Movable)?;
        self.nr_pinned += order.nr_pages();
        Some(pfn)
    }

    /// Frees a block from [`Memory::take_block`].
    pub fn give_block(&mut self, pfn: Pfn, order: Order) {
        self.nr_pinned -= order.nr_pages();
        self.core.buddy.free(pfn, order);
    }

    /// Returns the memory's bytes and consumes the machine.
    #[must_use]
    pub fn into_ram(self) -> Ram {
        self.core.ram
    }
}
