//! The facts in a recording that depended on time: which reads were complete at a given moment.
//!
//! In the model (`largefolio_mm`'s `in_flight`), a fault waits for its own page's request, and all
//! other requests stay in flight until the fault ends. A real kernel can be slower or faster. If
//! its recording proves this, the replay takes the fact for that step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::step::PageRun;
use largefolio_mm::core::in_flight::Completion;
use largefolio_mm::units::PageIndex;

/// Maximum number of I/O waits taken from a recording; more point to another difference.
pub(super) const NR_WAITS_MAX: usize = 16;

/// Maximum number of requests that are complete early, by the same argument. A fault issues few.
const NR_EARLY_MAX: u32 = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct IoTiming {
    /// Steps whose touched page was still being read.
    pub(super) waits: BTreeSet<usize>,
    /// Per step: requests already complete although its fault did not wait for them.
    pub(super) early: BTreeMap<usize, u32>,
    /// Per step: the first page still being read when its fault woke up.
    pub(super) late: BTreeMap<usize, u64>,
}

impl IoTiming {
    /// Adds facts that a comparison found. Returns whether any is new: a known fact did not help.
    pub(super) fn learn(&mut self, other: &Self) -> bool {
        let mut is_new = false;
        for &step in &other.waits {
            is_new |= self.waits.len() < NR_WAITS_MAX && self.waits.insert(step);
        }
        for (&step, &nr_requests) in &other.early {
            let known = self.early.entry(step).or_default();
            is_new |= *known < nr_requests && nr_requests <= NR_EARLY_MAX;
            *known = nr_requests.max(*known);
        }
        for (&step, &page) in &other.late {
            let known = self.late.entry(step).or_insert(u64::MAX);
            is_new |= page < *known;
            *known = page.min(*known);
        }
        is_new
    }

    pub(super) fn completion(&self, nr: usize) -> Completion {
        Completion {
            nr_early: self.early.get(&nr).copied().unwrap_or(0),
            late_from: self.late.get(&nr).copied().map(PageIndex),
        }
    }

    pub(super) fn nr_off_rule(&self) -> u64 {
        (self.early.len() + self.late.len()) as u64
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct FaultReads {
    left_out: Vec<LeftOut>,
    waited: Vec<Waited>,
}

impl FaultReads {
    pub(super) fn leave_out(&mut self, out: LeftOut) {
        self.left_out.push(out);
    }

    pub(super) fn wait(&mut self, waited: Waited) {
        self.waited.push(waited);
    }

    pub(super) fn left_out(&self, file: u32, index: u64) -> Option<&LeftOut> {
        self.left_out.iter().rev().find(|out| out.file == file && out.pages.contains(&index))
    }

    /// Returns the requests before the first folio that `step` left out of these pages.
    pub(super) fn first_left_out(&self, step: usize, file: u32, run: PageRun) -> Option<u32> {
        let overlaps = |pages: &Range<u64>| pages.start <= run.1 && run.0 < pages.end;
        let of_step = self.left_out.iter().filter(|out| (out.step, out.file) == (step, file));
        of_step.filter(|out| overlaps(&out.pages)).map(|out| out.nr_requests).min()
    }

    /// Returns the step of the last fault that waited for the page's request, but for an earlier
    /// page.
    pub(super) fn waited(&self, file: u32, index: u64) -> Option<usize> {
        let other =
            self.waited.iter().rev().find(|out| out.file == file && out.behind.contains(&index));
        other.map(|out| out.step)
    }
}

/// A folio that fault-around skipped because its own fault was still reading it.
#[derive(Clone, Debug)]
pub(super) struct LeftOut {
    pub(super) step: usize,
    pub(super) file: u32,
    pub(super) pages: Range<u64>,
    pub(super) nr_requests: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Waited {
    pub(super) step: usize,
    pub(super) file: u32,
    /// The request's pages after the page waited for.
    pub(super) behind: Range<u64>,
}
