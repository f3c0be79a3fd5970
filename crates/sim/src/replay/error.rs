//! The error of a cell.

use largefolio_mm::buddy::BuddyError;
use largefolio_mm::fault::FaultError;
use largefolio_mm::fork::ForkError;
use largefolio_mm::io::{OutOfMemory, Short};
use largefolio_mm::map::MapError;
use largefolio_mm::memory::MemoryError;
use largefolio_mm::numa::NumaError;
use largefolio_mm::policy::PolicyError;
use largefolio_trace::validate::{NR_PROCESSES_MAX, NR_THREADS_MAX};
use largefolio_trace::{Op, ThreadId};

use crate::kernel::KernelError;
use crate::machine::MachineError;
use crate::replay::request::budget::{AgeingOverBudget, OverBudget};

#[derive(Debug, thiserror::Error)]
pub enum CellError {
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Kernel(#[from] Box<KernelError>),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Fault(#[from] FaultError),
    #[error(transparent)]
    Fork(#[from] ForkError),
    #[error(transparent)]
    Io(#[from] OutOfMemory),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Numa(#[from] NumaError),
    #[error("thread {0}: a trace can have at most {NR_THREADS_MAX} threads")]
    TooManyThreads(ThreadId),
    #[error(
        "thread {0} is not the first one, and no fork in the trace created it: the trace is \
         damaged; record it again"
    )]
    UnknownThread(ThreadId),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the policy cannot start: {0}")]
    NoPolicy(String),
    #[error(transparent)]
    OverBudget(Box<OverBudget>),
    #[error(transparent)]
    Ageing(#[from] AgeingOverBudget),
    #[error(
        "more processes exist at the same time than the limit of {NR_PROCESSES_MAX}; record a \
         smaller part of the program"
    )]
    TooManyProcesses,
}

impl CellError {
    /// Describes how to change the cell's memory if the machine or this host has too little.
    pub(crate) const fn remedy(&self) -> &'static str {
        let is_short = match self {
            Self::Memory(MemoryError::Buddy(error)) => matches!(error, BuddyError::NoRoom { .. }),
            Self::Fault(error) => matches!(error, FaultError::OutOfMemory(_)),
            Self::Fork(error) => matches!(error, ForkError::OutOfMemory),
            Self::Io(error) => matches!(error.short, Short::Machine),
            _ => false,
        };
        if is_short { ", with `--memory` (Python, studies: `memory=`)" } else { "" }
    }

    pub(crate) const fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Fault(error) => {
                matches!(error, FaultError::OutOfMemory(_) | FaultError::GroupOutOfMemory(_))
            }
            Self::Fork(error) => matches!(error, ForkError::OutOfMemory),
            Self::Io(_) => true,
            _ => false,
        }
    }

    pub(crate) fn at(self, row: u64, op: Option<Op>) -> Self {
        match self {
            Self::OverBudget(mut over) => {
                (over.row, over.op) = (Some(row), op);
                Self::OverBudget(over)
            }
            other => other,
        }
    }
}
