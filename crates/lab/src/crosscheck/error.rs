//! Errors that prevent a replay.

use largefolio_mm::memory::MemoryError;

use largefolio_sim::kernel::KernelError;

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("the policy cannot start: {0}")]
    Policy(String),
    /// The recording has steps that must read, but no recorded reads.
    #[error(
        "{0}: nothing was traced, so there is nothing to compare; record it again with this \
         version of folio"
    )]
    NothingTraced(String),
    /// The recording's base page size differs from the rules'.
    #[error("the recording has base pages of {recorded} bytes, but the rules have {rules} bytes")]
    Page {
        /// Size in the recording, in bytes.
        recorded: u64,
        /// Size in the rules, in bytes.
        rules: u64,
    },
}
