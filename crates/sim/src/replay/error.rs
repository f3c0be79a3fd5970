//! Why a cell cannot go on.

use largefolio_mm::fault::FaultError;
use largefolio_mm::fork::ForkError;
use largefolio_mm::io::OutOfMemory;
use largefolio_mm::map::MapError;
use largefolio_mm::memory::MemoryError;
use largefolio_trace::{Op, ThreadId};

use super::budget::{NR_PROCESSES_MAX, NR_RUNNING_MAX, NR_THREADS_MAX, OverBudget};
use crate::machine::MachineError;

/// Why a cell cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The machine has no such base page.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine's memory cannot be made.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A fault found no free page.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// A fork found no page for what it must copy.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// A read or write call found no free page.
    #[error(transparent)]
    Io(#[from] OutOfMemory),
    /// A mapping of the recorded layout or of a recorded call is impossible.
    #[error(transparent)]
    Map(#[from] MapError),
    /// More threads than a program has.
    #[error(
        "thread {0}: a trace may name {NR_THREADS_MAX} threads, of which {NR_RUNNING_MAX} run at \
         the same time"
    )]
    TooManyThreads(ThreadId),
    /// A thread nobody announced.
    #[error(
        "thread {0} is not the first and no fork of the trace made it: the trace is damaged; \
         record it again"
    )]
    UnknownThread(ThreadId),
    /// More work or state than a trace may cause.
    #[error(transparent)]
    OverBudget(Box<OverBudget>),
    /// More processes than a program has.
    #[error("a trace may have {NR_PROCESSES_MAX} processes")]
    TooManyProcesses,
}

impl CellError {
    /// The same error, at a row of the trace if it is one of the budget.
    pub(super) fn at(self, row: u64, op: Option<Op>) -> Self {
        match self {
            Self::OverBudget(mut over) => {
                (over.row, over.op) = (Some(row), op);
                Self::OverBudget(over)
            }
            other => other,
        }
    }
}
