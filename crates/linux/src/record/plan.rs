//! A checked recording, ready to run.
//!
//! Owns the order of the checks. Nothing is started or written by [`Plan::new`], except that the
//! output's directory is asked whether it takes a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use largefolio_trace::disk;

use super::program::{self, Program};
use super::system::{Host, System};
use super::tools::{self, Tool};
use super::{Outcome, Progress, RecordError, qemu, valgrind};

/// Which recorder to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum With {
    /// QEMU where it has plugins, else valgrind.
    #[default]
    Auto,
    /// QEMU or an error.
    Qemu,
    /// Valgrind or an error.
    Valgrind,
}

/// A recording that can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) program: Program,
    pub(super) command: Vec<OsString>,
    pub(super) output: PathBuf,
    pub(super) tool: Tool,
}

impl Plan {
    /// Checks that `command` can be recorded into `output` (default: `<program>.folio` in the
    /// current directory) on this machine.
    ///
    /// # Errors
    /// The first thing that is wrong, with its remedy.
    pub fn new(
        command: &[OsString],
        output: Option<&Path>,
        with: With,
    ) -> Result<Self, RecordError> {
        Self::with_system(&Host, command, output, with)
    }

    /// [`Plan::new`] on another [`System`].
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_system(
        system: &dyn System,
        command: &[OsString],
        output: Option<&Path>,
        with: With,
    ) -> Result<Self, RecordError> {
        let program = program::resolve(system, command)?;
        let tool = tools::choose(system, with)?;
        let output =
            output.map_or_else(|| program::default_output(&program.name), Path::to_path_buf);
        disk::check(&output)
            .map_err(|source| RecordError::Output { path: output.clone(), source })?;
        Ok(Self { program, command: command.to_vec(), output, tool })
    }

    /// The trace file that will be written.
    #[must_use]
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The recorder that will be used.
    #[must_use]
    pub fn tool(&self) -> &Tool {
        &self.tool
    }

    /// Runs the program under the recorder and writes the trace. `progress` is called about ten
    /// times a second.
    ///
    /// # Errors
    /// [`RecordError::Output`], [`RecordError::Os`] or [`RecordError::RecorderFailed`] before the
    /// program does anything, [`RecordError::Trace`] when the trace cannot be completed.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, RecordError> {
        match &self.tool {
            Tool::Qemu { qemu, plugin } => qemu::run(self, qemu, plugin, progress),
            Tool::Valgrind { valgrind, reason } => valgrind::run(self, valgrind, reason, progress),
        }
    }
}
