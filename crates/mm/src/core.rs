//! The memory manager's core state: free memory, folios, files, swap space and counters.
//!
//! Corresponds to: `filemap_add_folio`, `filemap_remove_folio`.
//!
//! Owns the set of folios and where they are cached: insertion allocates a folio, removal frees it.
//! Does not know processes' areas, and does not decide what to read, map or evict.
//!
//! Its parts, each with the operations that keep it consistent:
//! - `mapped`: mapcounts, which only this module changes;
//! - `owner_ids`: the ids of processes in owner words;
//! - [`space`], [`open_file`]: one process, one open file;
//! - [`groups`]: memory limits;
//! - `dirty`: folios that need writeback;
//! - `swap`, `workingset`, `pressure`, [`watermarks`]: reclaim's state;
//! - `soft`: a preferred smallest folio order;
//! - [`hugetlb`]: pools of huge pages;
//! - [`in_flight`]: the reads that a fault started;
//! - `khugepaged`, [`inject`], [`observed`], [`work`];
//! - [`stall`], `cache_events`: what only a policy sees.
//!
//! Invariants:
//! - I1: every folio in a mapping's tree is in the folio table with that mapping and index.
//! - I2: a page-cache folio holds one reference for each of its pages (docs/behaviour L.5).

mod cache_events;
pub(crate) mod dirty;
pub mod groups;
pub mod hugetlb;
pub mod in_flight;
pub mod inject;
pub(crate) mod khugepaged;
pub(crate) mod mapped;
pub mod observed;
pub mod open_file;
mod owner_ids;
pub(crate) mod pressure;
mod refault;
mod soft;
pub mod space;
pub mod stall;
pub(crate) mod swap;
mod swap_cache;
mod swap_slots;
pub mod watermarks;
pub mod work;
pub(crate) mod workingset;
pub(crate) mod zswap;

use std::collections::BTreeSet;

use crate::buddy::MigrateType;
use crate::core::cache_events::CacheEvents;
use crate::core::hugetlb::Hugetlb;
use crate::core::in_flight::InFlight;
use crate::core::observed::Observed;
use crate::core::owner_ids::ProcessIds;
use crate::core::stall::Stalls;
use crate::core::work::{ENTRY_BYTES, FOLIO_BYTES, NODE_BYTES, THING_BYTES, Work};
use crate::counters::Counters;
use crate::folio::deferred::Deferred;
use crate::folio::frames::Flag;
use crate::folio::{Content, Folio, FolioId, FolioTable, Owner};
use crate::mapping::Mapping;
use crate::mapping::tree::Entry;
use crate::nodes::Nodes;
use crate::policy::Point;
use crate::ram::{self, FilePages, Ram, Stretches};
use crate::rmap::mapcount::{MapcountRules, Shape};
use crate::units::{MappingId, Order, PageIndex, PageRange, PageSize, Pfn};
use dirty::Dirty;
use groups::Groups;
use largefolio_bulk::plan::Plan;
use pressure::Pressure;

/// Why a folio could not be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertRefusal {
    /// One of its pages is already cached.
    Occupied,
    /// No free block of that order.
    NoMemory,
    /// The group is at its limit.
    Charge,
}

/// A folio to read into the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFolio {
    /// The file.
    pub file: MappingId,
    /// First page, a multiple of the folio's number of pages.
    pub index: PageIndex,
    /// The folio's order, within the file's limits.
    pub order: Order,
    /// Whether it carries the readahead marker.
    pub is_marked: bool,
    /// The source of its data.
    pub source: Source,
}

/// The source of a new folio's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// All its pages are read, except holes.
    #[default]
    Storage,
    /// A write, which leaves this many pages to read: it covers a block with data only in part.
    Write {
        /// Pages to read.
        nr_read: u64,
    },
}

impl NewFolio {
    /// A folio without the readahead marker.
    #[must_use]
    pub const fn new(file: MappingId, index: PageIndex, order: Order) -> Self {
        Self { file, index, order, is_marked: false, source: Source::Storage }
    }
}

