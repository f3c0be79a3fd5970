//! Settings of the running system that decide about large folios: a plan, its application, its undoing.
//!
//! ```text
//!   tunings/NAME.toml --+
//!   NAME=VALUE ---------+--> ChangeSet: now -> planned --> Record on disk --> writes, one by one
//!                                                             |                     | one fails
//!                                       undo: in reverse <----+---------------------+
//! ```
//!
//! Owns the names of settings ([`catalog`]), profiles ([`profile`]), plans, and the record of old
//! values and of files ([`record`], [`files`]). Does not own changes for the time of one run: that is
//! [`crate::setting`]; nor what is in files: that is [`crate::persist`].
//!
//! Invariants:
//! - T1: a setting is written only after a record that has its old value is on disk; a file only after
//!   a record that has its text.
//! - T2: the old value in a record is the one before the first plan, however many followed.
//! - T3: only names of the catalogue are written, with a word the setting offers or a bounded
//!   number: a record that somebody else wrote can do no more than a plan. Of files it has places, not
//!   paths (P1 of [`crate::persist`]).

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

/// Why a plan could not be made, applied or undone.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// No such setting.
    #[error("no setting {name:?}; {expected}")]
    Name {
        /// The request.
        name: String,
        /// What there is.
        expected: &'static str,
    },
    /// The kernel does not have it, or it cannot be read.
    #[error("{name}: cannot read {}: {source}; does this kernel have the setting?", shown(path))]
    Read {
        /// Setting.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Not a value of this setting.
    #[error("{name}: cannot be {value:?}; expected {expected}")]
    Value {
        /// Setting.
        name: String,
        /// The request.
        value: String,
        /// What it takes.
        expected: String,
    },
    /// The kernel refused the value.
    #[error("cannot set {name} to {value:?} ({}): {source}{remedy}", shown(path))]
    Write {
        /// Setting.
        name: String,
        /// Value.
        value: String,
        /// Its file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The system cannot be looked at.
    #[error("{}: {source}; folio tune needs /proc and /sys, or those below --root", shown(path))]
    Root {
        /// What is not there.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Somebody else is changing it.
    #[error("{name}: {message}")]
    Busy {
        /// Setting.
        name: String,
        /// Who, or what came between.
        message: String,
    },
    /// An invalid profile.
    #[error("{}: {message}", shown(file))]
    Profile {
        /// File, or name of a profile of our own.
        file: String,
        /// What is wrong, with the line.
        message: String,
    },
    /// A name or a value that cannot be written to a file of the system.
    #[error("{what}: {message}")]
    Given {
        /// What was asked for.
        what: String,
        /// Why not.
        message: String,
    },
    /// A file of the system cannot be written or taken back.
    #[error("{}: {message}", shown(path))]
    File {
        /// The file, or a directory on the way to it.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// The record of old values cannot be used.
    #[error("{}: {message}", shown(path))]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
}

#[cfg(test)]
mod tests;
