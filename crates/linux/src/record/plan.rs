//! A checked recording, ready to run.
//!
//! Owns the order of the checks. Nothing is started or written by [`Recording::new`], except that the
//! output's directory is asked whether it takes a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use largefolio_trace::PlainRun;

use super::error::RecordError;
use super::program::{self, Program};
use super::tools::{self, Tool, With};
use crate::environment::{Environment, Host};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// Program and arguments.
    pub command: &'a [OsString],
    /// Default: `<program>.folio` in the current directory.
    pub output: Option<&'a Path>,
    /// Recorder.
    pub with: With,
    /// Directory below which absolute paths of the program are looked for first.
    pub root: Option<&'a Path>,
}

/// A recording that can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub(super) program: Program,
    pub(super) command: Vec<OsString>,
    pub(super) output: PathBuf,
    pub(super) tool: Tool,
    /// Runs of the program without a recorder.
    pub(super) runs: Vec<PlainRun>,
}

impl Recording {
    /// Checks that what is asked for can be recorded on this machine.
    ///
    /// # Errors
    /// The first thing that is wrong, with its remedy.
    pub fn new(request: &Request<'_>) -> Result<Self, RecordError> {
        Self::in_environment(&Host, request)
    }

    /// [`Recording::new`] in another [`Environment`].
    ///
    /// # Errors
    /// As [`Recording::new`].
    pub fn in_environment(
        environment: &dyn Environment,
        request: &Request<'_>,
    ) -> Result<Self, RecordError> {
        let Request { command, output, with, root } = *request;
        let program = program::resolve(environment, command, root)?;
        if environment.gives_rights(&program.elf) {
            return Err(RecordError::OtherRights(program.elf));
        }
        let tool = tools::choose(environment, program.arch, with)?;
        let output = program::checked_output(output, &program.name)?;
        Ok(Self { program, command: command.to_vec(), output, tool, runs: Vec::new() })
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
}
