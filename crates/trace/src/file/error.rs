//! Errors in a trace file. Each message gives a cause and a remedy.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use thiserror::Error;

use crate::disk::other_kind;
use crate::shown;
use crate::shown::brief;
use crate::validate::{MetaFault, RowFault};

/// An error while writing or reading a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A system error.
    #[error("cannot {action} {}: {source}. Check {}.", shown(path), to_check(action))]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted operation, as a verb.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a trace.
    #[error(
        "{} is not a largefolio trace: it is {found}. Make one with `folio record` or \
        `folio trace gen`.",
        shown(path)
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// Description of the file.
        found: String,
    },
    /// The trace is truncated or damaged.
    #[error(
        "{} is truncated or corrupt: {what}. Copy it again from its source, or record it \
        again.",
        shown(path)
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// A newer folio wrote the trace.
    #[error(
        "{} has schema version {found}, but this version of folio reads only up to {known}. Use a \
         newer version.",
        shown(path)
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Version in the footer.
        found: u32,
        /// Newest version that this crate reads.
        known: u32,
    },
    /// A row breaks a rule of [`crate::validate`].
    #[error(
        "row {row} of {} is invalid: {fault}. Its recorder or generator has a bug; record it again \
         with the current folio.",
        shown(path)
    )]
    BadRow {
        /// The file.
        path: PathBuf,
        /// Row number, counted from 0.
        row: u64,
        /// The broken rule.
        fault: RowFault,
    },
    /// The footer breaks a rule of [`crate::validate`].
    #[error(
        "the metadata of {} is invalid: {fault}. Its recorder or generator has a bug; record it \
         again with the current folio.",
        shown(path)
    )]
    BadMeta {
        /// The file.
        path: PathBuf,
        /// The broken rule.
        fault: MetaFault,
    },
    /// The trace exceeds a limit of the format.
    #[error(
        "{} cannot hold more: {what}. Record a shorter part of the run, or fewer processes.",
        shown(path)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        what: String,
    },
}

impl TraceError {
    pub(super) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), action, source }
    }

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

    pub(super) fn from_read(path: &Path, error: ParquetError) -> Self {
        match into_io(error) {
            Ok(source) => Self::io(path, "read", source),
            Err(error) => Self::corrupt(path, brief(&error.to_string())),
        }
    }

    pub(super) fn from_write(path: &Path, error: ParquetError) -> Self {
        let source = into_io(error).unwrap_or_else(io::Error::other);
        Self::io(path, "write", source)
    }
}

fn to_check(action: &str) -> &'static str {
    match action {
        "open" | "read" => "the path and its permissions",
        _ => "the path, its permissions and the free space",
    }
}

/// Extracts the system's error. Errors without an errno come from a decompressor.
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

/// Runs a part of the Parquet library and converts a panic to an error (I3).
///
/// After a panic, the closure's objects may be in an inconsistent state. The reader then stops and
/// never uses them again.
pub(super) fn guarded<T>(
    work: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(ParquetError::General(format!("the decoder failed: {message}")))
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
