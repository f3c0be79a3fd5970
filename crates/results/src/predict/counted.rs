//! Hardware counters of plain runs.

use largefolio_sim::cost::{Anchor, BaseSource, Cause, cpi_of};
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::Outcome;
use largefolio_trace::{HardwareCounters, PlainRun};
use serde::{Deserialize, Serialize};

/// Medians, minima and maxima of hardware counters over plain runs; absent if not all runs have
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub nr_runs: usize,
    pub cycles_per_instruction: Option<Interval>,
    pub dtlb_misses: Option<Interval>,
    pub itlb_misses: Option<Interval>,
    /// Time with a page walk in progress, in nanoseconds.
    #[serde(default)]
    pub walk_ns: Option<Interval>,
}

impl Counted {
    pub(super) fn of(runs: &[PlainRun]) -> Option<Self> {
        let of = |value: fn(&PlainRun, &HardwareCounters) -> Option<f64>| {
            let values = runs.iter().map(|run| value(run, run.counters.as_ref()?));
            Interval::measured(&values.collect::<Option<Vec<_>>>()?)
        };
        let counted = Self {
            nr_runs: runs.len(),
            cycles_per_instruction: cpi_of(runs),
            dtlb_misses: of(|_, counters| counters.dtlb_misses.map(float)),
            itlb_misses: of(|_, counters| counters.itlb_misses.map(float)),
            walk_ns: of(|run, counters| {
                let cycles = counters.cycles.filter(|&cycles| cycles > 0)?;
                let cpu_ns = run.user_ns.saturating_add(run.system_ns);
                let ns = Some(if cpu_ns > 0 { cpu_ns } else { run.wall_ns });
                let ns = ns.filter(|&ns| ns > 0)?;
                Some(float(ns) * float(counters.walk_cycles?.min(cycles)) / float(cycles))
            }),
        };
        let Self { nr_runs: _, cycles_per_instruction, dtlb_misses, itlb_misses, walk_ns } =
            &counted;
        let has_any = [cycles_per_instruction, dtlb_misses, itlb_misses, walk_ns]
            .iter()
            .any(|value| value.is_some());
        has_any.then_some(counted)
    }

    /// Scales the walks of all rows on the counted CPU by its walk cycles, unless a measured slope
    /// does. The first of these rows is taken to be the plain runs.
    pub(super) fn anchor(&self, cpu: &str, rows: &mut [Outcome]) {
        let is_here = |row: &Outcome| {
            matches!(row.estimate.run.source, BaseSource::Measured | BaseSource::Cpu)
        };
        let Some(first) = rows.iter().find(|row| is_here(row)) else { return };
        let machine = first.machine.clone();
        let modelled = first.estimate.causes.get(&Cause::Walk).and_then(|time| time.ns);
        let share = first.estimate.constants.get("costs.walk_beside").map_or(0.0, |one| one.low);
        let anchor = self.walk_ns.zip(modelled).and_then(|(walks_ns, modelled)| {
            Anchor::counted(cpu, (walks_ns, self.nr_runs), float(modelled), share)
        });
        if first.estimate.anchor.is_some() {
            return;
        }
        for row in rows.iter_mut().filter(|row| row.machine == machine) {
            row.estimate = std::mem::take(&mut row.estimate).anchored(anchor.as_ref());
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count or a time is read to three digits")]
const fn float(value: u64) -> f64 {
    value as f64
}
