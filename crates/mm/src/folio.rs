//! Folios: `2^order` naturally aligned base pages managed as one.
//!
//! Owns the table of folios and, through it, the state of each page (`frames`). Does not allocate
//! frames ([`crate::buddy`]) or count mappings (`core/mapped.rs`), and does not know page tables.
//!
//! | state | owner | refs | maps | flags |
//! |---|---|---|---|---|
//! | in the page cache, unmapped | `File` | `2^order + pins` | 0 | maybe marker |
//! | in the page cache, mapped | `File` | `2^order + maps + pins` | > 0 | no marker once hit |
//! | dropped from the cache, pinned | `Detached` | `pins` | 0 | - |
//! | anonymous | `Anon` | `maps + pins` | > 0, or 0 and pinned | maybe partially mapped |
//!
//! Invariants (docs/behaviour L.5, F.1):
//! - I1: `refs == maps + pins + 2^order` in the page cache, `refs == maps + pins > 0` elsewhere.
//! - I2: every frame of a live folio names it in the frame map; no other frame does.
//! - I3: the invariants of [`Mapcount`].

mod batch;
pub mod deferred;
pub(crate) mod frames;
pub(crate) mod generations;
mod link;
mod list_id;
pub mod lru;
pub mod lruvec;
mod table;

pub use table::FolioTable;

use std::num::NonZeroU64;

use crate::counters::mapped::MappedKind;
use crate::pgtable::FolioSpan;
use crate::rmap::Mapcount;
use crate::units::{GroupId, MappingId, MmId, NodeId, Order, PageIndex, PageRange, Pfn, SwapSlot};
use lru::LruKind;

/// Id of a folio in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolioId(u32);

impl FolioId {
    pub(crate) const fn nr(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn of_nr(nr: u32) -> Self {
        Self(nr)
    }
}

/// Content of a page of private memory, as far as swap space is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Only zeroes.
    Zero,
    /// Data that zswap can compress.
    Compressible,
    /// Data that zswap cannot compress.
    Incompressible,
}

/// Contents of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Pages of a file, the first one at `index`.
    File {
        /// The file.
        mapping: MappingId,
        /// Page offset of the folio's first page.
        index: PageIndex,
    },
    /// Private memory of processes. In anonymous areas, `index` is the page number of the first
    /// touch; in private file mappings, it is the file's page. mremap does not change it.
    Anon {
        /// Index of the folio's first page.
        index: PageIndex,
    },
    /// A file's page that left the page cache while it was pinned.
    Detached,
}

/// Whether a folio is in the swap cache. Only one outside it is queued for a deferred split (G.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapState {
    /// Not in the swap cache, and in use.
    Outside,
    /// In the swap cache; its first page is in this slot.
    Cached(SwapSlot),
    /// Freed without being written: clean since `MADV_FREE`.
    Discarded,
}

/// A folio; the module's table lists its states.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "page flags: independent of each other")]
pub struct Folio {
    /// First frame, a multiple of `2^order`.
    pub pfn: Pfn,
    /// log2 of the number of pages.
    pub order: Order,
    /// A file's pages, private memory, or a detached page.
    pub owner: Owner,
    /// The group charged for it.
    pub group: GroupId,
    /// Readahead marker (A.1.2): a read of the folio starts the next window.
    pub is_marked: bool,
    /// Refaulted after a recent eviction (G.5.2): earns no miss-counter credit.
    pub is_workingset: bool,
    /// Locked against faults until its read completes.
    pub is_locked: bool,
    /// Whether all its bytes are valid. Otherwise, a fault reads it first (B.2.6).
    pub is_uptodate: bool,
    /// Differs from the file.
    pub is_dirty: bool,
    /// While it is dirty: its dirty range in the file, which may include clean pages.
    pub dirty_pages: PageRange,
    /// Whether a single write dirtied the whole folio.
    pub is_written_whole: bool,
    /// Whether it was written back, so its blocks are in storage.
    pub is_stored: bool,
    /// Some of its pages have no mapping (G.2.1). Stays set until it is split or freed.
    pub is_partially_mapped: bool,
    /// Only swap space can hold its content: private and shared memory.
    pub is_swapbacked: bool,
    /// Whether and where it is in the swap cache.
    pub swap: SwapState,
    /// Clean since `MADV_FREE`: its content can be discarded.
    pub is_lazyfree: bool,
    /// Its content is being written to disk.
    pub is_under_writeback: bool,
    /// Its filesystem keeps private data that it does not release.
    pub has_private: bool,
    /// Position in the deferred-split queue; `None` = not queued.
    pub deferred: Option<NonZeroU64>,
    /// References; see the module's table.
    pub refs: u64,
    /// References from devices (GUP).
    pub pins: u64,
    /// How often and by which processes it is mapped (F).
    pub mapcount: Mapcount,
    /// The first process to map it after it was unmapped: usually the only one.
    pub(crate) mapped_by: MmId,
    /// The last hinting fault's CPU and process (R.6.3).
    pub(crate) hinted_by: HintedBy,
}

/// The node of the CPU and the process that took a folio's last hinting fault (`last_cpupid`).
///
/// Differs: a process's threads count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HintedBy(Option<(MmId, NodeId)>);

