//! Errors while making a result. Messages come from the crate that found the error.

use std::io;

use largefolio_linux::calibrate::anon::BenchError;
use largefolio_linux::calibrate::stubs::StubsError;
use largefolio_sim::bench::AnonBenchError;
use largefolio_sim::kernel::KernelError;
use largefolio_sim::replay::{ReplayError, RequestError};
use largefolio_trace::TraceError;

use crate::crosscheck::record::CrosscheckError;
use crate::crosscheck::{CheckError, LibraryError, ParseError};
use crate::study::StudyError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Stubs(#[from] StubsError),
    #[error(transparent)]
    Model(#[from] AnonBenchError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Crosscheck(#[from] CrosscheckError),
    #[error(transparent)]
    Recording(#[from] CheckError),
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error(transparent)]
    Study(#[from] StudyError),
    #[error(transparent)]
    Results(#[from] largefolio_results::Error),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{0}")]
    Invalid(String),
    #[error("{doing}: {source}")]
    System { doing: String, source: io::Error },
    #[error("{about}: {source}")]
    About { about: String, source: Box<Self> },
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        |source| Self::System { doing, source }
    }

    pub(crate) fn about(about: &str, error: impl Into<Self>) -> Self {
        Self::About { about: about.to_owned(), source: Box::new(error.into()) }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}
