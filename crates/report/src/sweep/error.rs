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
use crate::table::TableError;

/// Why a sweep cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Another one has the directory.
    #[error(
        "another sweep is writing to {}; wait until it ends, or choose another directory",
        shown(dir)
    )]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// It was asked to end. What was on the disk is there.
    #[error("the sweep was stopped; the same command continues from there")]
    Stopped,
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", shown(path))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// File concerned.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A part could not be written.
    #[error(
        "cannot write {}: {source}. {nr_done} of {nr_asked} cells are done and kept; {}the same command \
         continues from there",
        shown(path),
        once(source)
    )]
    NotWritten {
        /// The part.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
        /// Cells of this sweep in the data set.
        nr_done: usize,
        /// Cells of this sweep.
        nr_asked: usize,
    },
    /// A file in the place of the directory.
    #[error("{} is a file, and a sweep fills a directory; name another one", shown(path))]
    IsFile {
        /// The file.
        path: PathBuf,
    },
    /// A Parquet file of somebody else.
    #[error(
        "{} is not part of a sweep, but anybody who reads {}/*.parquet would read it too; choose \
         an empty directory, or move the file away",
        shown(path),
        shown(dir)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The directory.
        dir: PathBuf,
    },
    /// A part with the columns of another folio.
    #[error(
        "{} has the columns of another version of folio; choose another directory",
        shown(path)
    )]
    OtherColumns {
        /// The part.
        path: PathBuf,
    },
    /// A manifest of a newer folio.
    #[error(
        "{} has schema version {found}, this folio knows {known}; use a newer folio",
        shown(path)
    )]
    NewerManifest {
        /// The manifest.
        path: PathBuf,
        /// Version it has.
        found: u32,
        /// Newest version known.
        known: u32,
    },
    /// A manifest that would not be read again.
    #[error(
        "what was asked for takes {nr_bytes} bytes in the manifest, more than the {bytes_max} bytes \
         that are read again; sweep fewer traces at a time into the same directory"
    )]
    LongManifest {
        /// Its length.
        nr_bytes: usize,
        /// The longest.
        bytes_max: usize,
    },
    /// What a worker handed in does not belong to its task.
    #[error("the result of a task was refused: {0}")]
    NotOfTheTask(String),
    /// Cells that cannot be.
    #[error(transparent)]
    Cells(#[from] RequestError),
    /// More cells than are planned at once.
    #[error(
        "{} x {} are {}, and one sweep has at most {}; make several sweeps into the same directory",
        counted(*nr_traces as u64, "trace"),
        counted(*nr_cells as u64, "cell"),
        counted(nr_traces.saturating_mul(*nr_cells) as u64, "cell"),
        grouped(*limit as u64)
    )]
    TooManyCells {
        /// Traces.
        nr_traces: usize,
        /// Cells of each.
        nr_cells: usize,
        /// Most cells of all.
        limit: usize,
    },
    /// A kernel or machine that cannot be written down.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// An annotation that no trace has a file for.
    #[error("annotation {}: no file in any trace matches; `folio trace info` lists the files",
        shown(.0))]
    IdleAnnotation(String),
    /// No threads to replay with.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// A manifest that JSON has no form for.
    #[error("cannot write the manifest as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// What the Parquet library refuses.
    #[error("cannot write a part: {0}")]
    Parquet(#[from] ParquetError),
}

impl SweepError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

/// What has to change first, where that is known.
fn once(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "once there is room, ",
        _ => "",
    }
}

/// Why a task has no result.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The file is another one than the task was made for.
    #[error(
        "{} is not the file that the sweep was planned with (BLAKE3 {found}, planned {planned}); \
         plan it again",
        shown(path)
    )]
    OtherTrace {
        /// The file.
        path: PathBuf,
        /// Its digest.
        found: String,
        /// The digest in the task.
        planned: String,
    },
    /// The task was made by a folio that counts otherwise.
    #[error(
        "another version of folio ({tool}) planned the task, so its cells have other identities; \
         use one version for the whole sweep"
    )]
    OtherVersion {
        /// Version of this folio.
        tool: &'static str,
    },
    /// A cell names a kernel or machine the task does not have.
    #[error("a cell of the task has no kernel or no machine")]
    Incomplete,
    /// An invalid kernel or machine.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A number that no data frame holds.
    #[error(transparent)]
    Table(#[from] TableError),
    /// What the Parquet library refuses.
    #[error("cannot write the result as Parquet: {0}")]
    Parquet(#[from] ParquetError),
    /// What the Arrow library refuses.
    #[error("cannot make a data frame of the result: {0}")]
    Arrow(#[from] ArrowError),
}

impl TaskError {
    /// Whether it was asked to end.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        matches!(self, Self::Replay(ReplayError::Stopped))
    }

    /// Whether every other task of this trace will fail the same way.
    #[must_use]
    pub const fn is_of_the_trace(&self) -> bool {
        matches!(
            self,
            Self::Trace(_) | Self::OtherTrace { .. } | Self::Replay(ReplayError::Trace(_))
        )
    }
}
