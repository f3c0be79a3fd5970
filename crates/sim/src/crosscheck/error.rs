//! Why a recording cannot be replayed.

use largefolio_mm::memory::MemoryError;

use crate::kernel::KernelError;

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No rules for a kernel so old, or a release that is not a version.
    #[error(
        "no rules for kernel {0:?}: the oldest known is 6.1; name the rules to use with --kernel"
    )]
    UnknownKernel(String),
    /// The rules could not be loaded.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The model could not be set up.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The recording has steps that must read and nothing that was read.
    #[error(
        "{0}: nothing was traced, so there is nothing to compare; record it again with this \
         version"
    )]
    NothingTraced(String),
    /// The recording was made with another base page than the rules have.
    #[error("recorded with base pages of {recorded} bytes, the rules have {rules}")]
    Page {
        /// In the recording.
        recorded: u64,
        /// In the rules.
        rules: u64,
    },
}
