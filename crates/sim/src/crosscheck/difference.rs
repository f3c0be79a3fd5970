//! What is compared, and where kernel and model differ in it.

use std::fmt::{Debug, Display, Formatter, Result as FmtResult};

use serde::Serialize;

/// Items of a list that a difference shows; the rest is counted.
const NR_SHOWN: usize = 12;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// Files: folios that entered the page cache after a step: index and order, in order.
    Insertions,
    /// Files: what left the page cache because the program said so: folios after an advice, pages
    /// after the file was made shorter.
    Removals,
    /// Files, in a group with a limit: folios that reclaim took out of the page cache: how many had
    /// entered it before in the same step, index and order, in order.
    Evictions,
    /// Files, in a group with a limit: what the kernel counted in the group over all steps: pages
    /// scanned and reclaimed, refaults with what came of them, pages on each list at the end.
    Group,
    /// Files: space reserved for the file before a write, on a filesystem that cuts writes by it.
    Reserved,
    /// Files: windows and base-order reads: start, size, marker, kept order.
    Windows,
    /// Files: calls of the two readahead entries: index, request and the whole state with the miss
    /// counter. An async call is a marker that was reached.
    Entries,
    /// Files: readahead state and miss counter at cold faults (self-built kernels print them).
    ColdStates,
    /// Files: cached pages found by the fault handler: marker and state (self-built kernels).
    HandlerHits,
    /// Files: passes of the fault handler; those not listed were served by fault-around or mapped.
    Handler,
    /// Files: runs of fault-around that found something to map: the pages examined. A touch with
    /// neither such a run nor a pass of the handler found its page mapped.
    Around,
    /// Files: touches of a recorded program: each faulted in the kernel, so none may find its page
    /// mapped.
    Faults,
    /// Files: pages present at a marked point.
    Points,
    /// Files: pages present at the end.
    Mapped,
    /// Files: large folios behind the pages present at the end.
    Folios,
    /// Files: KiB under PMD entries.
    PmdMapped,
    /// Files: major faults, over all steps.
    MajorFaults,
    /// Processes: whether the step was allowed.
    Answer,
    /// Processes: whether a page is mapped, and to what: zero page, folio, page of the file.
    Presence,
    /// Processes: order of the folio, and which page of it.
    Folio,
    /// Processes: the exclusive bit.
    Exclusive,
    /// Processes: whether a PMD entry maps the page.
    Pmd,
    /// Processes: pages that got a new frame.
    Frame,
    /// Processes: what the page holds.
    Content,
    /// Processes: how much of the program's own file is cached.
    Cached,
    /// Processes: how often a page is mapped (`kpagecount`).
    Mapcount,
    /// Processes: what `smaps` and `numa_maps` say of an area, in kB.
    Smaps,
    /// Processes: mapped pages of the machine (`meminfo`) since the program began, in kB.
    Machine,
    /// Processes: the blocks that khugepaged looked at, in order, and what came of each.
    Scan,
    /// Processes: pages that went to swap space and came back, and slots in use.
    Swap,
    /// Processes: which pages are one page.
    Sharing,
    /// Processes: free, promised and surplus pages of the pool of huge pages.
    Pool,
    /// Processes: the model broke its own invariants.
    Invariant,
}

/// Something in which kernel and model differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// In what.
    pub aspect: Aspect,
    /// Where.
    #[serde(flatten)]
    pub place: Location,
    /// What the kernel did or has.
    pub kernel: String,
    /// What the model did or has.
    pub model: String,
}

/// Where kernel and model differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Location {
    /// A step of a recording of files.
    Step {
        /// From 0; the number of steps = at the end.
        step: usize,
        /// What the program did.
        action: String,
        /// Readahead state before, if there is one.
        state_before: Option<String>,
    },
    /// A page of a process, after the last step that was compared.
    Page {
        /// Process.
        slot: usize,
        /// Page of the window.
        page: u64,
        /// The model's folio behind the page before the step; empty where it is not known.
        #[serde(rename = "before")]
        folio_before: String,
    },
}

impl Location {
    /// A page of a process.
    pub(super) fn page(slot: usize, page: u64) -> Self {
        Self::Page { slot, page, folio_before: String::new() }
    }

    /// What the model had there before the step, where that is known.
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

/// A list for people.
pub(super) fn shown<T: Debug>(items: &[T]) -> String {
    match items.get(..NR_SHOWN) {
        Some(first) if items.len() > NR_SHOWN => {
            format!("{first:?} and {} more", items.len() - NR_SHOWN)
        }
        _ => format!("{items:?}"),
    }
}