impl HintedBy {
    pub(crate) const fn new(mm: MmId, node: NodeId) -> Self {
        Self(Some((mm, node)))
    }

    /// Whether a process's fault on a node may move the folio there: the first one, one by the same
    /// process, and the second in a row on a node.
    pub(crate) fn lets_move(self, mm: MmId, to: NodeId) -> bool {
        self.0.is_none_or(|(last, node)| last == mm || node == to)
    }
}

impl Folio {
    #[must_use]
    pub(crate) fn new(pfn: Pfn, order: Order, owner: Owner) -> Self {
        Self {
            pfn,
            order,
            owner,
            group: GroupId::ROOT,
            is_marked: false,
            is_workingset: false,
            is_locked: false,
            is_uptodate: true,
            is_dirty: false,
            dirty_pages: PageRange { first: 0, end: 0 },
            is_written_whole: false,
            is_stored: false,
            is_partially_mapped: false,
            is_swapbacked: matches!(owner, Owner::Anon { .. }),
            swap: SwapState::Outside,
            is_lazyfree: false,
            is_under_writeback: false,
            has_private: false,
            deferred: None,
            refs: 0,
            pins: 0,
            mapcount: Mapcount::default(),
            mapped_by: MmId(0),
            hinted_by: HintedBy::default(),
        }
    }

    /// The frame of the folio's page at file position `index`.
    #[must_use]
    pub fn pfn_at(&self, index: PageIndex) -> Pfn {
        match self.owner {
            Owner::File { index: first, .. } | Owner::Anon { index: first } => {
                self.pfn.plus(index.0 - first.0)
            }
            Owner::Detached => self.pfn,
        }
    }

    pub(crate) fn note_mapper(&mut self, mm: MmId) {
        if self.maps() == 0 {
            self.mapped_by = mm;
        }
    }

    /// Mappings: one per PTE and one per PMD entry (F.1 `large_mapcount`, without the -1).
    #[must_use]
    pub fn maps(&self) -> u64 {
        self.mapcount.mapcount().into()
    }

    /// PMD entries (F.1 `entire_mapcount`, without the -1).
    #[must_use]
    pub fn pmd_maps(&self) -> u64 {
        self.mapcount.entire_mapcount().into()
    }

    /// Adds pages to the dirty ones, before the folio is marked dirty.
    pub(crate) fn add_dirty_pages(&mut self, added: PageRange) {
        let PageRange { first, end } = self.dirty_pages;
        self.dirty_pages = if self.is_dirty {
            PageRange { first: first.min(added.first), end: end.max(added.end) }
        } else {
            added
        };
    }

    /// Base pages in the folio: `2^order`.
    #[must_use]
    pub const fn nr_pages(&self) -> u64 {
        self.order.nr_pages()
    }

    /// The frame after the last.
    #[must_use]
    pub const fn end_pfn(&self) -> Pfn {
        Pfn(self.pfn.0 + self.order.nr_pages())
    }

    pub(crate) const fn mapped_kind(&self) -> MappedKind {
        match (self.is_anon(), self.is_swapbacked) {
            (true, _) => MappedKind::Anon,
            (false, true) => MappedKind::Shmem,
            (false, false) => MappedKind::File,
        }
    }

    pub(crate) const fn kind(&self) -> LruKind {
        if self.is_swapbacked && !self.is_lazyfree { LruKind::Anon } else { LruKind::File }
    }

    /// Whether it has more than one page.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        self.order.get() > 0
    }

    /// Whether it is private memory.
    #[must_use]
    pub const fn is_anon(&self) -> bool {
        matches!(self.owner, Owner::Anon { .. })
    }

    /// The index of its first page, if it is private memory.
    pub(crate) const fn anon_index(&self) -> Option<PageIndex> {
        match self.owner {
            Owner::Anon { index } => Some(index),
            _ => None,
        }
    }

    /// Adds a device's reference. [`Folio::unpin`] and `Core::put` return it (I1).
    pub(crate) const fn pin(&mut self) {
        self.pins += 1;
        self.refs += 1;
    }

    pub(crate) const fn unpin(&mut self) {
        self.pins -= 1;
    }

    /// Whether it has references besides mappings and page cache: pins.
    #[must_use]
    pub fn has_extra_refs(&self) -> bool {
        self.refs != self.maps() + self.cache_refs()
    }

    /// The slot of its first page while it is in the swap cache.
    #[must_use]
    pub const fn slot(&self) -> Option<SwapSlot> {
        match self.swap {
            SwapState::Cached(first) => Some(first),
            SwapState::Outside | SwapState::Discarded => None,
        }
    }

    /// References of the page cache or swap cache: one per page.
    #[must_use]
    pub const fn cache_refs(&self) -> u64 {
        match self.owner {
            Owner::File { .. } => self.order.nr_pages(),
            Owner::Anon { .. } if self.slot().is_some() => self.order.nr_pages(),
            Owner::Anon { .. } | Owner::Detached => 0,
        }
    }

    /// The page table's view of the folio.
    #[must_use]
    pub const fn span(&self) -> FolioSpan {
        FolioSpan::new(self.pfn, self.order)
    }
}