/// All state except processes and open files, which [`crate::memory::Memory`] adds.
#[derive(Debug)]
pub struct Core {
    page: PageSize,
    /// Free memory.
    pub buddy: Nodes,
    /// The existing folios of files and processes.
    pub folios: FolioTable,
    /// Memory contents, or only their statistics.
    pub ram: Ram,
    /// Event counters.
    pub counters: Counters,
    pub(crate) stretches: Stretches,
    /// Folios queued for the deferred-split shrinker.
    pub deferred: Deferred,
    pub(crate) pressure: Pressure,
    pub(crate) groups: Groups,
    pub(crate) dirty: Dirty,
    pub(crate) work: Work,
    pub(crate) hugetlb: Hugetlb,
    mapcount: MapcountRules,
    pub(crate) processes: ProcessIds,
    mappings: Vec<Mapping>,
    nr_nodes: usize,
    pub(crate) watched: Option<Vec<Observed>>,
    pub(crate) in_flight: InFlight,
    pub(crate) slow: BTreeSet<(MappingId, PageIndex)>,
    pub(crate) stalls: Stalls,
    pub(crate) cache_events: CacheEvents,
}

impl Core {
    pub(crate) fn new(
        page: PageSize,
        buddy: Nodes,
        hugetlb: Hugetlb,
        ram: Ram,
        mapcount: MapcountRules,
    ) -> Self {
        Self {
            page,
            buddy,
            folios: FolioTable::new(),
            ram,
            counters: Counters::default(),
            stretches: Stretches::default(),
            deferred: Deferred::default(),
            pressure: Pressure::default(),
            dirty: Dirty::default(),
            groups: Groups::default(),
            work: Work::default(),
            hugetlb,
            mapcount,
            processes: ProcessIds::new(mapcount.layout),
            mappings: Vec::new(),
            nr_nodes: 0,
            watched: None,
            in_flight: InFlight::default(),
            slow: BTreeSet::new(),
            stalls: Stalls::default(),
            cache_events: CacheEvents::default(),
        }
    }

    /// Adds a file.
    ///
    /// # Panics
    /// If there are already 2^32 files.
    pub(crate) fn add_mapping(&mut self, mapping: Mapping) -> MappingId {
        let Ok(id) = u32::try_from(self.mappings.len()) else { panic!("file ids exhausted") };
        let stored_bytes = if mapping.is_zero_filled { 0 } else { mapping.size_bytes };
        self.ram.add_file(MappingId(id), stored_bytes);
        self.mappings.push(mapping);
        MappingId(id)
    }

    /// How mappings of a folio of `order` are counted.
    #[must_use]
    pub const fn shape(&self, order: Order) -> Shape {
        Shape::new(order, self.mapcount)
    }

    pub(crate) fn pmd_refs(&self, id: FolioId) -> u64 {
        self.shape(self.folios.get(id).order).pmd_refs().into()
    }

    /// The page cache of the file `id`.
    #[must_use]
    pub fn mapping(&self, id: MappingId) -> &Mapping {
        &self.mappings[id.0 as usize]
    }

    pub(crate) fn mapping_mut(&mut self, id: MappingId) -> &mut Mapping {
        &mut self.mappings[id.0 as usize]
    }

    /// All files, in the order in which they were added.
    pub fn mappings(&self) -> impl Iterator<Item = (MappingId, &Mapping)> {
        (0..).map(MappingId).zip(&self.mappings)
    }

    pub(crate) fn state_bytes(&self) -> u64 {
        self.folios.nr_places() as u64 * FOLIO_BYTES
            + self.nr_nodes as u64 * NODE_BYTES
            + self.pressure.nr_shadows as u64 * ENTRY_BYTES
            + self.mappings.len() as u64 * THING_BYTES
    }

    pub(crate) fn begin_fault(&mut self) {
        self.in_flight.begin();
    }

    pub(crate) fn submit(&mut self) {
        self.in_flight.submit();
    }

    pub(crate) fn complete_reads(&mut self) {
        self.in_flight.complete(&mut self.folios);
    }

    pub(crate) fn wait(&mut self, id: Option<FolioId>) {
        if let Some(id) = id.filter(|_| self.watched.is_some()) {
            self.observe_wait(id);
        }
        self.in_flight.wait(id, &mut self.folios);
    }

