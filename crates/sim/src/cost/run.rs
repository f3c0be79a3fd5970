//! The program's run time, the base for percentages.
//!
//! ```text
//!   measured   the trace holds runs of the plain program on this very CPU, or is a live recording
//!   cpu        the same, but the processors had half of that time or less: their time, and the reads
//!              that are predicted
//!   not known  the trace has page faults only
//!   estimated  instructions x cycles per instruction / clock + memory management; cycles per
//!              instruction are those that the plain runs' counters show, within a factor, unless
//!              the machine has its own
//! ```

use largefolio_trace::meta::PlainRun;
use serde::{Deserialize, Serialize};

use super::terms::{constant, full_name};
use super::{Estimate, Interval};
use crate::machine::{Costs, Quantity, Unit};

/// Used without a `cpi`. Programs that fit their caches need less than one, others several.
const CPI: Interval = Interval { low: 0.4, mid: 1.0, high: 2.5 };
const CLOCK_GHZ: Interval = Interval { low: 2.0, mid: 3.0, high: 4.5 };

/// Another CPU runs a program with cycles per instruction within this factor.
const CPI_WITHIN: f64 = 1.5;

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

    /// Estimates it from `runs`, plain runs on another CPU.
    #[must_use]
    pub fn estimated(instructions: u64, costs: &Costs, runs: &[PlainRun]) -> Self {
        let [cpi, clock] = pace(costs, cpi_of(runs)).map(|(_, cost)| cost.interval());
        #[expect(clippy::cast_precision_loss, reason = "a time is read to three digits")]
        let instructions = instructions as f64;
        let ns = cpi.over(clock).times(instructions).rounded();
        Self { source: BaseSource::Estimated, runs: 0, ns, off_cpu_ns: None }
    }
}

impl Estimate {
    /// Sets the run time. An estimated run time also adds its constants.
    #[must_use]
    pub fn of_run(mut self, run: BaseTime, costs: &Costs, runs: &[PlainRun]) -> Self {
        self.run = run;
        if run.source == BaseSource::Estimated {
            let pace =
                pace(costs, cpi_of(runs)).map(|(name, cost)| (full_name(name), constant(&cost)));
            self.constants.extend(pace);
        }
        self
    }
}

/// Returns the cycles per instruction that the runs' counters show, if all have them.
#[must_use]
pub fn cpi_of(runs: &[PlainRun]) -> Option<Interval> {
    #[expect(clippy::cast_precision_loss, reason = "a ratio is read to three digits")]
    let of = |run: &PlainRun| {
        let counters = run.counters?;
        let instructions = counters.instructions.filter(|&nr| nr > 0)?;
        Some(counters.cycles? as f64 / instructions as f64)
    };
    let all: Option<Vec<f64>> = runs.iter().map(of).collect();
    Interval::measured(&all?).filter(|cpi| cpi.low > 0.0)
}

/// Returns cycles per instruction and clock: the machine's, the program's, or typical values.
fn pace(costs: &Costs, of_program: Option<Interval>) -> [(&'static str, Quantity); 2] {
    let or = |cost: &Option<Quantity>, usual: Interval, unit, source: &str| {
        cost.clone().unwrap_or_else(|| Quantity {
            value: usual.mid,
            unit,
            source: source.to_owned(),
            assumed: true,
            range: Some([usual.low, usual.high]),
        })
    };
    let typical = "not known; a typical value";
    let (cpi, source) = match of_program {
        Some(Interval { low, mid, high }) => (
            Interval { low: low / CPI_WITHIN, mid, high: high * CPI_WITHIN },
            "counted for this program on the CPU of the recording; within a factor of 1.5 here",
        ),
        None => (CPI, typical),
    };
    [
        ("cpi", or(&costs.cpi, cpi, Unit::Cpi, source)),
        ("clock", or(&costs.clock, CLOCK_GHZ, Unit::GHz, typical)),
    ]
}

#[cfg(test)]
mod tests {
    use largefolio_trace::HardwareCounters;

    use super::*;

    #[test]
    fn a_programs_own_cycles_per_instruction_replace_the_typical_ones() {
        let run = |cycles, instructions| {
            let counters = HardwareCounters { cycles, instructions, ..HardwareCounters::default() };
            PlainRun { counters: Some(counters), ..PlainRun::default() }
        };
        let runs =
            [run(Some(300), Some(100)), run(Some(310), Some(100)), run(Some(330), Some(100))];
        let costs = Costs::default();
        let base = BaseTime::estimated(1_000_000, &costs, &runs);
        // 3.1 cycles at 3 GHz; 2 and 4.95 at 4.5 and 2 GHz.
        assert_eq!(base.ns, Interval { low: 444_444.0, mid: 1_033_333.0, high: 2_475_000.0 });
        for without in [vec![], vec![runs[0], run(None, Some(1))], vec![run(Some(1), Some(0))]] {
            assert_eq!(cpi_of(&without), None);
            let ns = BaseTime::estimated(3_000, &costs, &without).ns;
            assert_eq!(ns, Interval { low: 267.0, mid: 1_000.0, high: 3_750.0 });
        }
    }
}
