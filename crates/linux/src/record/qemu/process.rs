//! One recorded process.
//!
//! Owns the map from the kernel's thread ids to the trace's, and the process's announcement of its
//! exit or execve.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Instant;

use largefolio_trace::ThreadId;

use super::wire::{self, Unrecorded};
use crate::record::executions::COMMAND_BYTES_MAX;

/// At most this many command words are read: one more than are kept.
const COMMAND_WORDS_MAX: usize = COMMAND_BYTES_MAX + 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) id: ThreadId,
    /// Sequence number of the last rows received.
    pub(crate) last_seq: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Execve {
    /// Recorded, with its path and command, called by this thread.
    Recorded {
        path: PathBuf,
        command: Vec<String>,
        caller: ThreadId,
    },
    Unrecorded {
        path: String,
        why: Unrecorded,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Only its parent has mentioned it.
    Announced,
    /// Its connection is open.
    Connected,
    /// It closed its connection and may come back.
    Away,
    /// It closed its connection to execute a program that will connect.
    Executing,
    /// Its exit is in the trace.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// It is connected, or about to connect as another program.
    Speaks,
    /// It has no connection now.
    Silent,
    /// It ended or never existed.
    Over,
}

impl Phase {
    pub(crate) fn reachability(self) -> Reachability {
        match self {
            Self::Announced | Self::Away => Reachability::Silent,
            Self::Connected | Self::Executing => Reachability::Speaks,
            Self::Over => Reachability::Over,
        }
    }
}

#[derive(Debug)]
pub(crate) struct RecordedProcess {
    pub(crate) first: ThreadId,
    pub(crate) threads: BTreeMap<u32, Thread>,
    /// Its exit status, once announced.
    pub(crate) status: Option<u64>,
    pub(crate) last: ThreadId,
    pub(crate) execve: Option<Execve>,
    /// How many programs it and its ancestors have executed: part of its tails' names.
    pub(crate) generation: u32,
    /// First address of its heap, if known.
    pub(crate) brk: u64,
    /// Its new program and command, until the mappings are known.
    pub(crate) executed: Option<(PathBuf, Vec<String>)>,
    /// The process that borrows its memory (vfork).
    pub(crate) borrower: Option<u32>,
    /// The process that lends it memory. While the lender lives, its `borrower` is this process.
    pub(crate) lender: Option<u32>,
    pub(crate) phase: Phase,
    /// When it was announced or left, for the length of its silence in these phases.
    pub(crate) silent_since: Instant,
    /// Its parent if the parent announced it too late. A late announcement is ignored.
    pub(crate) adopted_from: Option<u32>,
    /// Packets of threads without a fork event so far.
    pub(crate) parked: Vec<Vec<u8>>,
}

impl RecordedProcess {
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
    /// The process is now a new program. Its only thread is the caller of execve.
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
    pub(crate) fn recorded(body: &[u8], caller: ThreadId) -> Self {
        let mut strings = body.split(|byte| *byte == 0);
        let path = strings.next().unwrap_or_default();
        let path = PathBuf::from(OsStr::from_bytes(path));
        let mut command: Vec<String> = strings
            .take(COMMAND_WORDS_MAX)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        // Each word ends with a zero, and nothing follows the last zero.
        if command.last().is_some_and(String::is_empty) {
            command.pop();
        }
        Self::Recorded { path, command, caller }
    }

    pub(crate) fn unrecorded(body: &[u8]) -> Self {
        let why = wire::u32_at(body, 0).and_then(Unrecorded::from_number);
        let path = String::from_utf8_lossy(body.get(4..).unwrap_or_default()).into_owned();
        Self::Unrecorded { path, why: why.unwrap_or(Unrecorded::NoRecorder) }
    }
}

pub(crate) fn unseen(path: &[u8]) -> String {
    format!(
        "{} clears whole pages with an instruction that QEMU does not report (DC ZVA): pages that \
         no other instruction touches are missing.",
        String::from_utf8_lossy(path)
    )
}

pub(crate) fn refused(call: &[u8]) -> String {
    format!(
        "QEMU refused {}, which a kernel may grant: the program got an error that it would \
         not get without the recorder. --live records the program without QEMU.",
        String::from_utf8_lossy(call)
    )
}

pub(crate) fn sentence(path: &str, why: Unrecorded) -> String {
    let why = match why {
        Unrecorded::SetUserId => {
            "it runs with another user's privileges (set-user-id); run folio as that user"
        }
        Unrecorded::ThirtyTwoBit => "it is a 32-bit program; build it without -m32",
        Unrecorded::Foreign => "its architecture differs from the first program's",
        Unrecorded::Unreadable => "the recorder has no permission to read it; make it readable",
        Unrecorded::Deleted => "its file was deleted or has no name",
        Unrecorded::NoRecorder => {
            "QEMU could not be started in its place (another root directory, or a user without \
             access to QEMU)"
        }
    };
    format!("{path} and its children were not recorded: {why}.")
}
