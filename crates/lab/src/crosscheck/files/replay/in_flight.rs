//! Reads in flight: the facts in the recording, and whether they would explain a difference.

use largefolio_mm::core::in_flight::Completion;
use largefolio_mm::units::PageIndex;

use super::super::body::FileSteps;
use super::super::step::{Action, PageRun};
use super::FileReplay;

impl FileReplay {
    /// Delays the reads that were slow in the recording. Self-built kernels print which folios were
    /// still locked when a fault found them. On a slow disk, a touch that passes the handler twice
    /// had to wait. If the handler is not traced, every hit counts as a wait, which does not
    /// decrement the miss counter.
    pub(super) fn delay_reads(&mut self, workload: &FileSteps) {
        let Some(&file) = self.files.get(&0) else { return };
        let is_slow = workload.is_slow();
        let shows_handler = workload.shows_handler();
        let locked = workload.steps.iter().filter_map(|step| {
            if let Some(hit) = step.hits.first() {
                return hit.is_locked.then_some(hit.index);
            }
            let Action::Touch { index, .. } = step.action else { return None };
            let has_waited = step.handler.len() == 2 || !shows_handler;
            (is_slow && step.insertions.is_empty() && has_waited).then_some(index)
        });
        for index in locked {
            self.memory.delay_read(file, PageIndex(index));
        }
    }

    pub(super) fn completion(&self, nr: usize) -> Completion {
        if self.reads_within_call {
            return Completion { nr_early: u32::MAX, late_from: None };
        }
        self.timing.completion(nr)
    }

    pub(in super::super) fn is_wait(&self, nr: usize) -> bool {
        self.timing.waits.contains(&nr)
    }

    /// The kernel has a page present and the model has not: returns the step whose reads must have
    /// completed earlier, and the number of requests.
    pub(in super::super) fn early(&self, area: u32, index: u64) -> Option<(usize, u32)> {
        let out = self.reads.left_out(self.file_of_area(area)?, index)?;
        Some((out.step, self.completion(out.step).nr_early.saturating_add(out.nr_requests)))
    }

    /// Fault-around found a folio in these pages, and the model's fault none: returns the requests
    /// that must have completed earlier, if the model's fault skipped one that it was reading.
    pub(in super::super) fn early_in(&self, step: usize, file: u32, run: PageRun) -> Option<u32> {
        let nr_requests = self.reads.first_left_out(step, file, run)?;
        Some(self.completion(step).nr_early.saturating_add(nr_requests))
    }

    /// The model has a page present and the kernel has not: returns the step whose reads must have
    /// completed later.
    pub(in super::super) fn late(&self, area: u32, index: u64) -> Option<usize> {
        self.reads.waited(self.file_of_area(area)?, index)
    }

    /// Returns whether `action` touches a cached page without a marker. Fault-around serves it
    /// unless its read is still in flight.
    pub(in super::super) fn may_be_in_flight(&self, action: &Action) -> bool {
        let Action::Touch { index, area, .. } = action else { return false };
        self.cached(*area, PageIndex(*index))
            .is_some_and(|id| !self.memory.core().folios.get(id).is_marked)
    }

    pub(super) fn lock_cached(&mut self, area: u32, index: PageIndex) {
        if let Some(id) = self.cached(area, index) {
            self.memory.read_again(id);
        }
    }
}
