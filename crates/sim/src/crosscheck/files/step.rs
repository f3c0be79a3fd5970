//! A step of a recording of files: what the program did, and what the kernel did after it.

use std::fmt;

use largefolio_mm::core::observed::EntryKind;
use largefolio_mm::mapping::reserve::Extent;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AreaSpec {
    /// Its number in the recording.
    pub(super) id: u32,
    pub(super) open: u32,
    /// First file page.
    pub(super) first: u64,
    pub(super) nr_pages: u64,
    /// `r`, `rx`, `rxc` (called), `rw`.
    pub(super) prot: String,
    /// `shared`, else private.
    pub(super) is_shared: bool,
    /// Advice given right after the mapping was made.
    pub(super) advice: String,
    pub(super) addr: u64,
}

/// One action and the kernel's answer.
#[derive(Clone, Debug, Default)]
pub(super) struct FileStep {
    /// What the program did.
    pub(super) action: Action,
    /// Folios that entered the page cache.
    pub(super) insertions: Vec<CachedFolio>,
    /// Folios that left it.
    pub(super) removals: Vec<CachedFolio>,
    /// How many folios had entered it before each of them left.
    pub(super) removed_at: Vec<usize>,
    /// What the file has and what is reserved for it before a write, where the filesystem cuts
    /// writes by it.
    pub(super) extents: Option<Vec<Extent>>,
    /// Passes of the fault handler: file, index.
    pub(super) handler: Vec<(u32, u64)>,
    /// Runs of fault-around that found a folio to map: file, first and last page examined.
    pub(super) around: Vec<(u32, u64, u64)>,
    /// Windows filled with large folios, and base-order reads.
    pub(super) windows: Vec<WindowLine>,
    /// Calls of the sync and async entry.
    pub(super) entries: Vec<EntryLine>,
    /// State at each cold fault (self-built kernels).
    pub(super) cold: Vec<PrintedState>,
    /// Handler hits (self-built kernels).
    pub(super) hits: Vec<HandlerHit>,
    /// Pages of a mapping present now, for [`Action::Point`].
    pub(super) present: Vec<PageRun>,
    /// Model: the touched page was mapped already.
    pub(super) was_mapped: bool,
}

impl FileStep {
    /// Pages that faulted: none, or the one that was touched.
    pub(super) fn faults(&self) -> Vec<u64> {
        match self.action {
            Action::Touch { index, .. } if !self.was_mapped => vec![index],
            _ => Vec::new(),
        }
    }

    /// Folios that left the page cache, each with how many had entered it before.
    pub(super) fn evictions(&self) -> Vec<Eviction> {
        let at = self.removed_at.iter().copied();
        self.removals.iter().zip(at).map(|(&folio, at)| Eviction { at, folio }).collect()
    }
}

/// A folio in the page cache of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CachedFolio {
    pub(super) file: u32,
    pub(super) index: u64,
    pub(super) order: u8,
}

/// A folio that reclaim took out of the page cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Eviction {
    /// Folios that had entered the cache in the same step before.
    pub(super) at: usize,
    pub(super) folio: CachedFolio,
}

/// Bytes of an address space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSpan {
    pub(super) addr: u64,
    pub(super) len_bytes: u64,
}

// Lists of them are shown to people: the numbers alone.
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

/// What the program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing yet.
    #[default]
    Start,
    /// Opened a file again: descriptor, file.
    Open(u32, u32),
    /// Made a mapping.
    Map(AreaSpec),
    /// Unmapped bytes: first, length.
    Unmap(u64, u64),
    /// Changed the protection of bytes: first, length, `r`, `rx`, `rw`, `-`.
    Protect(u64, u64, String),
    /// Touched a page of a mapping.
    Touch {
        index: u64,
        area: u32,
        /// By a store or an instruction fetch.
        access: Touch,
    },
    /// `read(2)`.
    Read(FileIo),
    /// `write(2)`.
    Write(FileIo),
    /// `sendfile(2)` to a file or device.
    Send(FileIo),
    /// `ftruncate` of the first file: its size in bytes from here on.
    Truncate(u64),
    /// `madvise` over a whole mapping.
    Advise(String, u32),
    /// `madvise` over bytes: advice, first, length.
    AdviseBytes(String, u64, u64),
    /// `posix_fadvise` and `readahead`: advice, and the range.
    AdviseFile(String, FileIo),
    /// Moved or resized a mapping; its new number.
    Remap {
        /// Number it has from here on.
        area: u32,
        /// Where it was.
        from: ByteSpan,
        /// Where it is.
        to: ByteSpan,
    },
    /// Touched memory of no file at this address: there is a page table from here on.
    Table(u64),
    /// What follows is done in this address space.
    Switch(u32),
    /// The second address space is a copy of the first.
    Fork(u32, u32),
    /// Looked at what is mapped.
    Point(u32),
    /// Had the kernel reclaim so many bytes.
    Reclaim(u64),
    /// The kernel's own memory takes so many pages of the group's limit from here on.
    Charged(u64),
    /// Used this file in a way that no rule covers, and how: it is not compared from here on.
    Aside(u32, String),
    /// Two threads were at work on this file at once: what one of them met may be the other's.
    Met(u32),
    /// Read how many file pages have come back as part of the working set since boot.
    Restored(u64),
}

impl Action {
    /// Whether the program itself takes folios out of the page cache.
    pub(super) fn removes(&self) -> bool {
        matches!(self, Self::AdviseFile(advice, _) if advice == "dontneed")
    }
}

/// How a page was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// As the mapping's protection says: a load, or a call where it is `rxc`.
    AsMapped,
    Write,
    Exec,
}

/// A read or write call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIo {
    pub(super) pos: u64,
    pub(super) len_bytes: u64,
    pub(super) open: u32,
}

/// Readahead state the kernel printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrintedState {
    /// First index of the last window.
    pub(super) start: u64,
    /// Pages in it.
    pub(super) size: u64,
    /// Pages in its tail.
    pub(super) async_size: u64,
    pub(super) mmap_miss: u32,
}

/// A hit in the fault handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandlerHit {
    pub(super) index: u64,
    /// The folio carried the marker.
    pub(super) is_marked: bool,
    /// Its I/O was in flight.
    pub(super) is_locked: bool,
    /// State before the decrement.
    pub(super) state: PrintedState,
}

/// A read that was started; of a base-order read `async_size` is the lookahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowLine {
    pub(super) file: u32,
    /// Base-order read.
    pub(super) is_base: bool,
    pub(super) start: u64,
    /// Order kept in the state, where the event shows it.
    pub(super) order: Option<u8>,
    pub(super) size: u64,
    /// Pages behind the marker.
    pub(super) async_size: u64,
}

/// A call of the sync or async entry, with the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryLine {
    pub(super) kind: EntryKind,
    pub(super) file: u32,
    pub(super) index: u64,
    pub(super) nr_pages: u64,
    /// Order kept in the state.
    pub(super) order: u8,
    /// Pages of the last window.
    pub(super) size: u64,
    /// Its tail.
    pub(super) async_size: u64,
    pub(super) ra_pages: u64,
    /// Miss counter, after the decrement.
    pub(super) mmap_miss: u32,
    /// Byte after the last read, -1 before the first.
    pub(super) prev_pos: i64,
}

/// First and last of a run of file pages.
pub(super) type PageRun = (u64, u64);

/// Ascending runs, those that touch as one.
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
