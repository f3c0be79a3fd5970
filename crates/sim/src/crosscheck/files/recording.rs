//! A recording as data: what a program did, and what the kernel did after each step.

use std::collections::BTreeMap;

use largefolio_mm::mapping::reserve::Extent;
use largefolio_mm::observed::EntryKind;

/// Bits of [`Header::events`], in the order of `probe/trace.h`.
pub(super) const EVENT_HANDLER: u64 = 1 << 2;
pub(super) const EVENT_AROUND: u64 = 1 << 3;
pub(super) const EVENT_WINDOW: u64 = 1 << 5;
pub(super) const EVENT_BASE: u64 = 1 << 6;
pub(super) const EVENT_SYNC: u64 = 1 << 7;
pub(super) const EVENT_ASYNC: u64 = 1 << 8;

/// One recorded workload.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// `FOLDER/FILE`, or the path of a single file.
    pub name: String,
    /// First line.
    pub header: Header,
    /// Files beyond those of the header, by number: size in bytes and path.
    pub files: BTreeMap<u32, (u64, String)>,
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// Final state of each mapping; `None` = exactly the touched pages are present.
    pub ends: BTreeMap<u32, AreaEnd>,
}

/// The first line: kernel, device and workload.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// `uname -r`.
    pub release: String,
    /// `arm64` or `x86-64`.
    pub arch: String,
    /// Name of the kernel's recordings; self-built kernels have rules of that name.
    pub variant: String,
    /// Filesystem.
    pub filesystem: String,
    /// Base page in bytes.
    pub page_bytes: u64,
    /// Readahead window in pages.
    pub ra_pages: u64,
    /// Largest I/O in bytes.
    pub io_bytes: u64,
    /// Fault-around window in bytes; `None` = the rules' own.
    pub fault_around_bytes: Option<u64>,
    /// Exact size of the file.
    pub file_bytes: u64,
    /// Descriptors of the file.
    pub nr_opens: u64,
    /// Bytes of a read whose line does not say.
    pub read_bytes: u64,
    /// Touch pattern.
    pub pattern: String,
    /// Program, for a recording of a real program.
    pub program: Option<String>,
    /// Bit n: the kernel has event n of `probe/trace.h`; `None` = a self-built kernel.
    pub events: Option<u64>,
    /// Events that were lost.
    pub nr_lost: u64,
    /// Microseconds between steps; 0 = I/O may be in flight.
    pub settle_us: u64,
    /// The device reads within the call that asks: nothing is ever in flight.
    pub reads_within_call: bool,
    /// Major faults of the steps; `None` where the recording does not say.
    pub nr_major: Option<u64>,
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaSpec {
    /// Its number in the recording.
    pub id: u32,
    /// Descriptor.
    pub open: u32,
    /// First file page.
    pub first: u64,
    /// Pages.
    pub nr_pages: u64,
    /// `r`, `rx`, `rxc` (called), `rw`.
    pub prot: String,
    /// `shared`, else private.
    pub is_shared: bool,
    /// Advice given right after the mapping was made.
    pub advice: String,
    /// First byte.
    pub addr: u64,
}

/// One action and the kernel's answer.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// What the program did.
    pub action: Action,
    /// Folios that entered the page cache: file, index, order.
    pub insertions: Vec<(u32, u64, u8)>,
    /// Folios that left it: file, index, order.
    pub removals: Vec<(u32, u64, u8)>,
    /// What the file has and what is reserved for it before a write, where the filesystem cuts
    /// writes by it.
    pub extents: Option<Vec<Extent>>,
    /// Passes of the fault handler: file, index.
    pub handler: Vec<(u32, u64)>,
    /// Runs of fault-around that found a folio to map: file, first and last page looked at.
    pub around: Vec<(u32, u64, u64)>,
    /// Windows filled with large folios, and base-order reads.
    pub windows: Vec<WindowLine>,
    /// Calls of the sync and async entry.
    pub entries: Vec<EntryLine>,
    /// State at each cold fault (self-built kernels).
    pub cold: Vec<State>,
    /// Handler hits (self-built kernels).
    pub hits: Vec<Hit>,
    /// Pages of a mapping present now, for [`Action::Point`].
    pub present: Vec<Run>,
    /// Model: the touched page was mapped already.
    pub was_mapped: bool,
}

impl Step {
    /// Pages that faulted: none, or the one that was touched.
    pub(super) fn faults(&self) -> Vec<u64> {
        match self.action {
            Action::Touch { index, .. } if !self.was_mapped => vec![index],
            _ => Vec::new(),
        }
    }
}

