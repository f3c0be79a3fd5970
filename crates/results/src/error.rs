//! Errors in producing a result. The messages come from the crate that found the error.

use std::io;

use crate::ExportError;
use largefolio_linux::calibrate::CalibrateError;
use largefolio_linux::calibrate::anon::BenchError;
use largefolio_linux::calibrate::stubs::StubsError;
use largefolio_linux::census::CensusError;
use largefolio_linux::census::file::FileError;
use largefolio_sim::bench::AnonBenchError;
use largefolio_sim::kernel::KernelError;
use largefolio_sim::machine::MachineError;
use largefolio_sim::replay::ReplayError;
use largefolio_trace::TraceError;
use largefolio_trace::generate::GenerateError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Census(#[from] CensusError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "the trace contains only page faults (folio record --live), which do not show the run \
         time; use --goal memory or --goal faults, or record the program without --live"
    )]
    NoTime,
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Stubs(#[from] StubsError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Model(#[from] AnonBenchError),
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Generate(#[from] GenerateError),
    #[error("{0}")]
    Request(String),
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

    pub(crate) fn request(text: impl Into<String>) -> Self {
        Self::Request(text.into())
    }
}
