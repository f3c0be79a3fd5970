//! Facts that identify a program's runtime and allocator.
//!
//! The table's rows are compared with these facts; [`super::program`] reads them.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::program::start::Start;

/// The C library that provides `malloc` to most programs.
pub(super) const LIBC: &str = "libc.so.6";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The program's file; empty if unknown.
    pub program: PathBuf,
    /// The name it was started by, which may be a link's; empty if unknown.
    pub name: String,
    pub objects: Vec<String>,
    pub notes: Vec<String>,
    pub constants: Vec<String>,
    /// The name of the file that provides its `malloc`; empty if unknown.
    pub allocator: String,
    pub start: Start,
    /// The command line that starts it again, without its arguments.
    pub typed: Vec<OsString>,
}

impl Traits {
    #[must_use]
    pub fn has_foreign_allocator(&self) -> bool {
        !self.allocator.is_empty() && self.allocator != LIBC
    }
}
