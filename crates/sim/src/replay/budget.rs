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
//! Owns the limits and what is said of a trace that exceeds them. When they are checked is
//! `metering`'s.

use largefolio_mm::buddy::Ageing;
use largefolio_mm::rules::sizes::size_name;
use largefolio_mm::units::PageSize;
use largefolio_trace::{Op, shown};
use serde::{Deserialize, Serialize};

/// Steps of any trace: seconds. Those that come with folio need less than 2^15.
const STEPS: u64 = 1 << 26;
/// Steps of each row on top: a program of 10^9 rows may take faults in proportion.
const STEPS_PER_ROW: u64 = 64;
/// Bytes of state: 16 GiB of memory in folios of 4 KiB take 800 MiB.
const STATE_BYTES: u64 = 1 << 30;
/// Most a user may ask for at a time: more than any machine has.
pub const FACTOR_MAX: u64 = 1 << 20;

/// Bytes of the TLB of a CPU that is used, with the hints of six address spaces.
pub(super) const CPU_BYTES: u64 = 320 << 10;
/// Bytes of the buffers of all sizes beside it, where pictures are drawn.
pub(super) const STACKS_BYTES: u64 = 1 << 20;
/// Bytes of a thread, also of one that ended: which process it is of, and where it runs.
pub(super) const THREAD_BYTES: u64 = 24;
/// Bytes of an entry of a map: a segment, a descriptor, 64 pieces of a file.
pub(super) const ENTRY_BYTES: u64 = 96;
/// Steps of an event beside what it does in the memory manager.
pub(super) const STEPS_OF_EVENT: u64 = 4;

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
    /// Bytes that the model may hold.
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

    pub(super) fn steps_after(&self, nr_rows: u64) -> u64 {
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
    /// More work than allowed.
    Steps {
        /// Steps so far.
        taken: u64,
        /// Steps the trace may take so far.
        allowed: u64,
        /// Of those taken, steps of the policy.
        of_policy: u64,
    },
    /// Bytes that the model may hold.
    State {
        /// Bytes of state, now.
        held: u64,
        /// Bytes of state it may hold.
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
                write!(f, ", and {allowed} are allowed")
            }
            Self::State { held, allowed } => {
                let (held, allowed) = (held >> 20, allowed >> 20);
                write!(f, "the model holds {held} MiB of state, and {allowed} MiB are allowed")
            }
        }
    }
}

/// Where a budget was exceeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: {excess}; {} allow more with `--max-work {}` (Python: `max_work={}`)",
    place(*.row, *.op), cause(.policy.as_deref()), .budget.next(), .budget.next()
)]
pub struct OverBudget {
    /// Row of the trace, as `folio trace cat` counts them; `None` = the layout at the start.
    pub row: Option<u64>,
    /// What the row does.
    pub op: Option<Op>,
    /// Of what there was too much.
    pub excess: Excess,
    /// The policy that answered, by its name.
    pub policy: Option<String>,
    pub(super) budget: Budget,
}

/// What may have caused it, up to what can be done.
fn cause(policy: Option<&str>) -> String {
    match policy {
        Some(policy) => format!(
            "real programs need a fraction of that, and the policy {} may cause it: try without. If \
             you trust both,",
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

/// Ageing that would exceed a budget: it is known before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ageing {} of memory for {rounds} rounds takes up to {}; give less memory or fewer rounds, or \
     allow more with `--max-work {factor}` (Python: `max_work={factor}`)",
    size_name(*.ram_bytes), too_much(.excess)
)]
pub struct AgeingOverBudget {
    /// Physical memory.
    pub ram_bytes: u64,
    /// Rounds of ageing.
    pub rounds: u32,
    /// What it would take too much of.
    pub excess: Excess,
    /// Multiple of the default budget that is enough.
    pub factor: u64,
}

impl AgeingOverBudget {
    /// Whether `budget` is enough for the ageing of `ram_bytes` in pages of `page`.
    pub(super) fn check(
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
        Excess::Steps { taken, allowed, .. } => format!("{taken} steps, and {allowed} are allowed"),
        Excess::State { held, allowed } => {
            let (held, allowed) = (held >> 20, allowed >> 20);
            format!("{held} MiB of state, and {allowed} MiB are allowed")
        }
    }
}

/// What is kept of it during a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// Rows of earlier batches, of all passes.
    pub(super) nr_rows: u64,
    /// Bytes of the maps of all processes.
    pub(super) process_bytes: u64,
}
