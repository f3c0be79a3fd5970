//! The smallest memory limit in which a program runs.
//!
//! ```text
//!   limit     0 ............ least .............. calm ......... peak ....
//!             killed, or     runs, reading again      as without a limit
//!             thrashing      what it had to give up
//! ```
//!
//! A smaller limit than one that fails may be enough: where it leaves less than a 2M folio free, the
//! program gets base pages earlier. The result is the smallest limit above all that fail.
//!
//! Owns the search: [`NR_AT_ONCE`] limits per column and pass, between the largest that fails and
//! the smallest that does not. Does not own what a limit does (docs/behaviour P.1).
//!
//! Invariants:
//! - T1: each bound of a result was replayed, or is the peak, and the next smaller limit that was
//!   replayed fails, or cannot hold the private memory.

use std::collections::BTreeMap;

use largefolio_trace::OpenTrace;
use serde::Serialize;

use crate::replay::{
    Budget, CellSpec, Cgroup, Failed, Fitting, Outcome, Progress, ReplayError, RowsDone, Sharing,
    replay_fitting, run,
};

/// A run that takes this much longer than without a limit, in percent, is thrashing: it mostly reads
/// again what it had to give up. A kernel lets it go on, and kills it at a smaller limit or never.
pub const THRASHING_PERCENT: f64 = 100.0;
/// Below the calm limit, a run takes this much longer than without a limit, in percent.
pub const SLOWER_PERCENT: f64 = 5.0;
/// Limits of a column in one pass.
const NR_AT_ONCE: u64 = 6;
/// Precision of a limit: a share of it, or a number of bytes if that is more.
const PRECISION: u64 = 256;
/// A replay with a limit ends after this many steps per page and fault of the run without one: it is
/// thrashing. A page that is evicted and read again takes about a hundred.
const STEPS_PER_PAGE: u64 = 1 << 12;
/// Steps that are always allowed, a few seconds of work.
const STEPS_MIN: u64 = 1 << 26;
const PRECISION_BYTES: u64 = 64 << 10;
/// The kernel's memory for a process besides page tables: stack, task, mappings, files.
const PROCESS_BYTES: u64 = 256 << 10;

/// Memory limits of a program under one kernel on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    pub kernel: String,
    pub machine: String,
    /// The most that is charged without a limit.
    pub peak_bytes: u64,
    /// The smallest limit without an OOM kill and without thrashing.
    pub least_bytes: u64,
    /// The smallest limit at which the run takes at most [`SLOWER_PERCENT`] longer; absent if the
    /// time is not known.
    pub calm_bytes: Option<u64>,
    /// The part of each limit that is page tables and other memory of the kernel.
    pub kernel_bytes: u64,
    /// All limits that were tried, in ascending order.
    pub limits: Vec<Limit>,
}

/// What a limit does to the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    pub limit_bytes: u64,
    /// Whether the program runs to its end. The replay of a program that thrashes may end early.
    pub fits: bool,
    /// Change of the run time from the run without a limit, in percent; absent if it does not fit,
    /// or if the time is not known.
    pub run_change: Option<f64>,
    /// Bytes read again after they were evicted.
    pub refaulted_bytes: u64,
}

/// A column while its limits are searched. Limits are without the kernel's own memory.
struct Column<'a> {
    spec: &'a CellSpec,
    plain: Outcome,
    peak: u64,
    tried: BTreeMap<u64, Limit>,
}

