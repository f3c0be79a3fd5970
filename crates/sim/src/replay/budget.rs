//! How much a replay may do and hold.
//!
//! A trace is bounded in size, but a row of it may ask for anything: a read of 2 GiB, a fork of
//! everything, a collapse of half an address space. So the memory manager counts its steps
//! ([`largefolio_mm::core::work`]), a cell adds its own, and both end when a trace takes more than any
//! program does. References that find their page cost nothing here: a long trace is not a costly
//! one. Nothing is timed: the same trace ends at the same row everywhere.
//!
//! ```text
//!   steps  <=  factor * (2^26 + 64 * rows so far)         state  <=  factor * 1 GiB
//! ```
//!
//! Owns the limits, when they are looked at, and what is said then. It is looked at after every
//! event and every fault, never after a reference that found its page.

use largefolio_trace::Op;
use serde::{Deserialize, Serialize};

use super::cell::{Cell, CellError};
use super::program::ProcessNr;

/// Steps of any trace: seconds. Those that come with folio need less than 2^15.
const STEPS: u64 = 1 << 26;
/// Steps of each row on top: a program of 10^9 rows may take faults in proportion.
const STEPS_PER_ROW: u64 = 64;
/// Bytes of state: 16 GiB of memory in folios of 4 KiB take 800 MiB.
const STATE_BYTES: u64 = 1 << 30;
/// Most a user may ask for at a time: more than any machine has.
pub const FACTOR_MAX: u64 = 1 << 20;

/// Bytes of the TLB of a running thread.
const THREAD_BYTES: u64 = 128 << 10;
/// Bytes of the buffers of all sizes beside it, where pictures are drawn.
const STACKS_BYTES: u64 = 1 << 20;
/// Bytes of an entry of a map: a segment, a descriptor, a thread, 64 pieces of a file.
const ENTRY_BYTES: u64 = 96;
/// Steps of an event beside what it does in the memory manager.
const STEPS_OF_EVENT: u64 = 4;

/// Limits of a replay.
///
/// ```
/// use largefolio_sim::replay::Budget;
/// let twice = Budget::times(2);
/// assert_eq!(twice.steps, 2 * Budget::default().steps);
/// assert_eq!(Budget::times(1), Budget::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Steps, whatever the trace.
    pub steps: u64,
    /// Steps more for each row replayed.
    pub steps_per_row: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// What the default was multiplied by, to say what to ask for.
    pub factor: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::times(1)
    }
}

impl Budget {
    /// The default limits `factor` times.
    #[must_use]
    pub const fn times(factor: u64) -> Self {
        Self {
            steps: STEPS.saturating_mul(factor),
            steps_per_row: STEPS_PER_ROW.saturating_mul(factor),
            state_bytes: STATE_BYTES.saturating_mul(factor),
            factor,
        }
    }

    fn steps_after(&self, nr_rows: u64) -> u64 {
        self.steps.saturating_add(self.steps_per_row.saturating_mul(nr_rows))
    }

    /// The factor to try next.
    const fn next(&self) -> u64 {
        self.factor.saturating_mul(4)
    }
}

/// What there was too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Steps.
    Steps {
        /// Steps taken.
        taken: u64,
        /// Steps allowed.
        allowed: u64,
    },
    /// Bytes of state.
    State {
        /// Bytes held.
        held: u64,
        /// Bytes allowed.
        allowed: u64,
    },
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps { taken, allowed } => {
                write!(f, "the model has taken {taken} steps of work, of {allowed} allowed")
            }
            Self::State { held, allowed } => {
                let (held, allowed) = (held >> 20, allowed >> 20);
                write!(f, "the model holds {held} MiB of state, of {allowed} MiB allowed")
            }
        }
    }
}

/// Where a budget was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: {excess}; programs take a fraction of that. If you trust the trace, allow more with \
     `--max-work {}` (Python: `max_work={}`)",
    place(*.row, *.op), .budget.next(), .budget.next()
)]
pub struct OverBudget {
    /// Row of the trace, as `folio trace cat` counts them; `None` = the layout at the start.
    pub row: Option<u64>,
    /// What the row does.
    pub op: Option<Op>,
    /// Of what there was too much.
    pub excess: Excess,
    budget: Budget,
}

fn place(row: Option<u64>, op: Option<Op>) -> String {
    match (row, op) {
        (Some(row), Some(op)) => format!("row {row} of the trace ({})", op.name()),
        _ => "the layout at the start of the trace".to_owned(),
    }
}

/// What is kept of it during a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// Rows of earlier batches, of all passes.
    nr_rows: u64,
    /// Bytes of the maps of all processes.
    process_bytes: u64,
}

impl Cell {
    /// Before the rows of a batch: they may take more steps.
    pub(super) fn allow(&mut self, nr_rows: usize) {
        self.meter.nr_rows += nr_rows as u64;
        let limit = self.spec.budget.steps_after(self.meter.nr_rows);
        self.memory.work_mut().set_limit(limit);
    }

    /// Counts work of the cell's own.
    pub(super) fn count_steps(&self, nr: usize) {
        self.memory.work().add(nr as u64);
    }

    /// Counts an event.
    pub(super) fn count_event(&self) {
        self.memory.work().add(STEPS_OF_EVENT);
    }

    /// After an event or a fault of a process: whether it is too much by now.
    pub(super) fn check_budget(&mut self, process: ProcessNr) -> Result<(), CellError> {
        self.measure_process(process);
        let budget = &self.spec.budget;
        let held = self.state_bytes();
        let work = self.memory.work();
        let excess = if work.is_spent() {
            let allowed = budget.steps_after(self.meter.nr_rows);
            Excess::Steps { taken: work.nr_steps(), allowed }
        } else if held > budget.state_bytes {
            Excess::State { held, allowed: budget.state_bytes }
        } else {
            return Ok(());
        };
        let over = OverBudget { row: None, op: None, excess, budget: *budget };
        Err(CellError::OverBudget(Box::new(over)))
    }

    /// Looks at the size of a process again.
    pub(super) fn measure_process(&mut self, process: ProcessNr) {
        let process = &mut self.processes[process];
        self.memory.measure(process.mm);
        let bytes = process.nr_entries() as u64 * ENTRY_BYTES;
        let before = std::mem::replace(&mut process.measured_bytes, bytes);
        self.meter.process_bytes = self.meter.process_bytes - before + bytes;
    }

    /// Processes of an earlier run are gone.
    pub(super) fn forget_processes(&mut self) {
        self.meter.process_bytes = 0;
    }

    fn state_bytes(&self) -> u64 {
        let of_thread = THREAD_BYTES + if self.detail.is_some() { STACKS_BYTES } else { 0 };
        let nr_entries = self.touched.nr_words() + self.threads.len();
        self.memory.state_bytes()
            + self.meter.process_bytes
            + self.running.len() as u64 * of_thread
            + nr_entries as u64 * ENTRY_BYTES
    }
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
