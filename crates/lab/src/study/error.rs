//! Errors about studies and their results.

use std::path::PathBuf;

use largefolio_trace::generate::GenerateError;
use largefolio_trace::shown;

use super::parts::NR_ROWS_MAX;
use largefolio_sim::datafile::DataFileError;
use largefolio_sim::kernel::KernelError;
use largefolio_sim::machine::MachineError;
use largefolio_sim::replay::request::NO_LARGE_FOLIOS;
use largefolio_sim::replay::{LinkedError, ReplayError};

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    File(#[from] DataFileError),
    #[error("{origin}:{line}: {mistake}")]
    Mistake { origin: String, line: usize, mistake: Box<Mistake> },
    #[error("{origin}: cell {cell}: {error}")]
    Replay { origin: String, cell: String, error: Box<ReplayError> },
    #[error("{origin}: cell {cell}: {message}")]
    Model { origin: String, cell: String, message: String },
    #[error("stopped")]
    Stopped,
    #[error("cannot generate the trace {}: {error}", shown(path))]
    Generate { path: PathBuf, error: GenerateError },
}

#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    #[error("{place}: {error}")]
    Kernel { place: String, error: KernelError },
    #[error("{place}: {error}")]
    Machine { place: String, error: MachineError },
    #[error("{place}: {error}")]
    Linked { place: String, error: LinkedError },
    #[error("{place}: {error}")]
    Workload { place: String, error: GenerateError },
    #[error(
        "{place}: the trace would have up to {nr_rows} rows, but {NR_ROWS_MAX} are allowed; lower \
         its counts or its sizes"
    )]
    TooManyRows { place: String, nr_rows: u64 },
    #[error("{place}: {message}")]
    Model { place: String, message: String },
    #[error("{place}: give exactly one of trace, workload and model, not {has}")]
    CellKind { place: String, has: usize },
    #[error("{place}: a cell with a trace or workload needs {key}")]
    Missing { place: String, key: &'static str },
    #[error("{place}: a model names its kernel in its own table; remove {key}")]
    Superfluous { place: String, key: &'static str },
    #[error(
        "{place}: no kernel has large folios on a filesystem called '{}'; {hint}; give \
         \"{NO_LARGE_FOLIOS}\" for a filesystem without large folios",
        shown(name)
    )]
    Filesystem { place: String, name: String, hint: String },
    #[error("{place}: '{value}' is not valid; expected {expected}")]
    Value { place: String, value: String, expected: &'static str },
    #[error("{place}: there is no {what} '{name}'; {hint}")]
    NoSuch { place: String, what: &'static str, name: String, hint: String },
    #[error("{place}: {message}")]
    Count { place: String, message: String },
    #[error("{place}: {message}")]
    Row { place: String, message: &'static str },
}

impl Mistake {
    /// Returns the place in the file that the error refers to.
    pub(super) fn place(&self) -> &str {
        match self {
            Self::Kernel { place, .. }
            | Self::Machine { place, .. }
            | Self::Linked { place, .. }
            | Self::Workload { place, .. }
            | Self::TooManyRows { place, .. }
            | Self::Model { place, .. }
            | Self::CellKind { place, .. }
            | Self::Missing { place, .. }
            | Self::Superfluous { place, .. }
            | Self::Filesystem { place, .. }
            | Self::Value { place, .. }
            | Self::NoSuch { place, .. }
            | Self::Count { place, .. }
            | Self::Row { place, .. } => place,
        }
    }
}
