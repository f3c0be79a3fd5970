//! One recorded process.
//!
//! Owns the map from the kernel's thread numbers to ids, and how the process said it ends or becomes
//! another program.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Instant;

use largefolio_trace::ThreadId;

use super::wire::{self, Unrecorded};
use crate::record::executions::COMMAND_BYTES_MAX;

/// Words of a command that are looked at: one more than are kept.
const COMMAND_WORDS_MAX: usize = COMMAND_BYTES_MAX + 1;

/// A thread of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    /// Its id in the trace.
    pub(crate) id: ThreadId,
    /// Sequence number of the last rows received.
    pub(crate) last_seq: Option<u64>,
}

/// What a process is about to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Execve {
    /// A program that is recorded, by its path and command, called by this thread.
    Recorded { path: PathBuf, command: Vec<String>, caller: ThreadId },
    /// One that is not.
    Unrecorded { path: String, why: Unrecorded },
}

/// A process's life, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Only its parent spoke of it.
    Announced,
    /// It speaks.
    Connected,
    /// It closed its connection and may come back.
    Away,
    /// It closed its connection to execute a program that will speak.
    Executing,
    /// Its exit is in the trace.
    Over,
}

/// Whether a process says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// It is connected, or about to be as another program.
    Speaks,
    /// It has no connection: not yet, or not now.
    Silent,
    /// It ended, or never was.
    Over,
}

impl Phase {
    /// Whether a process in this phase says something.
    pub(crate) fn voice(self) -> Voice {
        match self {
            Self::Announced | Self::Away => Voice::Silent,
            Self::Connected | Self::Executing => Voice::Speaks,
            Self::Over => Voice::Over,
        }
    }
}

#[derive(Debug)]
pub(crate) struct RecordedProcess {
    /// Id of its first thread.
    pub(crate) first: ThreadId,
    /// Threads by the kernel's number.
    pub(crate) threads: BTreeMap<u32, Thread>,
    /// Status of its exit, once it said so.
    pub(crate) status: Option<u64>,
    /// Thread that ends it.
    pub(crate) last: ThreadId,
    /// The execve it is in.
    pub(crate) execve: Option<Execve>,
    /// Programs executed before by it, and by its parents before they forked: its tails' names.
    pub(crate) generation: u32,
    /// First address of its heap, as far as that is known.
    pub(crate) brk: u64,
    /// Program and command that it has executed, until its mappings are known.
    pub(crate) executed: Option<(PathBuf, Vec<String>)>,
    /// Process that it lends its memory to (vfork).
    pub(crate) borrower: Option<u32>,
    /// Process whose memory it borrows: its `borrower` is this one, as long as that lives.
    pub(crate) lender: Option<u32>,
    /// Where it is in its life.
    pub(crate) phase: Phase,
    /// When it was announced, or left: how long it is silent in these phases.
    pub(crate) silent_since: Instant,
    /// Its parent, if that did not announce it in time, and is not heard if it still does.
    pub(crate) adopted_from: Option<u32>,
    /// Packets of threads that no fork event announced yet.
    pub(crate) parked: Vec<Vec<u8>>,
}

impl RecordedProcess {
    /// A process whose first thread has the kernel's number `pid`.
    pub(crate) fn new(pid: u32, first: ThreadId) -> Self {
        Self {
            first,
            threads: BTreeMap::from([(pid, Thread { id: first, last_seq: None })]),
            status: None,
            last: first,
            execve: None,
            generation: 0,
            brk: 0,
            executed: None,
            borrower: None,
            lender: None,
            phase: Phase::Announced,
            silent_since: Instant::now(),
            adopted_from: None,
            parked: Vec::new(),
        }
    }
}

impl RecordedProcess {
    /// The process is a new program now, whose only thread is the one that called execve.
    pub(crate) fn executed(&mut self, pid: u32, generation: u32) {
        let (executed, caller) = match self.execve.take() {
            Some(Execve::Recorded { path, command, caller }) => ((path, command), caller),
            _ => ((PathBuf::new(), Vec::new()), self.first),
        };
        self.threads = BTreeMap::from([(pid, Thread { id: caller, last_seq: None })]);
        (self.first, self.last, self.status) = (caller, caller, None);
        self.parked.clear();
        (self.generation, self.phase, self.executed) =
            (generation, Phase::Connected, Some(executed));
    }
}

impl Execve {
    /// Takes the body of a message apart; `caller` sent it.
    pub(crate) fn recorded(body: &[u8], caller: ThreadId) -> Self {
        let mut words = body.split(|byte| *byte == 0);
        let path = words.next().unwrap_or_default();
        let path = PathBuf::from(OsStr::from_bytes(path));
        let mut command: Vec<String> = words
            .take(COMMAND_WORDS_MAX)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        // Each word ends with a zero, behind the last of which is nothing.
        if command.last().is_some_and(String::is_empty) {
            command.pop();
        }
        Self::Recorded { path, command, caller }
    }

    /// The same for what is not recorded.
    pub(crate) fn unrecorded(body: &[u8]) -> Self {
        let why = wire::u32_at(body, 0).and_then(Unrecorded::from_number);
        let path = String::from_utf8_lossy(body.get(4..).unwrap_or_default()).into_owned();
        Self::Unrecorded { path, why: why.unwrap_or(Unrecorded::NoRecorder) }
    }
}

/// The sentence on a program that clears memory that QEMU does not tell.
pub(crate) fn unseen(path: &[u8]) -> String {
    format!(
        "{} clears whole pages with an instruction that QEMU tells nobody of (DC ZVA): those that it \
         touches with nothing else are missing.",
        String::from_utf8_lossy(path)
    )
}

/// The sentence on a program that ran unrecorded.
pub(crate) fn sentence(path: &str, why: Unrecorded) -> String {
    let why = match why {
        Unrecorded::SetUserId => {
            "it runs with another user's rights (set-user-id); run folio as that user"
        }
        Unrecorded::ThirtyTwoBit => "it is a 32-bit program; build it without -m32",
        Unrecorded::Foreign => "it is for another architecture than the first program",
        Unrecorded::Unreadable => "the recorder may not read it; make it readable",
        Unrecorded::Deleted => "its file was deleted or has no name",
        Unrecorded::NoRecorder => {
            "QEMU could not be started in its place, as in another root directory or as a user who \
             cannot reach it"
        }
    };
    format!("{path} and what it started ran unrecorded: {why}.")
}
