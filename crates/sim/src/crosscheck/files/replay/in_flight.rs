//! Reads in flight: what the recording says about them, and whether they would explain a
//! difference.

use largefolio_mm::core::in_flight::Completion;
use largefolio_mm::units::PageIndex;

use super::super::body::FileSteps;
use super::super::step::Action;
use super::FileReplay;

impl FileReplay {
    /// Self-built kernels print which folios were still locked when a fault found them. On a slow
    /// disk a touch that passes the handler twice had to wait; where the handler is not traced,
    /// every hit is taken for one, which gives back no miss.
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

    /// When the reads of step `nr` complete.
    pub(super) fn completion(&self, nr: usize) -> Completion {
        if self.reads_within_call {
            return Completion { nr_early: u32::MAX, late_from: None };
        }
        self.timing.completion(nr)
    }

    /// Whether step `nr` was told that its page is still being read.
    pub(in super::super) fn is_wait(&self, nr: usize) -> bool {
        self.timing.waits.contains(&nr)
    }

    /// Which step's reads were complete earlier if the kernel has a page of a mapping present and
    /// the model does not: the step, and the requests.
    pub(in super::super) fn early(&self, area: u32, index: u64) -> Option<(usize, u32)> {
        let out = self.reads.left_out(self.file_of_area(area)?, index)?;
        Some((out.step, self.completion(out.step).nr_early.saturating_add(out.nr_requests)))
    }

    /// Which step's reads were complete later if the model has a page of a mapping present and the
    /// kernel does not.
    pub(in super::super) fn late(&self, area: u32, index: u64) -> Option<usize> {
        self.reads.waited(self.file_of_area(area)?, index)
    }

    /// Whether `action` touches a page that is cached and bears no marker: fault-around serves it,
    /// unless its read is still in flight.
    pub(in super::super) fn may_be_in_flight(&self, action: &Action) -> bool {
        let Action::Touch { index, area, .. } = action else { return false };
        self.cached(*area, PageIndex(*index))
            .is_some_and(|id| !self.memory.core().folios.get(id).is_marked)
    }

    /// Puts the read of a cached page back in flight.
    pub(super) fn lock_cached(&mut self, area: u32, index: PageIndex) {
        if let Some(id) = self.cached(area, index) {
            self.memory.read_again(id);
        }
    }
}
