//! Errors of a sweep: cause and remedy.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use largefolio_sim::replay::{ReplayError, RequestError};
use largefolio_sim::sweep::RecipeError;
use largefolio_trace::TraceError;
use largefolio_trace::shown;
use parquet::errors::ParquetError;

use crate::figures::{counted, grouped};
use crate::predict::table::TableError;

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(
        "another sweep is writing to {}; wait until it ends, or choose another directory",
        shown(dir)
    )]
    Busy { dir: PathBuf },
    #[error("the sweep was stopped; to continue, run the same command again")]
    Stopped,
    #[error("cannot {action} {}: {source}", shown(path))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "cannot write {}: {source}. {nr_done} of {nr_asked} cells are done and kept; {}the same command \
         continues from there",
        shown(path),
        once(source)
    )]
    NotWritten { path: PathBuf, source: io::Error, nr_done: usize, nr_asked: usize },
    #[error("{} is a file, but a sweep needs a directory; name another one", shown(path))]
    IsFile { path: PathBuf },
    /// A Parquet file that does not belong to the sweep.
    #[error(
        "{} is not part of a sweep, but readers of {}/*.parquet would read it too; choose an \
         empty directory, or move the file away",
        shown(path),
        shown(dir)
    )]
    Foreign { path: PathBuf, dir: PathBuf },
    #[error(
        "the columns in {} are from another version of folio; choose another directory",
        shown(path)
    )]
    OtherColumns { path: PathBuf },
    #[error(
        "{} has schema version {found}, but this version of folio knows only {known}; use a newer \
         version",
        shown(path)
    )]
    NewerManifest { path: PathBuf, found: u32, known: u32 },
    #[error(
        "this sweep needs {nr_bytes} bytes in the manifest, but folio reads back at most \
         {bytes_max}; sweep fewer traces at a time into the same directory"
    )]
    LongManifest { nr_bytes: usize, bytes_max: usize },
    #[error("the result of a task was refused: {0}")]
    NotOfTheTask(String),
    #[error(transparent)]
    Cells(#[from] RequestError),
    #[error(
        "{} x {} make {}, but a sweep can have at most {}; run several sweeps into the same \
         directory",
        counted(*nr_traces as u64, "trace"),
        counted(*nr_cells as u64, "cell"),
        counted(nr_traces.saturating_mul(*nr_cells) as u64, "cell"),
        grouped(*limit as u64)
    )]
    TooManyCells { nr_traces: usize, nr_cells: usize, limit: usize },
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error("annotation {}: no file in any trace matches; `folio trace info` lists the files",
        shown(.0))]
    IdleAnnotation(String),
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error("cannot write the manifest as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot write a part: {0}")]
    Parquet(#[from] ParquetError),
}

impl SweepError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

/// Says what to fix first, if that is known.
fn once(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "after you free space, ",
        _ => "",
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace file differs from the one that the task was made for.
    #[error(
        "{} is not the file for which the sweep was planned (BLAKE3 {found}, planned {planned}); \
         plan the sweep again",
        shown(path)
    )]
    OtherTrace { path: PathBuf, found: String, planned: String },
    #[error(
        "another version of folio ({tool}) planned the task, so its cells have different ids; use \
         one version for the whole sweep"
    )]
    OtherVersion { tool: &'static str },
    /// A cell names a kernel or machine that the task lacks.
    #[error("a cell of the task has no kernel or no machine")]
    Incomplete,
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("cannot write the result as Parquet: {0}")]
    Parquet(#[from] ParquetError),
    #[error("cannot convert the result to a data frame: {0}")]
    Arrow(#[from] ArrowError),
}

impl TaskError {
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        matches!(self, Self::Replay(ReplayError::Stopped))
    }

    /// Returns whether every other task of this trace will fail the same way.
    #[must_use]
    pub const fn is_of_the_trace(&self) -> bool {
        matches!(
            self,
            Self::Trace(_) | Self::OtherTrace { .. } | Self::Replay(ReplayError::Trace(_))
        )
    }
}
