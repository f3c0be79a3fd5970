//! One recorded workload: its surroundings, its steps, and what was mapped at the end.

use std::collections::BTreeMap;

use super::step::{Action, FileStep, PageRun};
use crate::crosscheck::recording::Recording;

/// Bits of [`Setup::events`], in the order of `probe/trace.h`.
pub(super) const EVENT_HANDLER: u64 = 1 << 2;
pub(super) const EVENT_AROUND: u64 = 1 << 3;
pub(super) const EVENT_WINDOW: u64 = 1 << 5;
pub(super) const EVENT_BASE: u64 = 1 << 6;
pub(super) const EVENT_SYNC: u64 = 1 << 7;
pub(super) const EVENT_ASYNC: u64 = 1 << 8;

/// What a program did to files, and what the kernel did with it.
#[derive(Clone, Debug, Default)]
pub struct FileSteps {
    /// Device, file and probe.
    pub(super) setup: Setup,
    /// Sizes in bytes of the files beyond that of the setup, by number.
    pub(super) files: BTreeMap<u32, u64>,
    /// What was done, in order.
    pub(super) steps: Vec<FileStep>,
    /// Folios that came into the page cache and left it, in all steps: the sum of their
    /// `insertions` and `removals`.
    pub(super) nr_folios: u64,
    /// Final state of each mapping; `None` = exactly the touched pages are present.
    pub(super) ends: BTreeMap<u32, AreaEnd>,
    /// What the kernel counted in the group: `memory.stat` and its like, without what is 0.
    pub(super) counted: BTreeMap<String, u64>,
}

/// What the first line says of the device, the file and the probe.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    /// Readahead window in pages.
    pub(super) ra_pages: u64,
    /// Largest I/O in bytes.
    pub(super) io_bytes: u64,
    /// Fault-around window in bytes; `None` = the rules' own.
    pub(super) fault_around_bytes: Option<u64>,
    /// Exact size of the file.
    pub(super) file_bytes: u64,
    /// Descriptors of the file.
    pub(super) nr_opens: u64,
    /// Bytes of a read whose line does not say.
    pub(super) read_bytes: u64,
    /// Program, for a recording of a real program.
    pub(super) program: Option<String>,
    /// Bit n: the kernel has event n of `probe/trace.h`; `None` = a self-built kernel.
    pub(super) events: Option<u64>,
    /// Microseconds between steps; 0 = I/O may be in flight.
    pub(super) settle_us: u64,
    /// The device reads within the call that asks: nothing is ever in flight.
    pub(super) reads_within_call: bool,
    /// The disk was slowed down on purpose.
    pub(super) is_slowed: bool,
    /// Major faults of the steps; `None` where the recording does not say.
    pub(super) nr_major: Option<u64>,
    /// Limit of the group that the program ran in, in bytes; `None` = it ran in none.
    pub(super) limit_bytes: Option<u64>,
    /// Which lists the kernel kept: `lists`, `generations`; empty = not said, which is lists.
    pub(super) lru: String,
}

/// Final state of one mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AreaEnd {
    /// Pages present; `None` = exactly the touched ones.
    pub(super) present: Option<Vec<PageRun>>,
    /// Large folios behind them; `None` where the kernel has no `/proc/kpageflags`.
    pub(super) folios: Vec<FolioRun>,
    /// KiB under PMD entries; `None` when not recorded.
    pub(super) pmd_kib: Option<u64>,
}

/// A run of mapped pages that belong to one large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FolioRun {
    /// First page.
    pub(super) first: u64,
    pub(super) nr_pages: u64,
    /// The run begins at the folio's head.
    pub(super) is_head: bool,
}

impl Recording<FileSteps> {
    /// Which lists the kernel kept pages on, where the program ran in a group with a limit.
    #[must_use]
    pub fn lists_under_limit(&self) -> Option<&str> {
        self.body.is_limited().then_some(self.body.setup.lru.as_str())
    }

    /// Readahead window in KiB.
    #[must_use]
    pub fn window_kb(&self) -> u64 {
        self.body.setup.ra_pages.saturating_mul(self.header.page_bytes) >> 10
    }
}

impl FileSteps {
    /// Whether I/O may have been in flight between steps, so that "was this folio still being
    /// read" is taken from the recording: real programs, and disks slowed down on purpose; not on
    /// a device that reads within the call that asks.
    pub(super) fn takes_io_in_flight(&self) -> bool {
        let has_no_pause = self.setup.program.is_some() || self.is_slow();
        has_no_pause && !self.setup.reads_within_call
    }

    /// Whether the disk was slowed down, so that reads are in flight when their pages are touched.
    pub(super) fn is_slow(&self) -> bool {
        let is_paused = self.setup.settle_us > 0 || self.setup.reads_within_call;
        self.setup.is_slowed || !is_paused
    }

    /// Whether a cold file of the probe's was read or touched and no folio came in: the filter let
    /// nothing through.
    pub(super) fn is_empty(&self) -> bool {
        let mut file_bytes = self.setup.file_bytes;
        let mut must_read = |step: &FileStep| {
            if let Action::Truncate(size_bytes) = step.action {
                file_bytes = size_bytes;
            }
            match step.action {
                Action::Touch { .. } => true,
                Action::Read(io) => io.len_bytes > 0 && io.pos < file_bytes,
                _ => false,
            }
        };
        let has_probe = self.setup.events.is_some() && self.setup.program.is_none();
        has_probe
            && self.steps.iter().any(&mut must_read)
            && self.steps.iter().all(|step| step.insertions.is_empty())
    }

    /// Whether the program ran in a group with a limit: what left the page cache is the kernel's
    /// own choice, and is compared.
    pub(super) fn is_limited(&self) -> bool {
        self.setup.limit_bytes.is_some()
    }

    /// Whether the kernel shows the passes of its fault handler.
    pub(super) fn shows_handler(&self) -> bool {
        self.setup.events.is_none_or(|events| events & EVENT_HANDLER != 0)
    }

    /// Whether pages that were reclaimed came back as part of the working set.
    pub(super) fn restores_working_set(&self) -> bool {
        let mut counts = self.steps.iter().filter_map(|step| match step.action {
            Action::Restored(nr) => Some(nr),
            _ => None,
        });
        let first = counts.next();
        first.is_some() && counts.next_back() > first
    }
}
