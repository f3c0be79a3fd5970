//! One step of a recording of files: the program's action and the kernel's response.

use std::fmt;

use largefolio_mm::core::observed::EntryKind;
use largefolio_mm::mapping::reserve::Extent;

use crate::crosscheck::decision::Decision;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AreaSpec {
    pub(super) id: u32,
    pub(super) open: u32,
    pub(super) first: u64,
    pub(super) nr_pages: u64,
    /// `r`, `rx`, `rxc` (called), `rw`.
    pub(super) prot: String,
    /// `shared`, otherwise private.
    pub(super) is_shared: bool,
    pub(super) advice: String,
    pub(super) addr: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileStep {
    pub(super) action: Action,
    pub(super) insertions: Vec<CachedFolio>,
    pub(super) removals: Vec<CachedFolio>,
    /// For each removal: the number of folios inserted before it.
    pub(super) removed_at: Vec<usize>,
    /// The file's extents and reservations before a write, on a filesystem whose writes depend on
    /// them.
    pub(super) extents: Option<Vec<Extent>>,
    /// Passes of the fault handler: file, index.
    pub(super) handler: Vec<(u32, u64)>,
    /// Runs of fault-around that found a folio to map: file, first and last page examined.
    pub(super) around: Vec<(u32, u64, u64)>,
    /// Windows filled with large folios, and base-order reads.
    pub(super) windows: Vec<WindowLine>,
    pub(super) entries: Vec<EntryLine>,
    /// State at each cold fault (self-built kernels).
    pub(super) cold: Vec<PrintedState>,
    pub(super) hits: Vec<HandlerHit>,
    /// Questions to a policy, and its answers.
    pub(super) decisions: Vec<Decision>,
    /// Pages of a mapping that are present, for [`Action::Point`].
    pub(super) present: Vec<PageRun>,
    /// Model: the touched page was already mapped.
    pub(super) was_mapped: bool,
}

impl FileStep {
    pub(super) fn faults(&self) -> Vec<u64> {
        match self.action {
            Action::Touch { index, .. } if !self.was_mapped => vec![index],
            _ => Vec::new(),
        }
    }

    pub(super) fn evictions(&self) -> Vec<Eviction> {
        let at = self.removed_at.iter().copied();
        self.removals.iter().zip(at).map(|(&folio, at)| Eviction { at, folio }).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CachedFolio {
    pub(super) file: u32,
    pub(super) index: u64,
    pub(super) order: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Eviction {
    /// Number of folios inserted earlier in the same step.
    pub(super) at: usize,
    pub(super) folio: CachedFolio,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSpan {
    pub(super) addr: u64,
    pub(super) len_bytes: u64,
}

// Lists of folios are printed in messages, as numbers only.
impl fmt::Debug for CachedFolio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.file, self.index, self.order).fmt(f)
    }
}

impl fmt::Debug for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.at, self.folio.index, self.folio.order).fmt(f)
    }
}

impl fmt::Debug for ByteSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.addr, self.len_bytes).fmt(f)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Action {
    #[default]
    Start,
    /// Opened a file again: descriptor, file.
    Open(u32, u32),
    Map(AreaSpec),
    /// Unmapped bytes: first, length.
    Unmap(u64, u64),
    /// Changed the protection of bytes: first, length, `r`, `rx`, `rw`, `-`.
    Protect(u64, u64, String),
    Touch {
        index: u64,
        area: u32,
        access: Touch,
    },
    Read(FileIo),
    Write(FileIo),
    /// `sendfile(2)` to a file or device.
    Send(FileIo),
    /// `ftruncate` of the first file to this size in bytes.
    Truncate(u64),
    /// `madvise` over a whole mapping.
    Advise(String, u32),
    /// `madvise` over bytes: advice, first, length.
    AdviseBytes(String, u64, u64),
    /// `posix_fadvise` and `readahead`: advice, and the range.
    AdviseFile(String, FileIo),
    Remap {
        area: u32,
        from: ByteSpan,
        to: ByteSpan,
    },
    /// Touched anonymous memory at this address, so it has a page table from here on.
    Table(u64),
    Switch(u32),
    /// Made the second address space a copy of the first.
    Fork(u32, u32),
    /// Read which pages of a mapping are present.
    Point(u32),
    /// Made the kernel reclaim this many bytes.
    Reclaim(u64),
    /// From here on, kernel memory uses this many pages of the cgroup's limit.
    Charged(u64),
    /// Used this file in the named way, which no rule covers. It is not compared from here on.
    Aside(u32, String),
    /// Two threads used this file concurrently, so events of one may be attributed to the other.
    Met(u32),
    /// Read the number of file pages restored to the working set since boot.
    Restored(u64),
}

impl Action {
    pub(super) fn removes(&self) -> bool {
        matches!(self, Self::AdviseFile(advice, _) if advice == "dontneed")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// By the mapping's protection: a load, or a call if it is `rxc`.
    AsMapped,
    Write,
    Exec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIo {
    pub(super) pos: u64,
    pub(super) len_bytes: u64,
    pub(super) open: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrintedState {
    pub(super) start: u64,
    pub(super) size: u64,
    /// Pages in the window's async tail.
    pub(super) async_size: u64,
    pub(super) mmap_miss: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandlerHit {
    pub(super) index: u64,
    pub(super) is_marked: bool,
    /// The folio was locked: its read was in flight.
    pub(super) is_locked: bool,
    /// State before the decrement of the miss counter.
    pub(super) state: PrintedState,
}

/// A read that was started. In a base-order read, `async_size` is the lookahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowLine {
    pub(super) file: u32,
    pub(super) is_base: bool,
    pub(super) start: u64,
    /// Order stored in the state, if the event has it.
    pub(super) order: Option<u8>,
    pub(super) size: u64,
    /// Pages after the marker.
    pub(super) async_size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryLine {
    pub(super) kind: EntryKind,
    pub(super) file: u32,
    pub(super) index: u64,
    pub(super) nr_pages: u64,
    pub(super) order: u8,
    pub(super) size: u64,
    pub(super) async_size: u64,
    pub(super) ra_pages: u64,
    /// Miss counter, after the decrement.
    pub(super) mmap_miss: u32,
    /// Byte after the last read, -1 before the first.
    pub(super) prev_pos: i64,
}

/// First and last page of a run of file pages.
pub(super) type PageRun = (u64, u64);

/// Merges touching runs; both lists ascend.
pub(super) fn joined(of: impl IntoIterator<Item = PageRun>) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for (first, last) in of {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == first => run.1 = last,
            _ => runs.push((first, last)),
        }
    }
    runs
}
