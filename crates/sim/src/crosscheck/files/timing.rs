//! What depended on time in a recording: which reads were complete at a certain moment.
//!
//! The model's rule (`largefolio_mm`'s `in_flight`): a fault waits for the request of its own page,
//! everything else is in flight until the fault has ended. A kernel may be slower or faster. If so,
//! its recording shows it, and the replay is told, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use largefolio_mm::core::in_flight::Completion;
use largefolio_mm::units::PageIndex;

/// Waits for I/O taken from one recording; more than a few mean another difference.
pub(super) const NR_WAITS_MAX: usize = 16;

/// Facts of one recording.
#[derive(Clone, Debug, Default)]
pub(super) struct IoTiming {
    /// Steps at which the touched page was still being read.
    pub(super) waits: BTreeSet<usize>,
    /// Steps whose fault found requests complete that it did not wait for: how many.
    pub(super) early: BTreeMap<usize, u32>,
    /// Steps whose fault was woken before all of its request was: the first page that was not.
    pub(super) late: BTreeMap<usize, u64>,
}

impl IoTiming {
    /// Takes in what a comparison found; whether it is new. A fact that is known already and did
    /// not help is none.
    pub(super) fn learn(&mut self, found: &Self) -> bool {
        let mut is_new = false;
        for &step in &found.waits {
            is_new |= self.waits.len() < NR_WAITS_MAX && self.waits.insert(step);
        }
        for (&step, &nr_requests) in &found.early {
            let known = self.early.entry(step).or_default();
            is_new |= *known < nr_requests;
            *known = nr_requests.max(*known);
        }
        for (&step, &page) in &found.late {
            let known = self.late.entry(step).or_insert(u64::MAX);
            is_new |= page < *known;
            *known = page.min(*known);
        }
        is_new
    }

    /// When the reads of step `nr` complete.
    pub(super) fn completion(&self, nr: usize) -> Completion {
        Completion {
            nr_early: self.early.get(&nr).copied().unwrap_or(0),
            late_from: self.late.get(&nr).copied().map(PageIndex),
        }
    }

    /// Faults whose reads completed sooner or later than by the rule.
    pub(super) fn nr_off_rule(&self) -> u64 {
        (self.early.len() + self.late.len()) as u64
    }
}

/// What faults did with folios that they were reading.
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

    /// The last fault that left a page of a file out of fault-around.
    pub(super) fn left_out(&self, file: u32, index: u64) -> Option<&LeftOut> {
        self.left_out.iter().rev().find(|out| out.file == file && out.pages.contains(&index))
    }

    /// The last fault that waited for the request of a page, but not for the page itself; its step.
    pub(super) fn waited(&self, file: u32, index: u64) -> Option<usize> {
        let found =
            self.waited.iter().rev().find(|out| out.file == file && out.behind.contains(&index));
        found.map(|out| out.step)
    }
}

/// A folio that fault-around left out because its fault was still reading it.
#[derive(Clone, Debug)]
pub(super) struct LeftOut {
    /// Step of the fault.
    pub(super) step: usize,
    /// File.
    pub(super) file: u32,
    /// The folio.
    pub(super) pages: Range<u64>,
    /// Requests that were missing.
    pub(super) nr_requests: u32,
}

/// A fault that waited for the request of its page.
#[derive(Clone, Debug)]
pub(super) struct Waited {
    /// Step of the fault.
    pub(super) step: usize,
    /// File.
    pub(super) file: u32,
    /// Pages of the request behind the one waited for.
    pub(super) behind: Range<u64>,
}
