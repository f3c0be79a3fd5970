//! Details for pictures of a replay: each folio's place and cause, and when faults and reads
//! happened.
//!
//! Kept only if [`super::CellSpec::detail_runs_max`] enables it. Owns the exported data, which
//! `keeper` collects.
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
//! - I1: an area's runs ascend and do not overlap. A run consists of whole, adjacent folios of one
//!   order and one cause.
//! - I2: all areas of a cell together have at most `detail_runs_max` runs. If they have more, the
//!   smallest areas are left out and counted.
//! - I3: the buckets add up to the outcome's faults and bytes read.

use largefolio_mm::units::Order;
use largefolio_trace::Op;
use serde::{Serialize, Serializer};

use crate::replay::observers::timeline::Timeline;
use crate::replay::program::ProcessNr;
use crate::tlb::Side;
use crate::tlb::curve::Curve;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Fetch,
    Load,
    Store,
    /// Readahead that the marker started.
    Marker,
    ReadCall,
    /// A write call, or another call that changes a file.
    WriteCall,
    Advice,
    /// The earlier run that left a warm page cache.
    Earlier,
    /// A collapse or a split of file pages. For private memory: a folio without an observed fault,
    /// because it moved or a call filled it.
    Remade,
    Touch,
    /// The first touch, when no larger folio was free.
    Fallback,
    Copy,
    SwapIn,
    Khugepaged,
    Collapse,
    Split,
    /// A fork: the parent process had the folio first.
    Inherited,
}

impl Origin {
    /// All causes, in the order of the numbers that [`FolioRun`] uses.
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

    pub(crate) fn of_fault(side: Side, is_store: bool) -> Self {
        match (side, is_store) {
            (Side::Instruction, _) => Self::Fetch,
            (Side::Data, true) => Self::Store,
            (Side::Data, false) => Self::Load,
        }
    }

    pub(crate) fn of_call(op: Op) -> Self {
        match op {
            Op::Pread | Op::Execve => Self::ReadCall,
            Op::Fadvise | Op::Madvise => Self::Advice,
            _ => Self::WriteCall,
        }
    }
}

/// Adjacent folios of one order and one cause.
///
/// As JSON: `[page, nr_pages, order, cause]`; `cause` is an index into `detail.causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioRun {
    pub page: u64,
    pub nr_pages: u64,
    pub order: Order,
    pub origin: Origin,
}

impl Serialize for FolioRun {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.page, self.nr_pages, self.order.get(), self.origin as u8).serialize(serializer)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaKind {
    File,
    Heap,
    Stack,
    Private,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    pub kind: AreaKind,
    /// The file's path; empty for private memory.
    pub path: String,
    /// The process's number; 0 for files, which processes share.
    pub process: ProcessNr,
    /// Recorded address of private memory, the same in every cell; 0 for files.
    pub start: u64,
    pub len_bytes: u64,
    /// Folios of a file at the end of the replay, or of private memory at its process's end.
    pub runs: Vec<FolioRun>,
}

impl Area {
    pub(crate) fn nr_pages(&self) -> u64 {
        self.runs.iter().map(|run| run.nr_pages).sum()
    }

    pub(crate) fn push(&mut self, run: FolioRun) {
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

/// One of the trace's [`NR_BUCKETS`](crate::replay::observers::timeline::NR_BUCKETS) parts, equal
/// in references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    pub faults: u64,
    pub read_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Detail {
    pub causes: Vec<&'static str>,
    pub areas: Vec<Area>,
    pub nr_left_out: u64,
    pub buckets: Vec<Bucket>,
    pub tlb_curve: Curve,
    pub timeline: Timeline,
}
