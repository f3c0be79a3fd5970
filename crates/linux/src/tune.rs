//! System settings that affect large folios: planning, applying and undoing changes.
//!
//! ```text
//!   tunings/NAME.toml --+
//!   NAME=VALUE ---------+--> ChangeSet: now -> planned --> Record on disk --> writes, one by one
//!                                                             |                     | one fails
//!                                       undo: in reverse <----+---------------------+
//! ```
//!
//! [`crate::setting`] owns changes for one run, [`crate::persist`] the contents of files.
//!
//! Invariants:
//! - T1: a setting is written only after a record with its old value is on disk. A file is written
//!   only after a record with its text is on disk.
//! - T2: a record's old value is the one before the first plan, no matter how many plans followed.
//! - T3: only settings in the catalog are written, with a word that the setting offers or a bounded
//!   number, so a forged record can do no more harm than a plan. Records contain the places of
//!   files, not paths.

pub mod catalog;
pub mod entry;
pub mod files;
pub mod plan;
pub mod profile;
pub mod record;
pub mod warnings;

use std::io;
use std::path::PathBuf;

use largefolio_trace::shown;

use crate::persist::PersistError;

#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error("no setting {name:?}; {expected}")]
    Name { name: String, expected: &'static str },
    #[error("{name}: cannot read {}: {source}; does this kernel have the setting?", shown(path))]
    Read { name: String, path: PathBuf, source: io::Error },
    #[error(
        "{name}: this kernel does not have the setting: there is no {}; `make kernel` in \
         largefolio's source builds a kernel that has it (docs/guide/kernel.md)",
        shown(path)
    )]
    NoFeature { name: String, path: PathBuf },
    #[error("{name}: cannot be {value:?}; expected {expected}")]
    Value { name: String, value: String, expected: String },
    #[error("cannot set {name} to {value:?} ({}): {source}{remedy}", shown(path))]
    Write { name: String, value: String, path: PathBuf, source: io::Error, remedy: &'static str },
    #[error(
        "{}: {source}; folio tune needs /proc and /sys, or copies of them below --root",
        shown(path)
    )]
    Root { path: PathBuf, source: io::Error },
    #[error("{name}: {message}")]
    Busy { name: String, message: String },
    #[error("{}: {message}", shown(file))]
    Profile { file: String, message: String },
    #[error(transparent)]
    File(#[from] PersistError),
    #[error("{}: {message}", shown(path))]
    Record { path: PathBuf, message: String },
}

#[cfg(test)]
mod tests;
