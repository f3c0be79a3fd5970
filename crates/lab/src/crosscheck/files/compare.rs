//! Compares one recording of files with the model.

mod check;
mod ends;
mod steps;

use super::body::FileSteps;
use super::step::FileStep;
use super::timing::{IoTiming, NR_WAITS_MAX};
use crate::crosscheck::difference::Aspect;
use crate::crosscheck::error::CheckError;
use crate::crosscheck::recording::Recording;
use crate::crosscheck::verdict::Verdict;
use check::FileComparison;
use largefolio_sim::kernel::Kernel;

const WRITTEN: &str = "writes under a limit, after the first request";

impl Recording<FileSteps> {
    /// Replays under `kernel`, or under the recorded kernel's rules.
    ///
    /// # Errors
    /// There are no rules for it, or the model cannot be set up. A difference is not an error.
    pub fn check(&self, kernel: Option<&Kernel>) -> Result<Verdict, CheckError> {
        let kernel = self.rules(kernel)?;
        if self.body.is_empty() {
            return Err(CheckError::NothingTraced(self.name.clone()));
        }
        let mut timing = IoTiming::default();
        loop {
            let mut check = FileComparison::new(self, &kernel, timing.clone())?;
            check.run();
            if !timing.learn(&check.learned) {
                return Ok(check.verdict);
            }
        }
    }
}

impl FileComparison<'_> {
    fn run(&mut self) {
        for (nr, step) in self.workload.steps.iter().enumerate() {
            let was_cached = self.replay.may_be_in_flight(&step.action);
            let passes = self.step(nr, step);
            self.verdict.nr_steps = nr + 1;
            if self.verdict.is_equal() {
                if self.depends_on_disk(step) {
                    return;
                }
                continue;
            }
            let is_more = step.handler.len() > passes.len() && step.handler.starts_with(&passes);
            let is_wait = is_more
                && self.verdict.differences.iter().all(|difference| {
                    matches!(difference.aspect, Aspect::Handler | Aspect::Around)
                });
            if is_wait && was_cached {
                self.learned.waits.insert(nr);
            }
            // A cold fault that repeated while its page was still being read. The extra pass
            // changes nothing, so the model needs no hint.
            if is_wait && !was_cached && self.verdict.nr_waits < NR_WAITS_MAX as u64 {
                self.verdict.nr_waits += 1;
                self.verdict.differences.clear();
                continue;
            }
            return;
        }
        self.ends();
    }

    /// Returns whether writeback timing decides the rest, and records that. Under a limit, after
    /// the first request, dirty folios that reclaim skipped leave once the disk has written them.
    fn depends_on_disk(&mut self, step: &FileStep) -> bool {
        let is_decided = self.workload.is_limited()
            && self.replay.nr_dirtied() > 0
            && !step.evictions().is_empty();
        if is_decided {
            let reason = self.verdict.not_compared.entry(WRITTEN.to_owned()).or_default();
            reason.nr_calls += 1;
            reason.files.extend(self.replay.file_of(&step.action));
        }
        is_decided
    }
}
