//! What a kernel answered to programs.

use std::path::Path;

use largefolio_mm::rules::Arch;

use super::parse::{self, ParseError};
use super::program::{Program, Range};
use super::world::{PageState, World};
use crate::crosscheck::{LibraryError, read_texts};

/// The output of one run of `probe/cow.c`.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Where it came from.
    pub name: String,
    /// First line.
    pub header: Header,
    /// The programs, in order.
    pub runs: Vec<Run>,
}

/// The kernel that answered.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// Base page in bytes.
    pub page_bytes: u64,
    /// `x86-64` or `arm64`.
    pub arch: String,
    /// `uname -r`.
    pub release: String,
    /// Filesystem of the programs' own files, where they lie on a disk.
    pub disk: String,
    /// The kernel does not tell what a PMD entry maps (before 6.7).
    pub hides_pmds: bool,
}

impl Header {
    pub(super) fn arch(&self) -> Arch {
        if self.arch == "x86-64" { Arch::X86_64 } else { Arch::Arm64 }
    }
}

/// One program and its answers.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The program.
    pub program: Program,
    /// One for each step.
    pub answers: Vec<Answer>,
    /// Events of the machine that move or split pages behind a program's back, with their number.
    pub disturbances: Vec<String>,
    /// Whether the last step was reached.
    pub is_complete: bool,
}

/// What a step did.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Error number, 14 for an access that may not be.
    pub error: Option<u32>,
    /// Pages whose state changed.
    pub changes: Vec<Change>,
    /// Pages of the program's own file that are cached, where their number changed.
    pub nr_cached: Option<u64>,
}

/// Pages that changed in the same way.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Process.
    pub slot: usize,
    /// Pages.
    pub range: Range,
    /// State of the first page; the following ones are the next pages of its folio.
    pub state: PageState,
}

/// Calls `each` with every recording of `path`: a text, an archive, or a folder of those.
///
/// # Errors
/// What cannot be read or is not of the format.
pub fn read_all(path: &Path, each: &mut dyn FnMut(Recording)) -> Result<(), LibraryError> {
    read_texts(path, &mut |name, text| {
        each(Recording::parse(name, text)?);
        Ok(())
    })
}

impl Recording {
    /// Reads the output of `probe/cow.c`.
    ///
    /// # Errors
    /// The first line that is not of the format (`recordings/README.md`).
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseError> {
        parse::recording(name, text)
    }
}

impl Answer {
    /// Applies the changes to what was there before the step.
    pub fn apply(&self, world: &mut World) {
        for change in &self.changes {
            world.set(change.slot, change.range, change.state);
        }
    }
}
