//! Facts that identify a program's runtime and allocator.
//!
//! Owns the facts that rows of the table are compared with; [`super::program`] reads them.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::census::start::Start;

/// The C library that provides `malloc` to most programs.
pub(super) const LIBC: &str = "libc.so.6";

/// Facts about a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Its own file; empty if that is not known.
    pub program: PathBuf,
    /// The name it was started by, which a link may have; empty if that is not known.
    pub name: String,
    /// Names of mapped files, without folders.
    pub objects: Vec<String>,
    /// Owners of its notes.
    pub notes: Vec<String>,
    /// The known constants that it holds.
    pub constants: Vec<String>,
    /// Name of the file that provides its `malloc`; empty if that is not known.
    pub allocator: String,
    /// How it was started.
    pub start: Start,
    /// The words that start it again, without its arguments.
    pub typed: Vec<OsString>,
}

impl Traits {
    /// Whether it uses a `malloc` that is not glibc's.
    #[must_use]
    pub fn has_foreign_allocator(&self) -> bool {
        !self.allocator.is_empty() && self.allocator != LIBC
    }
}
