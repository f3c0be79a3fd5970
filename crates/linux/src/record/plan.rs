//! A checked recording, ready to run.
//!
//! [`Recording::new`] starts nothing and writes nothing; it only checks that the output's directory
//! accepts a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use largefolio_trace::PlainRun;

use super::error::RecordError;
use super::program::{self, Program};
use super::tools::{self, Emulator};
use crate::environment::{Environment, Host};

#[derive(Clone, Copy, Debug, Default)]
pub struct RecordRequest<'a> {
    pub command: &'a [OsString],
    /// Default: `<program>.folio` in the current directory.
    pub output: Option<&'a Path>,
    /// Absolute paths of the program are searched below this directory first.
    pub root: Option<&'a Path>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub(super) program: Program,
    pub(super) command: Vec<OsString>,
    pub(super) output: PathBuf,
    pub(super) emulator: Emulator,
    pub(super) runs: Vec<PlainRun>,
}

impl Recording {
    /// Checks that this machine can make the recording.
    ///
    /// # Errors
    /// The first problem, with its remedy.
    pub fn new(request: &RecordRequest<'_>) -> Result<Self, RecordError> {
        Self::in_environment(&Host, request)
    }

    /// Does the same as [`Recording::new`] in another [`Environment`].
    ///
    /// # Errors
    /// See [`Recording::new`].
    pub fn in_environment(
        environment: &dyn Environment,
        request: &RecordRequest<'_>,
    ) -> Result<Self, RecordError> {
        let RecordRequest { command, output, root } = *request;
        let program = program::resolve(environment, command, root)?;
        if environment.gives_rights(&program.elf) {
            return Err(RecordError::OtherRights(program.elf));
        }
        let emulator = tools::find(environment, program.arch)?;
        let output = program::checked_output(output, &program.name)?;
        Ok(Self { program, command: command.to_vec(), output, emulator, runs: Vec::new() })
    }

    #[must_use]
    pub fn output(&self) -> &Path {
        &self.output
    }

    #[must_use]
    pub fn emulator(&self) -> &Emulator {
        &self.emulator
    }
}
