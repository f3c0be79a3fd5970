//! One recording of files compared with the model.

mod check;
mod ends;
mod steps;

use super::body::FileSteps;
use super::timing::{IoTiming, NR_WAITS_MAX};
use crate::crosscheck::difference::Aspect;
use crate::crosscheck::error::CheckError;
use crate::crosscheck::recording::Recording;
use crate::crosscheck::verdict::Verdict;
use crate::kernel::Kernel;
use check::FileComparison;

impl Recording<FileSteps> {
    /// Replays under `kernel`, or under the rules of the kernel that made the recording.
    ///
    /// # Errors
    /// When there are no rules for it or the model cannot be set up. A difference is not an error.
    pub fn check(&self, kernel: Option<&Kernel>) -> Result<Verdict, CheckError> {
        let kernel = self.rules(kernel)?;
        if self.body.is_empty() {
            return Err(CheckError::NothingTraced(self.name.clone()));
        }
        let mut timing = IoTiming::default();
        loop {
            let mut check = FileComparison::new(self, &kernel, timing.clone())?;
            check.run();
            if !timing.learn(&check.found) {
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
                continue;
            }
            let is_more = step.handler.len() > passes.len() && step.handler.starts_with(&passes);
            let is_wait = is_more
                && self
                    .verdict
                    .differences
                    .iter()
                    .all(|found| matches!(found.aspect, Aspect::Handler | Aspect::Around));
            if is_wait && was_cached {
                self.found.waits.insert(nr);
            }
            // A cold fault whose page was still being read when the fault was repeated: the model
            // needs no hint, the additional pass changes nothing.
            if is_wait && !was_cached && self.verdict.nr_waits < NR_WAITS_MAX as u64 {
                self.verdict.nr_waits += 1;
                self.verdict.differences.clear();
                continue;
            }
            return;
        }
        self.ends();
    }
}
