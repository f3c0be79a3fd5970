//! How long the program runs: what a saving is a share of.
//!
//! ```text
//!   measured   the trace holds runs of the plain program on this very CPU
//!   estimated  instructions x cycles per instruction / clock + memory management
//! ```

use largefolio_trace::meta::PlainRun;
use serde::{Deserialize, Serialize};

use super::Interval;
use crate::machine::{Costs, Quantity};

/// Cycles per instruction where a machine file has no `cpi`: programs that fit their caches do with
/// less than one, those that wait for memory need several.
const CPI: Interval = Interval { low: 0.4, mid: 1.0, high: 2.5 };
/// Clock in GHz where a machine file has none.
const CLOCK_GHZ: Interval = Interval { low: 2.0, mid: 3.0, high: 4.5 };

/// Where a base time comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseSource {
    /// Runs of the plain program, recorded with the trace.
    Measured,
    /// Whoever asked gave it.
    Given,
    /// Instructions and cycles per instruction.
    #[default]
    Estimated,
}

impl BaseSource {
    /// Name in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Given => "given",
            Self::Estimated => "estimated",
        }
    }
}

/// The time of one run of the program, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BaseTime {
    /// Where it comes from.
    pub source: BaseSource,
    /// Runs behind a measured one.
    pub runs: u64,
    /// From start to end. If estimated, without memory management.
    pub ns: Interval,
}

impl BaseTime {
    /// Of the wall-clock times of `runs`; nothing without any.
    #[must_use]
    pub fn measured(runs: &[PlainRun]) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "a time is read to three digits")]
        let times: Vec<f64> = runs.iter().map(|run| run.wall_ns as f64).collect();
        let ns = Interval::measured(&times).filter(|ns| ns.low > 0.0)?.rounded();
        Some(Self { source: BaseSource::Measured, runs: runs.len() as u64, ns })
    }

    /// Of a time that somebody names.
    #[must_use]
    pub const fn given(ns: f64) -> Self {
        Self { source: BaseSource::Given, runs: 0, ns: Interval::exact(ns) }
    }

    /// Of `instructions` on a machine with these `costs`.
    #[must_use]
    pub fn estimated(instructions: u64, costs: &Costs) -> Self {
        let cpi = costs.cpi.as_ref().map_or(CPI, Quantity::interval);
        let clock = costs.clock.as_ref().map_or(CLOCK_GHZ, Quantity::interval);
        #[expect(clippy::cast_precision_loss, reason = "a time is read to three digits")]
        let instructions = instructions as f64;
        let ns = cpi.over(clock).times(instructions).rounded();
        Self { source: BaseSource::Estimated, runs: 0, ns }
    }
}