/// Finds the limits of each spec, in the same order. The program must fit into each spec's memory,
/// or its limits are left out. Cgroups of the specs are ignored.
///
/// # Errors
/// A trace that cannot be replayed, or [`ReplayError::Stopped`].
pub fn fit(
    trace: &OpenTrace,
    specs: &[CellSpec],
    progress: Progress<'_>,
) -> Result<Vec<Fit>, ReplayError> {
    let mut done = RowsDone::default();
    // More than there is: it only measures the peak.
    let above = |spec: &CellSpec| limited(spec, spec.ram_bytes.saturating_mul(2));
    let plain: Vec<CellSpec> = specs.iter().map(above).collect();
    let Fitting { outcomes, .. } =
        replay_fitting(trace, &plain, Sharing::All, &mut done, &mut *progress)?;
    let mut columns: Vec<Column<'_>> = outcomes
        .into_iter()
        .map(|(nr, plain)| {
            let peak = plain.cgroups.first().map_or(0, |group| group.peak_bytes);
            Column { spec: &specs[nr], plain, peak, tried: BTreeMap::new() }
        })
        .collect();
    loop {
        let next: Vec<(usize, u64)> = columns
            .iter()
            .enumerate()
            .flat_map(|(at, column)| column.next().into_iter().map(move |limit| (at, limit)))
            .collect();
        if next.is_empty() {
            break;
        }
        let cells: Vec<CellSpec> =
            next.iter().map(|&(at, limit)| columns[at].limited(limit)).collect();
        done.begin();
        let mut observe = |nr_read| progress(done.observe(nr_read));
        let (_, outcomes) = run(trace, &cells, Failed::EndsItself, &mut observe)?;
        for ((at, limit), outcome) in next.into_iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => columns[at].add(limit, Some(&outcome)),
                Err(error) if error.is_out_of_memory() || error.is_out_of_steps() => {
                    columns[at].add(limit, None);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(columns.into_iter().map(Column::finish).collect())
}

/// Returns the kernel's own memory for the program's processes, which is charged to their cgroup too.
#[must_use]
pub fn kernel_bytes(outcome: &Outcome) -> u64 {
    let nr_processes =
        outcome.processes.as_ref().map_or(1, |processes| processes.nr_alive_max.max(1));
    outcome.page_table_bytes + nr_processes * PROCESS_BYTES
}

fn limited(spec: &CellSpec, bytes: u64) -> CellSpec {
    CellSpec { cgroups: vec![Cgroup::for_all(bytes)], ..spec.clone() }
}

impl Column<'_> {
    fn limited(&self, bytes: u64) -> CellSpec {
        let bytes_used = self.peak.saturating_add(self.plain.reads.bytes);
        let nr_pages = bytes_used / self.plain.page_bytes + self.plain.faults.total;
        let steps = nr_pages.saturating_mul(STEPS_PER_PAGE).max(STEPS_MIN);
        let spec = limited(self.spec, bytes);
        CellSpec { budget: Budget { steps, steps_per_row: 0, ..spec.budget }, ..spec }
    }

    /// Returns the limits to try next; none if both bounds are precise.
    fn next(&self) -> Vec<u64> {
        let fits = self.bracket(Limit::is_enough);
        let calm = self.bracket(Limit::is_calm).filter(|_| self.is_timed());
        let mut all: Vec<u64> = [fits, calm].into_iter().flatten().flat_map(between).collect();
        all.retain(|limit| !self.tried.contains_key(limit));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the largest limit that fails and the smallest above it that does not, unless they
    /// are close enough.
    fn bracket(&self, is_enough: impl Fn(&Limit) -> bool) -> Option<(u64, u64)> {
        let page = self.plain.page_bytes;
        let high = self.first(&is_enough).unwrap_or(self.peak);
        let fails = self.tried.range(..high).rev().find(|(_, limit)| !is_enough(limit));
        let low = fails.map_or(0, |(&limit, _)| limit).max(self.floor());
        let precision = PRECISION_BYTES.max(high / PRECISION).max(page);
        (high - low > precision).then_some((low, high))
    }

    /// Returns a limit that cannot be enough: without swap, base pages of private memory stay. Large
    /// folios may become base pages.
    fn floor(&self) -> u64 {
        let Outcome { anon_sizes, statistics, .. } = &self.plain;
        let can_shrink = self.spec.swap_bytes > 0 || !anon_sizes.is_empty();
        if can_shrink { 0 } else { statistics.machine_exact.anon_pages_bytes.min(self.peak) }
    }

    /// Returns the smallest limit above all that fail.
    fn first(&self, is_enough: impl Fn(&Limit) -> bool) -> Option<u64> {
        let enough = self.tried.iter().rev().take_while(|(_, limit)| is_enough(limit));
        enough.last().map(|(&limit, _)| limit)
    }

    fn is_timed(&self) -> bool {
        self.plain.estimate.run_time().is_some()
    }

    fn add(&mut self, limit_bytes: u64, outcome: Option<&Outcome>) {
        let change = |outcome: &Outcome| {
            outcome.estimate.run_change_from(&self.plain.estimate).map(|change| change.mid)
        };
        let group = outcome.and_then(|outcome| outcome.cgroups.first());
        let limit = Limit {
            limit_bytes,
            fits: outcome.is_some(),
            run_change: outcome.and_then(change),
            refaulted_bytes: group.map_or(0, |group| group.refaulted_bytes),
        };
        self.tried.insert(limit_bytes, limit);
    }

    fn finish(self) -> Fit {
        let kernel_bytes = kernel_bytes(&self.plain);
        let with_kernel = |bytes: u64| bytes + kernel_bytes;
        let least = self.first(Limit::is_enough).unwrap_or(self.peak);
        let calm = self.first(Limit::is_calm).unwrap_or(self.peak);
        Fit {
            kernel: self.plain.kernel.clone(),
            machine: self.plain.machine.clone(),
            peak_bytes: with_kernel(self.peak),
            least_bytes: with_kernel(least),
            calm_bytes: self.is_timed().then(|| with_kernel(calm)),
            kernel_bytes,
            limits: self
                .tried
                .into_values()
                .map(|limit| Limit { limit_bytes: with_kernel(limit.limit_bytes), ..limit })
                .collect(),
        }
    }
}

impl Limit {
    fn is_enough(&self) -> bool {
        self.fits && self.run_change.is_none_or(|change| change <= THRASHING_PERCENT)
    }

    fn is_calm(&self) -> bool {
        self.fits && self.run_change.is_some_and(|change| change <= SLOWER_PERCENT)
    }
}

/// Returns limits that divide a bracket into equal parts.
fn between((low, high): (u64, u64)) -> impl Iterator<Item = u64> {
    let nr_parts = NR_AT_ONCE + 1;
    (1..nr_parts).map(move |part| low + (high - low) / nr_parts * part)
}
