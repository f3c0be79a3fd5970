//! Errors of a trace file: cause and remedy in a sentence or two.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use thiserror::Error;

use crate::disk::other_kind;
use crate::shown;
use crate::shown::brief;
use crate::validate::{MetaFault, RowFault};

/// Failure to write or read a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}. Check {}.", shown(path), to_check(action))]
    Io {
        /// File concerned.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "{} is not a largefolio trace: it is {found}. Make one with `folio record` or \
        `folio trace gen`.",
        shown(path)
    )]
    NotATrace {
        /// File concerned.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// The file was a trace and is cut short or damaged.
    #[error(
        "{} is truncated or corrupt: {what}. Copy it again from its source, or record it \
        again.",
        shown(path)
    )]
    Corrupt {
        /// File concerned.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The trace was written by a newer folio.
    #[error(
        "{} has schema version {found}, this folio reads up to {known}. Use a newer folio.",
        shown(path)
    )]
    NewerSchema {
        /// File concerned.
        path: PathBuf,
        /// Version in the footer.
        found: u32,
        /// Newest version this crate reads.
        known: u32,
    },
    /// A row breaks a rule of [`crate::validate`].
    #[error(
        "row {row} of {} is invalid: {fault}. Its recorder or generator has a bug; record it again \
         with the current folio.",
        shown(path)
    )]
    BadRow {
        /// File concerned.
        path: PathBuf,
        /// Row number, counted from 0.
        row: u64,
        /// Rule that is broken.
        fault: RowFault,
    },
    /// The footer breaks a rule of [`crate::validate`].
    #[error(
        "the metadata of {} is invalid: {fault}. Its recorder or generator has a bug; record it \
         again with the current folio.",
        shown(path)
    )]
    BadMeta {
        /// File concerned.
        path: PathBuf,
        /// Rule that is broken.
        fault: MetaFault,
    },
    /// More than a trace can hold.
    #[error("{} cannot take more: {what}. Record a shorter part, or fewer processes.", shown(path))]
    TooLarge {
        /// File concerned.
        path: PathBuf,
        /// Limit that was met.
        what: String,
    },
}

impl TraceError {
    pub(super) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), action, source }
    }

    /// Why a file was not opened.
    pub(super) fn from_open(path: &Path, source: io::Error) -> Self {
        match other_kind(&source) {
            Some(what) => Self::not_a_trace(path, what),
            None => Self::io(path, "open", source),
        }
    }

    pub(super) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_path_buf(), what: what.into() }
    }

    pub(super) fn not_a_trace(path: &Path, found: impl Into<String>) -> Self {
        Self::NotATrace { path: path.to_path_buf(), found: found.into() }
    }

    /// What the Parquet library reports while reading: the system's error, or bad bytes.
    pub(super) fn from_read(path: &Path, error: ParquetError) -> Self {
        match into_io(error) {
            Ok(source) => Self::io(path, "read", source),
            Err(error) => Self::corrupt(path, brief(&error.to_string())),
        }
    }

    /// What the Parquet library reports while writing: nearly always the system's error.
    pub(super) fn from_write(path: &Path, error: ParquetError) -> Self {
        let source = into_io(error).unwrap_or_else(io::Error::other);
        Self::io(path, "write", source)
    }
}

/// What could be wrong with a file that exists, should exist or has no room.
fn to_check(action: &str) -> &'static str {
    match action {
        "open" | "read" => "the path and its permissions",
        _ => "the path, its permissions and the free space",
    }
}

/// The system's error, if it is one: what has no number of the system comes from a decompressor.
fn into_io(error: ParquetError) -> Result<io::Error, ParquetError> {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(source) if source.raw_os_error().is_some() => Ok(*source),
            Ok(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ParquetError::EOF(source.to_string()))
            }
            Ok(source) => Err(ParquetError::General(source.to_string())),
            Err(inner) => Err(ParquetError::External(inner)),
        },
        other => Err(other),
    }
}

/// Runs a part of the Parquet library; its panic becomes an error (I3).
///
/// What the closure worked on may be half done after a panic; the reader stops then and never
/// uses it again.
pub(super) fn guarded<T>(
    work: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(ParquetError::General(format!("the decoder gave up: {message}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_error(source: io::Error) -> TraceError {
        TraceError::from_read(Path::new("t"), ParquetError::External(Box::new(source)))
    }

    #[test]
    fn only_errors_of_the_system_are_io() {
        assert!(matches!(read_error(io::Error::from_raw_os_error(5)), TraceError::Io { .. }));
        let damage = read_error(io::Error::other("Data corruption detected")).to_string();
        assert!(damage.contains("is truncated or corrupt") && damage.contains("Data corruption"));
        let end = read_error(io::ErrorKind::UnexpectedEof.into());
        assert!(matches!(end, TraceError::Corrupt { .. }));
    }
}
