//! The model's tracepoints, for comparison with a recorded kernel.
//!
//! Owns the list of events, which never affect a decision. `Memory::watch` turns recording on.

use crate::core::open_file::RaState;
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::units::{MappingId, MmId, Order, PageIndex, Vpn};

/// An event. Sizes are in base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A folio entered the page cache (`mm_filemap_add_to_page_cache`).
    Insertion {
        /// The file.
        mapping: MappingId,
        /// Index of the first page.
        index: PageIndex,
        /// The folio's order.
        order: Order,
        /// Pages that storage has to supply: no holes, and nothing that a write supplies.
        nr_read: u64,
    },
    /// A folio left the page cache (`mm_filemap_delete_from_page_cache`).
    Removal {
        /// The file.
        mapping: MappingId,
        /// Index of the first page.
        index: PageIndex,
        /// The folio's order.
        order: Order,
    },
    /// A pass of the fault handler began (`mm_filemap_fault`).
    Handler {
        /// The file.
        mapping: MappingId,
        /// Index of the faulting page.
        index: PageIndex,
    },
    /// Fault-around found a folio to map with PTEs (`mm_filemap_map_pages`).
    Around {
        /// The file.
        mapping: MappingId,
        /// First page examined.
        first: PageIndex,
        /// Last page examined.
        last: PageIndex,
    },
    /// Fault-around skipped a folio because this fault had just begun to read it.
    InFlight {
        /// The file.
        mapping: MappingId,
        /// First page of the folio.
        index: PageIndex,
        /// The folio's order.
        order: Order,
        /// How many more requests had to complete for it to be mapped.
        nr_requests: u32,
    },
    /// A fault waited for the request that reads its page.
    Waited {
        /// The file.
        mapping: MappingId,
        /// First page of the folio it waited for.
        index: PageIndex,
        /// End (exclusive) of the request.
        end: PageIndex,
    },
    /// A fault found its page absent; the state before any decision.
    ColdFault {
        /// Index of the faulting page.
        index: PageIndex,
        /// The open file's readahead state.
        state: RaState,
    },
    /// A fault found its page cached; the state before the async step.
    HandlerHit {
        /// Index of the faulting page.
        index: PageIndex,
        /// Whether the folio carries the marker.
        is_marked: bool,
        /// The open file's readahead state.
        state: RaState,
    },
    /// Readahead is about to decide (`page_cache_sync_ra`, `page_cache_async_ra`).
    Entry {
        /// Sync or async.
        kind: EntryKind,
        /// The file.
        mapping: MappingId,
        /// First absent index, or the index that hit the marker.
        index: u64,
        /// Pages that the reader requested.
        nr_pages: u64,
        /// The open file's readahead state.
        state: RaState,
    },
    /// Readahead is about to fill a window with large folios (`page_cache_ra_order`).
    Window {
        /// The file.
        mapping: MappingId,
        /// Index of the first page to read.
        start: u64,
        /// The readahead state of the window.
        state: RaState,
    },
    /// khugepaged scanned a block (`mm_khugepaged_scan_pmd`, `mm_khugepaged_scan_file`).
    Scanned {
        /// Process that maps the block.
        mm: MmId,
        /// First page of the block.
        first: Vpn,
        /// Whether the memory is anonymous.
        is_anon: bool,
        /// The result.
        outcome: Result<Done, CollapseRefusal>,
    },
    /// Readahead is about to read pages in the smallest folios (`page_cache_ra_unbounded`).
    Base {
        /// The file.
        mapping: MappingId,
        /// Index of the first page to read.
        start: u64,
        /// Pages to read, before the end of file limits them.
        nr_pages: u64,
        /// Pages after the marker; 0 = no marker.
        lookahead: u64,
    },
}

/// How readahead was entered (docs/behaviour A.3, A.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The first page of the request is absent.
    Sync,
    /// The reader reached the marker.
    Async,
}
