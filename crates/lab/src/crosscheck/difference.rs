//! The compared aspects, and the differences between kernel and model.

use std::fmt::{Debug, Display, Formatter, Result as FmtResult};

use serde::Serialize;

/// List items that a difference prints; the rest are only counted.
const NR_SHOWN: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// Files: folios that entered the page cache in a step (index and order), in order.
    Insertions,
    /// Files: folios that an advice removed, or pages cut off by truncation.
    Removals,
    /// Files, in a cgroup with a limit: folios that reclaim removed from the page cache, in order.
    /// Each has its index, its order and the number of folios inserted earlier in the same step.
    Evictions,
    /// Files, in a cgroup with a limit: the kernel's counters over all steps. They count pages
    /// scanned and reclaimed, refaults and their results, and pages on each list at the end.
    Group,
    /// Files: space reserved for the file before a write, on a filesystem whose writes depend on
    /// it.
    Reserved,
    /// Files: readahead windows and base-order reads: start, size, marker, stored order.
    Windows,
    /// Files: calls of the two readahead entry points: index, request, and the whole state with the
    /// miss counter. An async call means that a marker was reached.
    Entries,
    /// Files: readahead state and miss counter at cold faults (only self-built kernels print them).
    ColdStates,
    /// Files: cached pages found by the fault handler: marker and state (self-built kernels).
    HandlerHits,
    /// Files: passes of the fault handler. For any other touch, fault-around served the page or it
    /// was mapped.
    Handler,
    /// Files: runs of fault-around that found pages to map, as page ranges. A touch with neither
    /// such a run nor a handler pass found its page mapped.
    Around,
    /// Files: touches of a recorded program. Each one faulted in the kernel, so the model must not
    /// have the page mapped.
    Faults,
    /// Files: pages present at a marked point.
    Points,
    /// Files: pages present at the end.
    Mapped,
    /// Files: large folios that hold the pages present at the end.
    Folios,
    /// Files: memory mapped by PMD entries, in KiB.
    PmdMapped,
    MajorFaults,
    /// Processes: whether the step was allowed.
    Answer,
    /// Processes: faults of the step's loads and stores.
    NrFaults,
    /// Processes: whether a page is mapped, and to what: zero page, folio or file page.
    Presence,
    /// Processes: the folio's order and the page's index in it.
    Folio,
    Exclusive,
    /// Processes: whether a PMD entry maps the page.
    Pmd,
    /// Processes: the NUMA node of the page.
    Node,
    /// Processes: pages that moved to another page frame.
    Frame,
    Content,
    /// Processes: how many pages of the program's own file are cached.
    Cached,
    /// Processes: each page's mapcount (`kpagecount`).
    Mapcount,
    /// Processes: an area's numbers in `smaps` and `numa_maps`, in kB.
    Smaps,
    /// Processes: change of the machine's mapped pages (`meminfo`) since the program began, in kB.
    Machine,
    /// Processes: the PMD ranges that khugepaged scanned, in order, with their results.
    Scan,
    /// Processes: pages swapped out and in, and slots in use.
    Swap,
    /// Processes: pages in zswap, and those stored, loaded and written back.
    Zswap,
    /// Processes: which mapped pages are the same physical page.
    Sharing,
    /// Processes: free, reserved and surplus pages of the hugetlb pool.
    Pool,
    /// Questions to a policy, and its answers.
    Decisions,
    /// Clearing: pages zeroed together, and points at which another task may run, in order.
    Clearing,
    Invariant,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub aspect: Aspect,
    #[serde(flatten)]
    pub place: Location,
    pub kernel: String,
    pub model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Location {
    Step {
        /// Counts from 0; the number of steps means "at the end".
        step: usize,
        action: String,
        /// Readahead state before the step, if there was one.
        state_before: Option<String>,
    },
    /// A page of a process, after the last compared step.
    Page {
        slot: usize,
        page: u64,
        /// The model's folio for this page before the step; empty if unknown.
        #[serde(rename = "before")]
        folio_before: String,
    },
}

impl Location {
    pub(super) fn page(slot: usize, page: u64) -> Self {
        Self::Page { slot, page, folio_before: String::new() }
    }

    /// Returns the model's folio before the step, or the readahead state, if known.
    #[must_use]
    pub fn before(&self) -> Option<&str> {
        match self {
            Self::Step { state_before, .. } => state_before.as_deref(),
            Self::Page { folio_before: text, .. } => (!text.is_empty()).then_some(text),
        }
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        match self {
            Self::Step { step, action, .. } => write!(f, "{step} ({action})"),
            Self::Page { slot, page, .. } => write!(f, "{slot}:{page}"),
        }
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Self { aspect, place, kernel, model } = self;
        let before = place.before();
        match place {
            Location::Step { .. } => {
                writeln!(f, "step {place}: {aspect:?} differ")?;
                before.map_or(Ok(()), |state| writeln!(f, "    state   {state}"))?;
                write!(f, "    kernel  {kernel}\n    model   {model}")
            }
            Location::Page { .. } => {
                write!(f, "{aspect:?} of {place}: kernel {kernel}, model {model}")?;
                before.map_or(Ok(()), |folio| write!(f, "\n    before: {folio}"))
            }
        }
    }
}

pub(super) fn shown<T: Debug>(items: &[T]) -> String {
    match items.get(..NR_SHOWN) {
        Some(first) if items.len() > NR_SHOWN => {
            format!("{first:?} and {} more", items.len() - NR_SHOWN)
        }
        _ => format!("{items:?}"),
    }
}
