//! Limits the work and the state of a replay.
//!
//! One row of a trace can request almost anything: a read of 2 GiB, a fork of a huge process, a
//! collapse of half an address space. The memory manager therefore counts its steps
//! ([`largefolio_mm::core::work`]), a cell adds its own steps, and a replay that exceeds the limit
//! fails. References that find their page cost nothing. Steps are counted, not timed: the same
//! trace fails at the same row on every host.
//!
//! ```text
//!   steps  <=  factor * (2^26 + 64 * rows so far)         state  <=  factor * 1 GiB
//! ```
//!
//! Owns the limits and the error. `metering` decides when they are checked.

use largefolio_mm::buddy::Ageing;
use largefolio_mm::rules::sizes::size_name;
use largefolio_mm::units::PageSize;
use largefolio_trace::{Op, shown};
use serde::{Deserialize, Serialize};

/// Steps allowed for any trace: a few seconds of work. The bundled traces need fewer than 2^15.
const STEPS: u64 = 1 << 26;
/// Additional steps per row: a program of 10^9 rows may take faults in proportion.
const STEPS_PER_ROW: u64 = 64;
/// State limit in bytes: 16 GiB of memory in folios of 4 KiB need 800 MiB.
const STATE_BYTES: u64 = 1 << 30;
/// Largest factor: with it, a budget exceeds any machine.
pub const FACTOR_MAX: u64 = 1 << 20;

/// State of a used CPU's TLB in bytes, with the hints of six address spaces.
pub(crate) const CPU_BYTES: u64 = 320 << 10;
/// State of the LRU stacks per CPU in bytes. Only pictures need them.
pub(crate) const STACKS_BYTES: u64 = 1 << 20;
/// State of a thread in bytes: its process and its CPU. An ended thread keeps it.
pub(crate) const THREAD_BYTES: u64 = 24;
/// State of a map entry in bytes: a segment, a descriptor, or 64 pieces of a file.
pub(crate) const ENTRY_BYTES: u64 = 96;
pub(crate) const STEPS_OF_EVENT: u64 = 4;

/// The limits of a replay.
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
    /// For any trace, plus `steps_per_row` for each replayed row.
    pub steps: u64,
    pub steps_per_row: u64,
    /// Limit on the model's state.
    pub state_bytes: u64,
    pub factor: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::times(1)
    }
}

impl Budget {
    #[must_use]
    pub const fn times(factor: u64) -> Self {
        Self {
            steps: STEPS.saturating_mul(factor),
            steps_per_row: STEPS_PER_ROW.saturating_mul(factor),
            state_bytes: STATE_BYTES.saturating_mul(factor),
            factor,
        }
    }

    pub(crate) fn steps_after(&self, nr_rows: u64) -> u64 {
        self.steps.saturating_add(self.steps_per_row.saturating_mul(nr_rows))
    }

    const fn next(&self) -> u64 {
        self.factor.saturating_mul(4)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Steps {
        taken: u64,
        /// Steps allowed for the rows so far.
        allowed: u64,
        of_policy: u64,
    },
    State {
        held: u64,
        allowed: u64,
    },
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps { taken, allowed, of_policy } => {
                write!(f, "the model has taken {taken} steps")?;
                if *of_policy > 0 {
                    write!(f, ", {of_policy} of them in the policy")?;
                }
                write!(f, ", but {allowed} are allowed")
            }
            Self::State { held, allowed } => {
                let (held, allowed) = (held >> 20, allowed >> 20);
                write!(f, "the model holds {held} MiB of state, but only {allowed} MiB are allowed")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: {excess}; {} allow more with `--max-work {}` (Python: `max_work={}`)",
    place(*.row, *.op), cause(.policy.as_deref()), .budget.next(), .budget.next()
)]
pub struct OverBudget {
    pub row: Option<u64>,
    pub op: Option<Op>,
    pub excess: Excess,
    pub policy: Option<String>,
    pub(crate) budget: Budget,
}

/// Names the likely cause. The message's remedy follows it.
fn cause(policy: Option<&str>) -> String {
    match policy {
        Some(policy) => format!(
            "real programs need a fraction of that, and the policy {} may be the cause; try \
             without it. If you trust both,",
            shown(policy)
        ),
        None => "real programs need a fraction of that. If you trust the trace,".to_owned(),
    }
}

fn place(row: Option<u64>, op: Option<Op>) -> String {
    match (row, op) {
        (Some(row), Some(op)) => format!("row {row} of the trace ({})", op.name()),
        _ => "the layout at the start of the trace".to_owned(),
    }
}

/// Ageing would exceed the budget. This is known before ageing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ageing {} of memory for {rounds} rounds takes up to {}; use less memory or fewer rounds, or \
     allow more with `--max-work {factor}` (Python: `max_work={factor}`)",
    size_name(*.ram_bytes), too_much(.excess)
)]
pub struct AgeingOverBudget {
    pub ram_bytes: u64,
    pub rounds: u32,
    pub excess: Excess,
    pub factor: u64,
}

impl AgeingOverBudget {
    pub(crate) fn check(
        ageing: &Ageing,
        ram_bytes: u64,
        page: PageSize,
        budget: &Budget,
    ) -> Result<(), Self> {
        let nr_pages = ram_bytes >> page.shift();
        let (taken, held) = (ageing.steps(nr_pages), ageing.state_bytes(nr_pages));
        let excess = if taken > budget.steps {
            Excess::Steps { taken, allowed: budget.steps, of_policy: 0 }
        } else if held > budget.state_bytes {
            Excess::State { held, allowed: budget.state_bytes }
        } else {
            return Ok(());
        };
        let factor = taken.div_ceil(STEPS).max(held.div_ceil(STATE_BYTES));
        Err(Self { ram_bytes, rounds: ageing.rounds, excess, factor })
    }
}

fn too_much(excess: &Excess) -> String {
    match excess {
        Excess::Steps { taken, allowed, .. } => format!("{taken} steps, but {allowed} are allowed"),
        Excess::State { held, allowed } => {
            let (held, allowed) = (held >> 20, allowed >> 20);
            format!("{held} MiB of state, but only {allowed} MiB are allowed")
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    pub(crate) nr_rows: u64,
    pub(crate) process_bytes: u64,
}
