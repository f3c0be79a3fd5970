//! The report on a recording, during the run and afterwards.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use largefolio_trace::Attached;
use largefolio_trace::meta::recorded;

use super::error::RecordError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    Code(u8),
    Signal(u8),
}

impl RecordEnd {
    /// Returns the exit status that a shell would report: the code, or 128 + the signal.
    ///
    /// ```
    /// use largefolio_linux::record::RecordEnd;
    /// assert_eq!(RecordEnd::Code(3).exit_code(), 3);
    /// assert_eq!(RecordEnd::Signal(2).exit_code(), 130);
    /// ```
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

impl fmt::Display for RecordEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderKind {
    /// QEMU user emulation with our plugin.
    Qemu,
    Live,
}

impl RecorderKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Live => "live",
        }
    }

    /// Returns the names of everything recorded beyond schema version 6.
    pub(crate) const fn recorded(self) -> &'static [&'static str] {
        match self {
            Self::Qemu => &[
                recorded::BUFFERS,
                recorded::FALLOCATE,
                recorded::HOLES,
                recorded::IO,
                recorded::MEMPOLICY,
                recorded::MLOCK,
                recorded::STORES,
                recorded::SYNC,
                recorded::THP_DISABLE,
                recorded::UNLINK,
            ],
            Self::Live => &[
                recorded::BUFFERS,
                recorded::FALLOCATE,
                recorded::HOLES,
                recorded::MLOCK,
                recorded::STORES,
                recorded::SYNC,
                recorded::THP_DISABLE,
            ],
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub nr_references: u64,
    /// How many of them are pages that were present before.
    pub nr_before: u64,
    pub trace_bytes: u64,
    /// Threads so far, over all processes.
    pub nr_threads: u32,
    pub nr_processes: u32,
    pub elapsed: Duration,
    /// Set if no message arrives although a process has sent some.
    pub standstill: Option<Standstill>,
    /// Set if the program continues unrecorded.
    pub unrecorded: Option<Unrecorded>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    Written,
    Lost(String),
}

impl Unrecorded {
    pub(super) fn after(recorded: &Result<RecordOutcome, RecordError>) -> Self {
        recorded.as_ref().map_or_else(|error| Self::Lost(error.to_string()), |_| Self::Written)
    }
}

/// A process with unread messages, while no other message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standstill {
    pub pid: u32,
    pub awaited: Awaited,
    pub silent: Duration,
}

/// The event that must precede a process's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// This process must announce that it forked.
    Announcement(u32),
    /// This process, which borrows the memory (vfork), must execute a program or end.
    Borrower(u32),
    /// Its earlier connection must be read to its end.
    EarlierConnection,
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, awaited, silent } = self;
        write!(f, "The recording waited {} s: process {pid} is read only when ", silent.as_secs())?;
        match awaited {
            Awaited::Announcement(parent) => {
                write!(f, "its parent {parent} has reported the fork.")
            }
            Awaited::Borrower(child) => write!(
                f,
                "its child {child}, which shares its memory (vfork), executes a program or ends."
            ),
            Awaited::EarlierConnection => f.write_str("its earlier messages were read."),
        }
    }
}

/// The cost of `--hot`: finding pages that are written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotPages {
    pub nr_rounds: u64,
    pub time: Duration,
    /// Write-protect faults: those caused by `--hot`, and copies on write.
    pub nr_faults: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecordOutcome {
    pub path: PathBuf,
    /// How the program ended; 0 for attached processes that continue.
    pub ended: RecordEnd,
    /// Why the recording ended before the program.
    pub stopped: Option<String>,
    pub nr_references: u64,
    pub nr_rows: u64,
    pub trace_bytes: u64,
    pub nr_threads: u32,
    pub nr_processes: u32,
    /// Recorded programs that they executed, without the first.
    pub nr_executions: u64,
    /// From the program's start to the complete trace.
    pub elapsed: Duration,
    pub recorder: RecorderKind,
    /// For attached processes: their state at the start, and their CPU time and faults since.
    pub attached: Option<Attached>,
    pub hot: Option<HotPages>,
    /// Everything missed or left out, one sentence each with its remedy.
    pub warnings: Vec<String>,
}
