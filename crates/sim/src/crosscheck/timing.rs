//! What of a recording was a matter of time: which reads were complete when somebody looked.
//!
//! The model's rule (`largefolio_mm`'s `in_flight`): a fault waits for the request of its own page,
//! everything else is in flight until the fault has ended. A kernel may be slower or faster.
//! Where it was, its recording shows it, and the replay is told so, step by step.

use std::collections::{BTreeMap, BTreeSet};

/// Waits for I/O taken from one recording; more than a few mean another difference.
pub(super) const NR_WAITS_MAX: usize = 16;

/// Facts of one recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    /// Steps at which the touched page was still being read.
    pub(super) waits: BTreeSet<usize>,
    /// Steps whose fault found requests complete that it did not wait for: how many.
    pub(super) early: BTreeMap<usize, u32>,
}

impl Timing {
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
        is_new
    }
}

/// A folio that fault-around left out because its fault was still reading it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOut {
    /// Step of the fault.
    pub(super) step: usize,
    /// File, first page, page behind the last.
    pub(super) folio: (u32, u64, u64),
    /// Requests that were missing.
    pub(super) nr_requests: u32,
}
