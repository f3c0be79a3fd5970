//! The program's run time, the base for percentages.
//!
//! ```text
//!   measured   the trace holds runs of the plain program on this very CPU, or is a live recording
//!   cpu        the same, but the processors had half of that time or less: their time, and the reads
//!              that are predicted
//!   not known  the trace has page faults only
//!   estimated  instructions x cycles per instruction / clock + memory management
//! ```

use largefolio_trace::meta::PlainRun;
use serde::{Deserialize, Serialize};

use super::terms::{constant, full_name};
use super::{Estimate, Interval};
use crate::machine::{Costs, Quantity, Unit};

/// Used without a `cpi`. Programs that fit their caches need less than one, others several.
const CPI: Interval = Interval { low: 0.4, mid: 1.0, high: 2.5 };
const CLOCK_GHZ: Interval = Interval { low: 2.0, mid: 3.0, high: 4.5 };

/// At this ratio of wall-clock to CPU time, the machine was busy or the program waited.
const WALL_OF_CPU: f64 = 2.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseSource {
    Measured,
    /// The CPU time of such runs, if it is at most half of their wall-clock time. The wall-clock
    /// time of a waiting program or a busy machine is not a useful base.
    Cpu,
    Given,
    #[default]
    Estimated,
    /// Not measured, and the trace does not say how many instructions ran.
    NotKnown,
}

impl BaseSource {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Cpu => "cpu",
            Self::Given => "given",
            Self::Estimated => "estimated",
            Self::NotKnown => "not_known",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BaseTime {
    pub source: BaseSource,
    pub runs: u64,
    /// From start to end. An estimate excludes memory management; CPU time excludes waits.
    pub ns: Interval,
    /// For a measured time, the part in which the program waited or a virtual machine's host ran.
    pub off_cpu_ns: Option<f64>,
}

impl BaseTime {
    /// Returns the wall-clock time, or the CPU time if that is at most half of it.
    #[must_use]
    pub fn measured(runs: &[PlainRun]) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "a time is read to three digits")]
        let of_runs = |ns: fn(&PlainRun) -> u64| {
            let all: Vec<f64> = runs.iter().map(|run| ns(run) as f64).collect();
            Interval::measured(&all).map(Interval::rounded)
        };
        let wall = of_runs(|run| run.wall_ns).filter(|ns| ns.low > 0.0)?;
        let off_cpu =
            |run: &PlainRun| run.wall_ns.saturating_sub(run.user_ns).saturating_sub(run.system_ns);
        let off_cpu_ns = of_runs(off_cpu).map(|ns| ns.mid);
        let cpu = of_runs(|run| run.user_ns.saturating_add(run.system_ns));
        let cpu = cpu.filter(|cpu| cpu.low > 0.0 && wall.mid >= WALL_OF_CPU * cpu.mid);
        let (source, ns) = match cpu {
            Some(cpu) => (BaseSource::Cpu, cpu),
            None => (BaseSource::Measured, wall),
        };
        Some(Self { source, runs: runs.len() as u64, ns, off_cpu_ns })
    }

    /// Returns the runs' wall-clock time, even if this is CPU time.
    #[must_use]
    pub fn wall_ns(&self) -> f64 {
        let off_cpu = self.off_cpu_ns.filter(|_| self.source == BaseSource::Cpu);
        self.ns.mid + off_cpu.unwrap_or(0.0)
    }

    #[must_use]
    pub const fn not_known() -> Self {
        Self { source: BaseSource::NotKnown, runs: 0, ns: Interval::exact(0.0), off_cpu_ns: None }
    }

    #[must_use]
    pub const fn given(ns: f64) -> Self {
        Self { source: BaseSource::Given, runs: 0, ns: Interval::exact(ns), off_cpu_ns: None }
    }

    #[must_use]
    pub fn estimated(instructions: u64, costs: &Costs) -> Self {
        let [cpi, clock] = pace(costs).map(|(_, cost)| cost.interval());
        #[expect(clippy::cast_precision_loss, reason = "a time is read to three digits")]
        let instructions = instructions as f64;
        let ns = cpi.over(clock).times(instructions).rounded();
        Self { source: BaseSource::Estimated, runs: 0, ns, off_cpu_ns: None }
    }
}

impl Estimate {
    /// Sets the run time. An estimated run time also adds its constants.
    #[must_use]
    pub fn of_run(mut self, run: BaseTime, costs: &Costs) -> Self {
        self.run = run;
        if run.source == BaseSource::Estimated {
            let pace = pace(costs).map(|(name, cost)| (full_name(name), constant(&cost)));
            self.constants.extend(pace);
        }
        self
    }
}

/// Returns cycles per instruction and clock: the machine's, or typical values.
fn pace(costs: &Costs) -> [(&'static str, Quantity); 2] {
    let or = |cost: &Option<Quantity>, usual: Interval, unit| {
        cost.clone().unwrap_or_else(|| Quantity {
            value: usual.mid,
            unit,
            source: "not known; a typical value".to_owned(),
            assumed: true,
            range: Some([usual.low, usual.high]),
        })
    };
    [("cpi", or(&costs.cpi, CPI, Unit::Cpi)), ("clock", or(&costs.clock, CLOCK_GHZ, Unit::GHz))]
}