    fn observe_wait(&mut self, id: FolioId) {
        let Owner::File { mapping, index } = self.folios.get(id).owner else { return };
        if let Some(end) = self.in_flight.end_of_request(id, &self.folios) {
            self.observe(Observed::Waited { mapping, index, end });
        }
    }

    pub(crate) fn end_fault(&mut self) {
        self.in_flight.end(&mut self.folios);
    }

    pub(crate) fn observe_locked(&mut self, mapping: MappingId, entry: Entry) {
        let nr_requests = self.in_flight.nr_until(entry.folio);
        if nr_requests > 0 {
            self.observe(Observed::InFlight {
                mapping,
                index: entry.index,
                order: entry.order,
                nr_requests,
            });
        }
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

    /// Allocates a folio, adds it to the cache and reads it.
    ///
    /// # Errors
    /// A refusal changes nothing.
    fn insert_one(&mut self, new: NewFolio) -> Result<FolioId, InsertRefusal> {
        let NewFolio { file, index, order, is_marked, source } = new;
        self.work.add_cheap(order.nr_pages() / 8);
        let last = PageIndex(index.0 + (order.nr_pages() - 1));
        if self.mapping(file).tree.first_in(index, last).is_some() {
            return Err(InsertRefusal::Occupied);
        }
        self.counters.nr_file_tried[usize::from(order.get())] += 1;
        let min = self.mapping(file).hard_min();
        let Some(pfn) = self.take_block(order, min) else {
            self.counters.nr_file_denied[usize::from(order.get())] += 1;
            if order > min {
                self.counters.large_folio_fallback += 1;
            }
            return Err(InsertRefusal::NoMemory);
        };
        let mut folio = Folio::new(pfn, order, Owner::File { mapping: file, index });
        folio.is_marked = is_marked;
        let is_slow = self.slow.range((file, index)..=(file, last)).next().is_some();
        folio.is_locked = is_slow;
        folio.is_swapbacked = self.mapping(file).is_shmem;
        folio.refs = order.nr_pages();
        folio.group = self.groups.current();
        let id = self.folios.insert(folio);
        let nr_read = match source {
            Source::Storage => self.nr_stored(file, index, order),
            Source::Write { nr_read } => nr_read,
        };
        if !is_slow && source == Source::Storage && nr_read > 0 && self.in_flight.add(id) {
            self.folios.get_mut(id).is_locked = true;
        }
        let tree = &mut self.mapping_mut(file).tree;
        let nr_nodes = tree.nr_nodes();
        let Ok(()) = tree.insert(index, order, id) else {
            unreachable!("the range was checked to be free")
        };
        self.nr_nodes += tree.nr_nodes() - nr_nodes;
        self.mapping_mut(file).count_inserted(order);
        self.ram.read_in(pfn, order.nr_pages(), FilePages { file, index });
        self.back_from_swap(file, id, index);
        self.folios.enlist(id);
        self.counters.nr_read += nr_read;
        self.counters.count_inserted(order);
        self.note(Point::Added, id);
        self.observe(Observed::Insertion { mapping: file, index, order, nr_read });
        Ok(id)
    }

    fn nr_stored(&self, file: MappingId, index: PageIndex, order: Order) -> u64 {
        let mapping = self.mapping(file);
        self.work.add_cheap(mapping.holes.nr_ranges() as u64 / 64);
        let range = PageRange { first: index.0, end: index.0 + order.nr_pages() };
        if self.is_in_hole(file, range) { 0 } else { mapping.nr_stored(range, self.page) }
    }

    /// Whether nothing of a folio is in storage. Known only of files whose extents are known.
    fn is_in_hole(&self, file: MappingId, PageRange { first, end }: PageRange) -> bool {
        let shift = self.page.shift();
        let space = self.mapping(file).reservations.as_ref();
        space.is_some_and(|space| !space.has_data_in(first << shift..end << shift))
    }

    /// Allocates a folio's frames. An order above `min` must not go below the lowest mark (I.6).
    pub(crate) fn take_block(&mut self, order: Order, min: Order) -> Option<Pfn> {
        let pfn = if order > min {
            let mark = self.pressure.watermarks.min;
            self.buddy.try_alloc(order, MigrateType::Movable, mark).ok()?
        } else {
            self.buddy.alloc(order, MigrateType::Movable)?
        };
        self.folios.frames_mut().clear(Flag::Accessed, pfn, order.nr_pages());
        if !self.buddy.is_single() {
            self.count_node(pfn, order);
        }
        Some(pfn)
    }

    #[cold]
    fn count_node(&mut self, pfn: Pfn, order: Order) {
        let counters = &mut self.counters.numa;
        let nr_pages = if self.buddy.is_local(pfn) {
            &mut counters.nr_local_pages
        } else {
            &mut counters.nr_other_pages
        };
        *nr_pages += order.nr_pages();
    }

    pub(crate) fn store(&mut self, id: FolioId, pages: FilePages) {
        self.set_clean(id);
        let folio = self.folios.get(id);
        let (pfn, nr_pages) = (folio.pfn, folio.nr_pages());
        self.ram.write_out(pfn, nr_pages, pages);
        self.counters.nr_written += nr_pages;
    }

    /// Frees the folio at `index`. Returns `None` if it is absent, mapped or pinned.
    pub(crate) fn remove_unmapped(&mut self, file: MappingId, index: PageIndex) -> Option<Entry> {
        let entry = self.find(file, index)?;
        let folio = self.folios.get(entry.folio);
        if folio.refs > folio.cache_refs() {
            return None;
        }
        self.remove(file, entry);
        Some(entry)
    }

    /// Removes an unmapped folio from the cache. A pinned folio stays allocated.
    ///
    /// # Panics
    /// If it is mapped.
    pub(crate) fn remove(&mut self, file: MappingId, entry: Entry) {
        self.set_clean(entry.folio);
        self.note(Point::Removed, entry.folio);
        let mapping = self.mapping_mut(file);
        mapping.tree.remove(entry.index);
        mapping.count_removed(entry.order);
        let folio = self.folios.get_mut(entry.folio);
        assert_eq!(folio.maps(), 0, "a mapped folio leaves the cache");
        let cache_refs = folio.cache_refs();
        folio.owner = Owner::Detached;
        self.put(entry.folio, cache_refs);
        let Entry { index, order, .. } = entry;
        self.observe(Observed::Removal { mapping: file, index, order });
    }

    /// Copies a page, and whether it is known to be zero: an anonymous page without a store.
    pub(crate) fn copy_page(&mut self, from: Pfn, to: Pfn) {
        self.ram.copy_page(from, to);
        self.stretches.alone(ram::StretchWork::Copy, 1);
        self.copy_knowledge(from, to);
    }

    pub(crate) fn copy_pages(&mut self, from: Pfn, to: Pfn, plan: &Plan) {
        self.ram.copy_folio(from, to, plan);
        for by in 0..plan.shape().nr_pages {
            self.copy_knowledge(from.plus(by), to.plus(by));
        }
    }

    fn copy_knowledge(&mut self, from: Pfn, to: Pfn) {
        let is_anon = self.folios.of_pfn(from).is_some_and(|id| self.folios.get(id).is_anon());
        let content = match self.folios.content(from) {
            Content::Zero if !is_anon => Content::Compressible,
            content => content,
        };
        self.folios.set_content(to, content);
    }

    /// Allocates an unmapped anonymous folio with its old content; `None` if no block is free.
    pub(crate) fn alloc_anon(&mut self, order: Order, index: PageIndex) -> Option<FolioId> {
        let id = self.alloc_unlisted(order, index)?;
        self.folios.enlist(id);
        Some(id)
    }

    pub(crate) fn alloc_unlisted(&mut self, order: Order, index: PageIndex) -> Option<FolioId> {
        let pfn = self.take_block(order, Order::ZERO)?;
        let mut folio = Folio::new(pfn, order, Owner::Anon { index });
        folio.group = self.groups.current();
        let id = self.folios.insert(folio);
        self.counters.sizes[usize::from(order.get())].nr_anon += 1;
        Some(id)
    }
}