/// What the program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Action {
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
        /// File page.
        index: u64,
        /// Mapping.
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
        /// First byte and length before.
        from: (u64, u64),
        /// First byte and length after.
        to: (u64, u64),
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
pub enum Touch {
    /// As the mapping's protection says: a load, or a call where it is `rxc`.
    AsMapped,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

/// A read or write call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIo {
    /// First byte.
    pub pos: u64,
    /// Bytes.
    pub len_bytes: u64,
    /// Descriptor.
    pub open: u32,
}

/// Readahead state the kernel printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// First index of the last window.
    pub start: u64,
    /// Pages in it.
    pub size: u64,
    /// Pages in its tail.
    pub async_size: u64,
    /// Miss counter.
    pub mmap_miss: u32,
}

/// A hit in the fault handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Page.
    pub index: u64,
    /// The folio carried the marker.
    pub is_marked: bool,
    /// Its I/O was in flight.
    pub is_locked: bool,
    /// State before the decrement.
    pub state: State,
}

/// A read that was started; of a base-order read `async_size` is the lookahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLine {
    /// File.
    pub file: u32,
    /// Base-order read.
    pub is_base: bool,
    /// First index.
    pub start: u64,
    /// Order kept in the state, where the event shows it.
    pub order: Option<u8>,
    /// Pages.
    pub size: u64,
    /// Pages behind the marker.
    pub async_size: u64,
}

/// A call of the sync or async entry, with the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLine {
    /// Which entry.
    pub kind: EntryKind,
    /// File.
    pub file: u32,
    /// Index.
    pub index: u64,
    /// Pages wanted.
    pub nr_pages: u64,
    /// Order kept in the state.
    pub order: u8,
    /// Pages of the last window.
    pub size: u64,
    /// Its tail.
    pub async_size: u64,
    /// Largest window.
    pub ra_pages: u64,
    /// Miss counter, after the decrement.
    pub mmap_miss: u32,
    /// Byte after the last read, -1 before the first.
    pub prev_pos: i64,
}

/// First and last of a run of file pages.
pub type Run = (u64, u64);

/// A run of mapped pages that belong to one large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolioRun {
    /// First page.
    pub first: u64,
    /// Pages.
    pub nr_pages: u64,
    /// The run begins at the folio's head.
    pub is_head: bool,
}

/// Final state of one mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AreaEnd {
    /// Pages present; `None` = exactly the touched ones.
    pub present: Option<Vec<Run>>,
    /// Large folios behind them; `None` where the kernel has no `/proc/kpageflags`.
    pub folios: Vec<FolioRun>,
    /// KiB under PMD entries; `None` when not recorded.
    pub pmd_kib: Option<u64>,
}

impl Recording {
    /// Whether I/O may have been in flight between steps, so that "was this folio still being
    /// read" is taken from the recording: real programs, and disks slowed down on purpose; not on
    /// a device that reads within the call that asks.
    #[must_use]
    pub fn takes_io_in_flight(&self) -> bool {
        let has_no_pause = self.header.program.is_some() || self.is_slow();
        has_no_pause && !self.header.reads_within_call
    }

    /// Whether the disk was slowed down, so that reads are in flight when their pages are touched.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        let is_paused = self.header.settle_us > 0 || self.header.reads_within_call;
        self.header.filesystem.ends_with("-slow") || !is_paused
    }

    /// Whether a cold file of the probe's was read or touched and no folio came in: the filter let
    /// nothing through.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut file_bytes = self.header.file_bytes;
        let mut must_read = |step: &Step| {
            if let Action::Truncate(size_bytes) = step.action {
                file_bytes = size_bytes;
            }
            match step.action {
                Action::Touch { .. } => true,
                Action::Read(io) => io.len_bytes > 0 && io.pos < file_bytes,
                _ => false,
            }
        };
        let has_probe = self.header.events.is_some() && self.header.program.is_none();
        has_probe
            && self.steps.iter().any(&mut must_read)
            && self.steps.iter().all(|step| step.insertions.is_empty())
    }

    /// Whether the kernel shows the passes of its fault handler.
    #[must_use]
    pub fn shows_handler(&self) -> bool {
        self.header.events.is_none_or(|events| events & EVENT_HANDLER != 0)
    }

    /// Whether pages that were reclaimed came back as part of the working set.
    #[must_use]
    pub fn restores_working_set(&self) -> bool {
        let mut counts = self.steps.iter().filter_map(|step| match step.action {
            Action::Restored(nr) => Some(nr),
            _ => None,
        });
        let first = counts.next();
        first.is_some() && counts.next_back() > first
    }
}
