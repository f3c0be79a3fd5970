//! What is reported about a recording, while it runs and afterwards.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use largefolio_trace::Attached;

use super::error::RecordError;

/// How the recorded program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Code(u8),
    /// Killed by this signal.
    Signal(u8),
}

impl Ended {
    /// What a shell would report: the code, or 128 + the signal.
    ///
    /// ```
    /// use largefolio_linux::record::Ended;
    /// assert_eq!(Ended::Code(3).exit_code(), 3);
    /// assert_eq!(Ended::Signal(2).exit_code(), 130);
    /// ```
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderKind {
    /// QEMU user emulation with our plugin.
    Qemu,
    /// Valgrind's lackey.
    Valgrind,
    /// The running kernel.
    Live,
}

impl RecorderKind {
    /// Name as the trace's footer has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Valgrind => "valgrind",
            Self::Live => "live",
        }
    }
}

/// State of a running recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// References written so far.
    pub nr_references: u64,
    /// Of these, pages that were there before.
    pub nr_before: u64,
    /// Bytes of the trace so far.
    pub trace_bytes: u64,
    /// Threads seen, over all processes.
    pub nr_threads: u32,
    /// Processes seen.
    pub nr_processes: u32,
    /// Time since the program started.
    pub elapsed: Duration,
    /// Why nothing comes though a process has something to say.
    pub standstill: Option<Standstill>,
    /// Why the program goes on unrecorded, where it does.
    pub goes_on: Option<GoesOn>,
}

/// Why a program goes on unrecorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoesOn {
    /// The trace is whole.
    Written,
    /// There will be no trace: the error that ended the recording.
    Lost(String),
}

impl GoesOn {
    /// With what a recording ended in.
    pub(super) fn after(recorded: &Result<Outcome, RecordError>) -> Self {
        recorded.as_ref().map_or_else(|error| Self::Lost(error.to_string()), |_| Self::Written)
    }
}

/// A process that has something to say and is not read, while nothing else comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standstill {
    /// The process.
    pub pid: u32,
    /// What has to come first.
    pub awaited: Awaited,
    /// How long nothing came.
    pub silent: Duration,
}

/// What has to come before the messages of a process are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The word of this process that it forked.
    Announcement(u32),
    /// The next program or the end of this process, which has the other's memory (vfork).
    Borrower(u32),
    /// The end of what it sent before.
    EarlierConnection,
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, awaited, silent } = self;
        write!(
            f,
            "The recording stood still for {} s: process {pid} is read only when ",
            silent.as_secs()
        )?;
        match awaited {
            Awaited::Announcement(parent) => {
                write!(f, "its parent {parent} has said that it forked.")
            }
            Awaited::Borrower(child) => write!(
                f,
                "its child {child}, which has its memory (vfork), executes a program or ends."
            ),
            Awaited::EarlierConnection => f.write_str("what it sent before was read."),
        }
    }
}

/// What asking for pages that are written again cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotPages {
    /// How often the kernel was asked.
    pub nr_rounds: u64,
    /// Time in the kernel for it, of all rounds.
    pub time: Duration,
    /// Stores that faulted because their page was not mapped for writing: those of `--hot`, and
    /// copies on write.
    pub nr_faults: u64,
}

/// A finished recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The trace.
    pub path: PathBuf,
    /// How the program ended; 0 for processes that ran before and go on.
    pub ended: Ended,
    /// Why the recording ended before the program.
    pub stopped: Option<String>,
    /// References in the rows.
    pub nr_references: u64,
    /// Rows of the trace.
    pub nr_rows: u64,
    /// Bytes of the trace.
    pub trace_bytes: u64,
    /// Threads of the program, over all processes.
    pub nr_threads: u32,
    /// Processes of the program.
    pub nr_processes: u32,
    /// Programs that they executed and that were recorded, the first one not counted.
    pub nr_executions: u64,
    /// From the program's start to the complete trace.
    pub elapsed: Duration,
    /// What recorded.
    pub recorder: RecorderKind,
    /// For processes that ran before: their state then, and their CPU time and faults since.
    pub attached: Option<Attached>,
    /// What `--hot` of a live recording did.
    pub hot: Option<HotPages>,
    /// What was not seen or left out, one sentence each with its remedy.
    pub warnings: Vec<String>,
}
