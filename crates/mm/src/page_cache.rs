//! The page cache of all files, above the allocator and below readahead and faults.
//!
//! Owns which folios exist and where they are cached: insertion allocates, removal frees. Does not
//! decide what to read.
//!
//! Invariants:
//! - I1: every folio in a mapping's tree is in the folio table with that mapping and index.
//! - I2: a page-cache folio holds one reference for each of its pages (BEHAVIOUR.md L.5).

use std::collections::BTreeSet;

use crate::buddy::{Buddy, MigrateType};
use crate::counters::Counters;
use crate::folio::{Folio, FolioId, FolioTable, MappingId, Owner};
use crate::mapping::Mapping;
use crate::mapping::tree::Entry;
use crate::observed::Observed;
use crate::ram::Ram;
use crate::units::{Order, PageIndex, Pfn};

/// Why a folio could not be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertRefusal {
    /// One of the pages is cached already.
    Occupied,
    /// No free block of that order.
    NoMemory,
}

/// All files and all folios.
#[derive(Debug)]
pub struct PageCache<R> {
    /// Free memory.
    pub buddy: Buddy,
    /// Live folios.
    pub folios: FolioTable,
    /// Bytes, or the count of them.
    pub ram: R,
    /// What happened.
    pub counters: Counters,
    mappings: Vec<Mapping>,
    watched: Option<Vec<Observed>>,
    /// Pages whose read is slow; see [`PageCache::delay_read`].
    slow: BTreeSet<(MappingId, PageIndex)>,
}

impl<R: Ram> PageCache<R> {
    /// No files, all memory free.
    pub fn new(buddy: Buddy, ram: R) -> Self {
        Self {
            buddy,
            folios: FolioTable::new(),
            ram,
            counters: Counters::default(),
            mappings: Vec::new(),
            watched: None,
            slow: BTreeSet::new(),
        }
    }

    /// Adds a file.
    ///
    /// # Panics
    /// At the 2^32nd file.
    pub fn add_mapping(&mut self, mapping: Mapping) -> MappingId {
        let Ok(id) = u32::try_from(self.mappings.len()) else { panic!("file ids exhausted") };
        self.mappings.push(mapping);
        MappingId(id)
    }

    /// The file `id`.
    #[must_use]
    pub fn mapping(&self, id: MappingId) -> &Mapping {
        &self.mappings[id.0 as usize]
    }

    /// The file `id`, to change.
    pub fn mapping_mut(&mut self, id: MappingId) -> &mut Mapping {
        &mut self.mappings[id.0 as usize]
    }

    /// Every file.
    pub fn mappings(&self) -> impl Iterator<Item = (MappingId, &Mapping)> {
        (0..).map(MappingId).zip(&self.mappings)
    }

    /// Starts to remember what happens, for [`PageCache::take_observed`].
    pub fn watch(&mut self) {
        self.watched = Some(Vec::new());
    }

    /// What happened since the last call, in order; empty when nobody watches.
    pub fn take_observed(&mut self) -> Vec<Observed> {
        self.watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes the read of a page slow: the folio that will hold it stays locked from its insertion
    /// until a fault has waited for it. All other reads complete at once. I/O in flight is the one
    /// thing a recording shows that does not follow from the touches.
    pub fn delay_read(&mut self, file: MappingId, index: PageIndex) {
        self.slow.insert((file, index));
    }

    pub(crate) fn observe(&mut self, observed: Observed) {
        if let Some(watched) = &mut self.watched {
            watched.push(observed);
        }
    }

    /// The folio that covers `index` of `file`.
    #[must_use]
    pub fn find(&self, file: MappingId, index: PageIndex) -> Option<Entry> {
        self.mapping(file).tree.get(index)
    }

    /// Allocates a folio, puts it into the cache and reads it.
    ///
    /// # Errors
    /// Nothing is changed on a refusal.
    pub fn insert(
        &mut self,
        file: MappingId,
        index: PageIndex,
        order: Order,
        is_marked: bool,
    ) -> Result<FolioId, InsertRefusal> {
        let last = PageIndex(index.0 + (order.nr_pages() - 1));
        if self.mapping(file).tree.first_in(index, last).is_some() {
            return Err(InsertRefusal::Occupied);
        }
        let Some(pfn) = self.buddy.alloc(order, MigrateType::Movable) else {
            if order > self.mapping(file).orders.min {
                self.counters.large_folio_fallback += 1;
            }
            return Err(InsertRefusal::NoMemory);
        };
        let mut folio = new_folio(pfn, order, Owner::File { mapping: file, index });
        folio.is_marked = is_marked;
        folio.is_locked = self.slow.range((file, index)..=(file, last)).next().is_some();
        folio.refs = order.nr_pages();
        let id = self.folios.insert(folio);
        let Ok(()) = self.mapping_mut(file).tree.insert(index, order, id) else {
            unreachable!("the range was checked to be free")
        };
        self.ram.read_in(pfn, order.nr_pages());
        self.counters.nr_read += order.nr_pages();
        self.counters.count_inserted(order);
        self.observe(Observed::Insertion { mapping: file, index, order });
        Ok(id)
    }

    /// Takes the unmapped folio at `index` out of the cache and frees it; `None` when there is
    /// none or it is mapped.
    pub fn remove_unmapped(&mut self, file: MappingId, index: PageIndex) -> Option<Entry> {
        let entry = self.find(file, index)?;
        if self.folios.get(entry.folio).maps > 0 {
            return None;
        }
        self.mapping_mut(file).tree.remove(index);
        let folio = self.folios.remove(entry.folio);
        self.buddy.free(folio.pfn, folio.order);
        Some(entry)
    }

    /// A new anonymous page, not mapped yet; `None` when memory is exhausted.
    pub fn alloc_anon(&mut self) -> Option<(FolioId, Pfn)> {
        let pfn = self.buddy.alloc(Order::ZERO, MigrateType::Movable)?;
        let id = self.folios.insert(new_folio(pfn, Order::ZERO, Owner::Anon));
        Some((id, pfn))
    }

    /// Adds `nr` mappings to a folio, each with its reference.
    pub fn add_maps(&mut self, id: FolioId, nr: u64) {
        let folio = self.folios.get_mut(id);
        folio.maps += nr;
        folio.refs += nr;
    }

    /// Drops `nr` mappings of a folio; an anonymous folio is freed with its last one.
    pub fn drop_maps(&mut self, id: FolioId, nr: u64) {
        let folio = self.folios.get_mut(id);
        folio.maps -= nr;
        folio.refs -= nr;
        if folio.owner == Owner::Anon && folio.refs == 0 {
            let folio = self.folios.remove(id);
            self.buddy.free(folio.pfn, folio.order);
        }
    }
}

fn new_folio(pfn: Pfn, order: Order, owner: Owner) -> Folio {
    Folio {
        pfn,
        order,
        owner,
        is_marked: false,
        is_workingset: false,
        is_locked: false,
        is_dirty: false,
        refs: 0,
        maps: 0,
    }
}
