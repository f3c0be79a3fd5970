//! The text remapper: the program's text copied into shared memory of large folios at its start.
//!
//! Owns what a program's environment needs for it. This build has no remapper: every answer is the
//! refusal, and `--text remap` falls back to a plain start.

use std::ffi::OsString;

use super::fallback::Fallback;
use super::program::Program;

/// Variables that make the program's loader remap its text.
pub(super) fn prepare(_program: &Program) -> Result<Vec<(OsString, OsString)>, Fallback> {
    Err(Fallback::NoRemap)
}
