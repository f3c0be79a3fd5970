//! One recorded process.
//!
//! Owns the map from the kernel's thread numbers to ids, and how the process said it ends.

use std::collections::BTreeMap;

use largefolio_trace::ThreadId;

/// A thread of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    /// Its id in the trace.
    pub(crate) id: ThreadId,
    /// Sequence number of the last rows received.
    pub(crate) last_seq: Option<u64>,
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
    /// Its exit is in the trace.
    Over,
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
    /// Path of the execve it is in.
    pub(crate) execve: Option<String>,
    /// Where it is in its life.
    pub(crate) phase: Phase,
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
            phase: Phase::Announced,
            parked: Vec::new(),
        }
    }
}
