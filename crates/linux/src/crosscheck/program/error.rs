//! Why a program cannot be recorded on the running kernel.

use std::io;

use super::convert::ConvertError;

/// Failure to record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Tracing, mounts and devices need root.
    #[error("recording the kernel needs root: run it again with sudo")]
    NotRoot,
    /// Faults are traced with their addresses on x86-64 only.
    #[error("the kernel traces page faults with their addresses only on x86-64")]
    NotHere,
    /// No tracefs.
    #[error("no tracefs at /sys/kernel/tracing; mount it with `mount -t tracefs tracefs \
        /sys/kernel/tracing` (a kernel without it cannot be compared)")]
    NoTracefs,
    /// The kernel lacks an event that the comparison cannot do without.
    #[error("this kernel has no trace event {0}; it cannot be compared")]
    NoEvent(&'static str),
    /// The command cannot be started.
    #[error("{0}: not found; name a program or a path to one after `--`")]
    NotFound(String),
    /// The command uses no file that could be replaced by a copy.
    #[error("the program opens no regular file: nothing to compare")]
    NoFiles,
    /// A tool is missing or failed.
    #[error("{name} failed: {what}; if it is missing: apt-get install e2fsprogs xfsprogs mount")]
    Tool {
        /// Its name.
        name: String,
        /// What it said.
        what: String,
    },
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Os {
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel's files hold something else than expected.
    #[error("{0} of the running kernel is not understood")]
    Unexpected(&'static str),
    /// Events were lost: the trace is no recording.
    #[error("{0} events were lost; record a shorter run of the program")]
    Lost(u64),
    /// The trace is not understood.
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

impl ProgramError {
    /// For `map_err`.
    pub(crate) fn os(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { action, source }
    }
}
