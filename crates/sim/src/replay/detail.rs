//! What a picture of a replay needs beyond its counts: where each folio lies and who caused it, and
//! when faults and reads happened.
//!
//! Kept only where [`super::CellSpec::detail_runs_max`] asks for it. Owns what is exported; `keeper`
//! keeps it while a cell runs: it hears what the memory manager did, and reads memory when a
//! process and the replay end.
//!
//! ```text
//!   insertions, each with its cause --> (file, index) -> order, cause --+
//!   page cache at the end ----------------------------------------------+--> runs of a file
//!   faults and collapses, each with its folio --> first frame -> order, cause --+
//!   page table of a process at its end -----------------------------------------+--> runs of private
//!                                                                                    memory
//!   counters after a fault or a call -----------------------------------> buckets of the trace
//! ```
//!
//! Invariants:
//! - I1: the runs of an area ascend and do not overlap; a run is whole folios of one order, by one
//!   cause, one after the other.
//! - I2: all areas of a cell together have at most `detail_runs_max` runs; what does not fit is left
//!   out, the smallest areas first, and counted.
//! - I3: the buckets add up to the faults and to the bytes read of the outcome.

use largefolio_mm::units::Order;
use largefolio_trace::Op;
use serde::{Serialize, Serializer};

use super::program::ProcessNr;
use super::timeline::Timeline;
use crate::tlb::Side;
use crate::tlb::curve::Curve;

/// Who caused a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A fault of an instruction fetch.
    Fetch,
    /// A fault of a load.
    Load,
    /// A fault of a store.
    Store,
    /// Readahead that the marker started.
    Marker,
    /// A read call.
    ReadCall,
    /// A write call, or what else changes a file.
    WriteCall,
    /// `madvise` or `fadvise`.
    Advice,
    /// The run before, which left a warm page cache.
    Earlier,
    /// A collapse or a split of file pages; of private memory what nobody was heard to touch: a
    /// folio that moved, or that a call filled.
    Remade,
    /// The first touch of private memory.
    Touch,
    /// The first touch, where a larger folio was wanted and none was free.
    Fallback,
    /// A copy on write.
    Copy,
    /// A fault that brought the page back from swap space.
    SwapIn,
    /// A collapse by khugepaged.
    Khugepaged,
    /// `MADV_COLLAPSE`.
    Collapse,
    /// A split: a larger folio was here.
    Split,
    /// The process forked from, which had it before.
    Inherited,
}

impl Origin {
    /// Every cause, in the order of its numbers in [`FolioRun`].
    pub const ALL: [Self; 17] = [
        Self::Fetch,
        Self::Load,
        Self::Store,
        Self::Marker,
        Self::ReadCall,
        Self::WriteCall,
        Self::Advice,
        Self::Earlier,
        Self::Remade,
        Self::Touch,
        Self::Fallback,
        Self::Copy,
        Self::SwapIn,
        Self::Khugepaged,
        Self::Collapse,
        Self::Split,
        Self::Inherited,
    ];

    /// Name in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetch => "instruction fault",
            Self::Load => "load fault",
            Self::Store => "store fault",
            Self::Marker => "readahead marker",
            Self::ReadCall => "read call",
            Self::WriteCall => "write call",
            Self::Advice => "advice",
            Self::Earlier => "earlier run",
            Self::Remade => "collapse, split, move or call",
            Self::Touch => "first touch",
            Self::Fallback => "first touch, no larger folio was free",
            Self::Copy => "copy on write",
            Self::SwapIn => "swap-in",
            Self::Khugepaged => "khugepaged",
            Self::Collapse => "MADV_COLLAPSE",
            Self::Split => "split of a larger folio",
            Self::Inherited => "the parent, before the fork",
        }
    }

    /// The cause of what a fault inserts.
    pub(super) fn of_fault(side: Side, is_store: bool) -> Self {
        match (side, is_store) {
            (Side::Instruction, _) => Self::Fetch,
            (Side::Data, true) => Self::Store,
            (Side::Data, false) => Self::Load,
        }
    }

    /// The cause of what a call inserts.
    pub(super) fn of_call(op: Op) -> Self {
        match op {
            Op::Pread => Self::ReadCall,
            Op::Fadvise | Op::Madvise => Self::Advice,
            _ => Self::WriteCall,
        }
    }
}

/// Folios of one order and one cause, one after the other.
///
/// As JSON: `[page, nr_pages, order, cause]`, in base pages of the cell; `cause` is an index into
/// `detail.causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioRun {
    /// First base page, from the start of the area.
    pub page: u64,
    /// Length in base pages of the cell.
    pub nr_pages: u64,
    /// Order of each folio.
    pub order: Order,
    /// Cause of every folio of the run.
    pub origin: Origin,
}

impl Serialize for FolioRun {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.page, self.nr_pages, self.order.get(), self.origin as u8).serialize(serializer)
    }
}

/// What an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaKind {
    /// The page cache of a file.
    File,
    /// Memory that brk gave.
    Heap,
    /// A recorded stack.
    Stack,
    /// Other private memory.
    Private,
}

/// A file, or a range of private memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    /// File, heap, stack or other private memory.
    pub kind: AreaKind,
    /// Path of the file; empty for private memory.
    pub path: String,
    /// Number of the process; 0 for files, which processes share.
    pub process: ProcessNr,
    /// Recorded address of private memory: the same in every cell; 0 for files.
    pub start: u64,
    /// Length in recorded bytes.
    pub len_bytes: u64,
    /// Folios at the end: of the replay for files, of the process for private memory.
    pub runs: Vec<FolioRun>,
}

impl Area {
    pub(super) fn nr_pages(&self) -> u64 {
        self.runs.iter().map(|run| run.nr_pages).sum()
    }

    /// Adds a folio, or the part of one, behind the others.
    pub(super) fn push(&mut self, run: FolioRun) {
        match self.runs.last_mut() {
            Some(last)
                if last.page + last.nr_pages == run.page
                    && (last.order, last.origin) == (run.order, run.origin) =>
            {
                last.nr_pages += run.nr_pages;
            }
            _ => self.runs.push(run),
        }
    }
}

/// A part of the trace: one [`NR_BUCKETS`](super::timeline::NR_BUCKETS)th of its references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Faults in this part.
    pub faults: u64,
    /// Bytes read from files.
    pub read_bytes: u64,
}

/// The detail of an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// Names of the causes, by the number that runs have.
    pub causes: Vec<&'static str>,
    /// Files by their number in the trace, then private memory by process and address.
    pub areas: Vec<Area>,
    /// Areas that hold folios and did not fit.
    pub nr_left_out: u64,
    /// The trace in parts of equal references.
    pub buckets: Vec<Bucket>,
    /// TLB misses over the number of entries.
    pub tlb_curve: Curve,
    /// Processes and memory over the trace.
    pub timeline: Timeline,
}
