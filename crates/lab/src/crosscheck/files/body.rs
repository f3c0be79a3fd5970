//! One recorded workload: its setup, its steps, and the pages mapped at the end.

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

#[derive(Clone, Debug, Default)]
pub struct FileSteps {
    pub(super) setup: Setup,
    /// Sizes in bytes of all files but the setup's, by number.
    pub(super) files: BTreeMap<u32, u64>,
    pub(super) steps: Vec<FileStep>,
    /// Folios that entered and left the page cache over all steps: the sum of `insertions` and
    /// `removals`.
    pub(super) nr_folios: u64,
    /// Final state per mapping; `None` = exactly the touched pages are present.
    pub(super) ends: BTreeMap<u32, AreaEnd>,
    /// The cgroup's counters (`memory.stat` and others), without zeros.
    pub(super) counted: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    pub(super) ra_pages: u64,
    pub(super) io_bytes: u64,
    /// Fault-around window in bytes; `None` = the rules' default.
    pub(super) fault_around_bytes: Option<u64>,
    pub(super) file_bytes: u64,
    pub(super) nr_opens: u64,
    /// Bytes per read, unless its line has another number.
    pub(super) read_bytes: u64,
    pub(super) program: Option<String>,
    /// Bit n: the kernel has event n of `probe/trace.h`; `None` = a self-built kernel.
    pub(super) events: Option<u64>,
    /// Microseconds between steps; 0 = I/O may be in flight.
    pub(super) settle_us: u64,
    /// The device completes reads within the submitting call, so no read is ever in flight.
    pub(super) reads_within_call: bool,
    pub(super) is_slowed: bool,
    /// Major faults over all steps; `None` if not recorded.
    pub(super) nr_major: Option<u64>,
    /// The cgroup's limit in bytes; `None` = no limit.
    pub(super) limit_bytes: Option<u64>,
    /// The kernel's LRU: `lists` or `generations`; empty means lists.
    pub(super) lru: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AreaEnd {
    /// Pages present; `None` = exactly the touched ones.
    pub(super) present: Option<Vec<PageRun>>,
    /// Large folios that hold them; empty if the kernel has no `/proc/kpageflags`.
    pub(super) folios: Vec<FolioRun>,
    /// Memory mapped by PMD entries, in KiB; `None` if not recorded.
    pub(super) pmd_kib: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FolioRun {
    pub(super) first: u64,
    pub(super) nr_pages: u64,
    pub(super) is_head: bool,
}

impl Recording<FileSteps> {
    /// Returns the kernel's LRU (`lists` or `generations`) if the program ran under a limit.
    #[must_use]
    pub fn lists_under_limit(&self) -> Option<&str> {
        self.body.is_limited().then_some(self.body.setup.lru.as_str())
    }

    #[must_use]
    pub fn window_kb(&self) -> u64 {
        self.body.setup.ra_pages.saturating_mul(self.header.page_bytes) >> 10
    }
}

impl FileSteps {
    /// Returns whether I/O may have been in flight between steps. The replay then takes the state
    /// of each read from the recording. True for real programs and slowed disks, unless the device
    /// reads within the call.
    pub(super) fn takes_io_in_flight(&self) -> bool {
        let has_no_pause = self.setup.program.is_some() || self.is_slow();
        has_no_pause && !self.setup.reads_within_call
    }

    /// Returns whether the disk was slow: reads are then in flight when their pages are touched.
    pub(super) fn is_slow(&self) -> bool {
        let is_paused = self.setup.settle_us > 0 || self.setup.reads_within_call;
        self.setup.is_slowed || !is_paused
    }

    /// Returns whether the probe read or touched a cold file and no folio came in. The trace filter
    /// then passed no event.
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

    /// Returns whether the program ran under a limit. The kernel then chooses which folios leave
    /// the page cache, and the choice is compared.
    pub(super) fn is_limited(&self) -> bool {
        self.setup.limit_bytes.is_some()
    }

    pub(super) fn shows_handler(&self) -> bool {
        self.setup.events.is_none_or(|events| events & EVENT_HANDLER != 0)
    }

    pub(super) fn restores_working_set(&self) -> bool {
        let mut counts = self.steps.iter().filter_map(|step| match step.action {
            Action::Restored(nr) => Some(nr),
            _ => None,
        });
        let first = counts.next();
        first.is_some() && counts.next_back() > first
    }
}
