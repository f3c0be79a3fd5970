//! What the machine is told: by a recording of a kernel, by a device, by a test.
//!
//! A call of a program brings none of this about at once, so each has a method that says what it
//! does and keeps what depends on it right. Nothing outside this crate changes a part of the
//! machine in any other way.

use super::Memory;
use crate::buddy::MigrateType;
use crate::core::in_flight::Completion;
use crate::core::observed::Observed;
use crate::core::watermarks::Watermarks;
use crate::core::{InsertRefusal, NewFolio};
use crate::folio::FolioId;
use crate::mapping::reserve::{Extent, Reservations};
use crate::mapping::tree::Entry;
use crate::ram::Ram;
use crate::rules::Rules;
use crate::rules::anon::Enabled;
use crate::units::{MappingId, Order, PageIndex, Pfn};
use crate::vma::OpenId;

/// A state of a folio that somebody else brings about: a device, a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioState {
    /// Locked, as while it is read.
    Locked,
    /// Differs from its file.
    Dirty,
    /// Was written to its file; entries that map it may still say that they were stored through.
    Clean,
    /// On the way to the disk.
    UnderWriteback,
    /// The filesystem keeps data with it that it does not release.
    PrivateData,
}

impl Memory {
    /// Changes rules, as a write to sysfs does. What is computed from them once is computed again:
    /// the watermarks. Files keep the orders that they were added with, as inodes do.
    ///
    /// # Panics
    /// When `change` touches what page tables and folios are built on: the base page, contpte, how
    /// mappings are counted, which lists there are.
    pub fn change_rules(&mut self, change: impl FnOnce(&mut Rules)) {
        let built_on =
            |rules: &Rules| (rules.page, rules.contpte, rules.anon.mapcount_rules(), rules.reclaim);
        let before = built_on(&self.rules);
        change(&mut self.rules);
        assert_eq!(built_on(&self.rules), before, "the machine is built on these rules");
        let has_thp = self.rules.anon.thp != Enabled::Never;
        let nr_pages = self.core.buddy.nr_pages();
        self.core.pressure.watermarks = Watermarks::new(self.rules.page, nr_pages, has_thp);
    }

    /// Starts to remember what happens, for [`Memory::take_observed`].
    pub fn watch(&mut self) {
        self.core.watched = Some(Vec::new());
    }

    /// What happened since the last call, in order; empty when nobody watches.
    pub fn take_observed(&mut self) -> Vec<Observed> {
        self.core.watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes the read of a page slow: the folio that will hold it stays locked from its insertion
    /// until a fault has waited for it, also after the fault or call that read it. I/O in flight is
    /// the one thing a recording shows that does not follow from the touches.
    pub fn delay_read(&mut self, file: MappingId, index: PageIndex) {
        self.core.slow.insert((file, index));
    }

    /// When the reads of faults complete from now on.
    pub fn set_completion(&mut self, completion: Completion) {
        self.core.in_flight.set_completion(completion);
    }

    /// Puts the read of a cached folio back in flight; one that bears the marker stays readable.
    pub fn read_again(&mut self, id: FolioId) {
        let folio = self.core.folios.get_mut(id);
        folio.is_locked |= !folio.is_marked;
    }

    /// Reads one folio into the page cache, whatever readahead would choose.
    ///
    /// # Errors
    /// When one of its pages is cached, or no block of its order is free; nothing has changed.
    pub fn cache_folio(&mut self, folio: NewFolio) -> Result<FolioId, InsertRefusal> {
        self.core.insert(folio)
    }

    /// Drops the folio that covers `index` from the page cache; `None` when there is none, or
    /// somebody maps or pins it.
    pub fn drop_folio(&mut self, file: MappingId, index: PageIndex) -> Option<Entry> {
        self.core.remove_unmapped(file, index)
    }

    /// The cached folio that covers `index` came back soon after it was evicted (G.5.2); `None`
    /// when there is none.
    pub fn mark_workingset(&mut self, file: MappingId, index: PageIndex) -> Option<Entry> {
        let entry = self.core.find(file, index)?;
        self.core.folios.get_mut(entry.folio).is_workingset = true;
        Some(entry)
    }

    /// Puts a folio into a state.
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

    /// Takes a folio off its list of reclaim, so that nobody else does; `false` when somebody has.
    pub fn isolate(&mut self, id: FolioId) -> bool {
        self.core.folios.isolate(id)
    }

    /// Puts an isolated folio back, at the head of the list it was on.
    pub fn putback(&mut self, id: FolioId) {
        self.core.folios.putback(id);
    }

    /// Takes over what a file has on its device. Does nothing where the filesystem does not cut
    /// writes by it.
    pub fn tell_extents(&mut self, file: MappingId, extents: impl IntoIterator<Item = Extent>) {
        if let Some(space) = &mut self.core.mapping_mut(file).reservations {
            space.tell(extents);
        }
    }

    /// A file has no blocks: all of it is a hole. Does nothing where the filesystem does not cut
    /// writes by it.
    pub fn tell_hole(&mut self, file: MappingId) {
        if let Some(space) = &mut self.core.mapping_mut(file).reservations {
            *space = Reservations::default();
        }
    }

    /// Storage holds zeroes for all of a file.
    pub fn zero_storage(&mut self, file: MappingId) {
        let size_bytes = self.core.mapping(file).size_bytes;
        self.core.ram.punch(file, 0, size_bytes);
    }

    /// Counts `nr` cold mapped faults of an open file that did not happen here.
    pub fn count_misses(&mut self, open: OpenId, nr: u32) {
        for _ in 0..nr {
            let _ = self.open_file_mut(open).state.count_miss();
        }
    }

    /// Takes a free block for the kernel's own use; `None` when there is none.
    pub fn take_block(&mut self, order: Order) -> Option<Pfn> {
        let pfn = self.core.buddy.alloc(order, MigrateType::Movable)?;
        self.nr_pinned += order.nr_pages();
        Some(pfn)
    }

    /// Frees a block that [`Memory::take_block`] gave.
    pub fn give_block(&mut self, pfn: Pfn, order: Order) {
        self.nr_pinned -= order.nr_pages();
        self.core.buddy.free(pfn, order);
    }

    /// What memory held, when nothing else of the machine is needed any more.
    #[must_use]
    pub fn into_ram(self) -> Ram {
        self.core.ram
    }
}
