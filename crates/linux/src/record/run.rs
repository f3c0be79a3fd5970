//! Runs a plan.

use super::error::RecordError;
use super::outcome::{Outcome, Progress};
use super::plan::Recording;
use super::tools::Tool;
use super::{qemu, valgrind};

impl Recording {
    /// Runs the program under the recorder and writes the trace. Calls `progress` about ten times a
    /// second.
    ///
    /// # Errors
    /// [`RecordError::Output`], [`RecordError::Os`] or [`RecordError::RecorderFailed`] before the program does anything; [`RecordError::Trace`] if the trace cannot be completed.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, RecordError> {
        match &self.tool {
            Tool::Qemu { qemu, plugin } => qemu::run(self, qemu, plugin, progress),
            Tool::Valgrind { valgrind, reason } => valgrind::run(self, valgrind, reason, progress),
        }
    }
}
