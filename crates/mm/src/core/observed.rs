//! What the kernel's tracepoints would show, for the comparison with a recorded kernel.
//!
//! Owns the list of events. They are collected while somebody watches
//! (`Memory::watch`) and decide nothing.

use crate::core::open_file::RaState;
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::units::{MappingId, MmId, Order, PageIndex, Vpn};

/// One event; sizes are in base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A folio entered the page cache (`mm_filemap_add_to_page_cache`).
    Insertion {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// Index of the first page.
        index: PageIndex,
        /// log2 of its pages.
        order: Order,
    },
    /// A folio left the page cache (`mm_filemap_delete_from_page_cache`).
    Removal {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// Index of the first page.
        index: PageIndex,
        /// log2 of its pages.
        order: Order,
    },
    /// A pass of the fault handler began (`mm_filemap_fault`).
    Handler {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// Index of the faulting page.
        index: PageIndex,
    },
    /// Fault-around found a folio to map by PTEs (`mm_filemap_map_pages`).
    Around {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// First page examined.
        first: PageIndex,
        /// Last page examined.
        last: PageIndex,
    },
    /// Fault-around left a folio out because this fault had begun to read it.
    InFlight {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// First page of the folio.
        index: PageIndex,
        /// log2 of its pages.
        order: Order,
        /// It would have been mapped if so many more requests had been complete.
        nr_requests: u32,
    },
    /// A fault waited for the request that reads its page.
    Waited {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// First page of the folio it waited for.
        index: PageIndex,
        /// Page behind the last of the request.
        end: PageIndex,
    },
    /// A fault found its page absent; the state before any decision.
    ColdFault {
        /// Index of the faulting page.
        index: PageIndex,
        /// Readahead state of the open file.
        state: RaState,
    },
    /// A fault found its page cached; the state before the async step.
    HandlerHit {
        /// Index of the faulting page.
        index: PageIndex,
        /// Whether the folio carries the marker.
        is_marked: bool,
        /// Readahead state of the open file.
        state: RaState,
    },
    /// The sync or async entry was called (`page_cache_sync_ra`, `page_cache_async_ra`); the state
    /// before it decides.
    Entry {
        /// Which of the two.
        kind: EntryKind,
        /// File whose page cache it is about.
        mapping: MappingId,
        /// First absent index, or the index that met the marker.
        index: u64,
        /// Pages that the reader asked for.
        nr_pages: u64,
        /// Readahead state of the open file.
        state: RaState,
    },
    /// A window is to be filled with large folios (`page_cache_ra_order`).
    Window {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// Index of the first page to read.
        start: u64,
        /// The state that describes it.
        state: RaState,
    },
    /// khugepaged looked at a block (`mm_khugepaged_scan_pmd`, `mm_khugepaged_scan_file`).
    Scanned {
        /// Process that maps it.
        mm: MmId,
        /// First page of the block.
        first: Vpn,
        /// Of anonymous memory.
        is_anon: bool,
        /// What came of it.
        outcome: Result<Done, CollapseRefusal>,
    },
    /// Pages are to be read in the smallest folios (`page_cache_ra_unbounded`).
    Base {
        /// File whose page cache it is about.
        mapping: MappingId,
        /// Index of the first page to read.
        start: u64,
        /// Pages to read, before the end of the file cuts them.
        nr_pages: u64,
        /// Pages behind the marker; 0 = no marker.
        lookahead: u64,
    },
}

/// An entry to readahead (docs/behaviour A.3, A.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The first page of the request is absent.
    Sync,
    /// The reader reached the marker.
    Async,
}
