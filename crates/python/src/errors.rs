//! Errors as Python exceptions, with the text that `folio` prints.
//!
//! The classes are defined in Python (`largefolio/errors.py`), where they can also derive from
//! `ValueError`.

use std::io;
use std::panic::{self, AssertUnwindSafe};

use largefolio_results::Error;
use largefolio_results::ExportError;
use largefolio_results::predict::sweep::{SweepError, TaskError};
use largefolio_results::predict::table::TableError;
use largefolio_sim::explain::WhyError;
use largefolio_sim::kernel::KernelError;
use largefolio_sim::machine::MachineError;
use largefolio_sim::replay::{AnnotationError, LinkedError, ReplayError, RequestError};
use largefolio_trace::TraceError;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// Every error of the crates below.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    #[error(transparent)]
    Linked(#[from] LinkedError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Why(WhyError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Sweep(#[from] SweepError),
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Input that a command cannot find, and the command's exception class.
    #[error("{error}")]
    Command { class: &'static str, error: Box<Error> },
    #[error("{0}")]
    Argument(String),
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    #[error("internal error; please report it with the call and the trace: {0}")]
    Panic(String),
    #[error(transparent)]
    Python(#[from] PyErr),
}

impl Failure {
    const fn class(&self) -> &'static str {
        match self {
            Self::Trace(_) | Self::Replay(ReplayError::Trace(_)) => "TraceError",
            Self::Task(error) if error.is_of_the_trace() => "TraceError",
            Self::Kernel(_) | Self::Request(RequestError::Kernel(_)) => "KernelError",
            Self::Machine(_) => "MachineError",
            Self::Command { class, .. } => class,
            Self::Request(_)
            | Self::Annotation(_)
            | Self::Linked(_)
            | Self::Why(_)
            | Self::Argument(_)
            | Self::Sweep(SweepError::Cells(_) | SweepError::IdleAnnotation(_)) => "RequestError",
            Self::Sweep(_) | Self::Task(_) => "SweepError",
            Self::Replay(_) => "ReplayError",
            _ => "FolioError",
        }
    }
}

impl From<WhyError> for Failure {
    fn from(error: WhyError) -> Self {
        match error {
            WhyError::Kernel(error) => Self::Kernel(error),
            WhyError::Replay(error) => Self::Replay(error),
            error => Self::Why(error),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            // Only a signal or a failed callback stops a replay, and both have already reported the
            // reason.
            Failure::Replay(ReplayError::Stopped) | Failure::Sweep(SweepError::Stopped) => {
                PyKeyboardInterrupt::new_err(())
            }
            failure => Python::attach(|py| raised(py, &failure)),
        }
    }
}

fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    let errors = py.import("largefolio.errors");
    let class = errors.and_then(|errors| errors.getattr(failure.class()));
    let raised = class.and_then(|class| class.call1((failure.to_string(),)));
    raised.map_or_else(|error| error, PyErr::from_value)
}

/// Runs `work` without the interpreter's lock; a panic becomes an error (I2).
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    py.detach(|| catch_panics(work))
}

/// Runs `work`; a panic becomes an error (I2).
pub(crate) fn catch_panics<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure::Panic(text.unwrap_or("no message").to_owned()))
    })
}

/// Silences panics that are caught and become errors; `RUST_BACKTRACE` shows all. The hook belongs
/// to this module's copy of the standard library, so it affects no other extension.
pub(crate) fn silence_caught_panics() {
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        panic::set_hook(Box::new(|_| {}));
    }
}
