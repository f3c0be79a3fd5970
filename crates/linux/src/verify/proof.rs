//! Determines the rounds in which the change took effect.
//!
//! ```text
//!   difference of a round    folios  bytes in folios of other sizes / bytes mapped
//!                            faults  |changed - plain| / plain
//!   noise                    the same between two plain runs: the median over pairs of rounds,
//!                            and the value that one pair in ten exceeds
//!   shown in a round         difference >= 1%, >= 3 * median, above one pair in ten, and at least
//!                            128 KiB or 32 faults
//!   the change's traces      folios or faults, whichever shows in a quarter of the rounds
//!   a round proves it        each trace is shown, and is at least half of its median
//! ```
//!
//! A change to the folios that memory gets must leave a trace ([`Trace::Required`]), and rounds
//! without it are dropped. The traces of other changes are unknown: all rounds count, and those
//! that differ from the rest are only reported. A setting that another program changed during a
//! round invalidates the round in either case.
//!
//! Invariant Q1: rounds are dropped because of their folios and faults, never because of the
//! compared value. A comparison of faults, memory or folios themselves uses all undisturbed rounds.

use super::rounds::{LoadRun, Rounds};
use crate::measure::Spread;

/// Smallest difference that counts.
const SHOWN: f64 = 0.01;
/// Smallest difference in memory and in faults: a variable alone moves the stack by a page.
const BYTES_LEAST: f64 = 131_072.0;
const FAULTS_LEAST: u64 = 32;
/// A difference counts if it is at least this multiple of the usual noise.
const NR_NOISES: f64 = 3.0;
/// One in this many pairs of plain runs may differ by more than noise. A command with occasional
/// delays has more faults in both arms.
const TENTH: usize = 10;
/// One in this many rounds must show a trace. Fewer can be chance.
const QUARTER: usize = 4;
const NR_COMPARED: usize = 40;
const SHARE: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    Required,
    /// It may change anything, or nothing.
    Possible,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub nr: usize,
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proved {
    pub rounds: Rounds,
    pub dropped: Vec<Dropped>,
    /// Where the change is visible: `folios`, `faults`.
    pub traces: Vec<&'static str>,
    /// Rounds that count although the change is less visible in them than in others.
    pub nr_unlike: usize,
}

type Difference = fn(&LoadRun, &LoadRun) -> Option<f64>;
const DIFFERENCES: [(&str, Difference); 2] = [("folios", folios), ("faults", faults)];

#[must_use]
pub fn prove(all: &Rounds, trace: Trace) -> Proved {
    let mut why: Vec<Option<String>> =
        all.plain.iter().zip(&all.changed).map(disturbance).collect();
    let calm: Vec<usize> = (0..why.len()).filter(|at| why[*at].is_none()).collect();
    let differences = DIFFERENCES.map(|(name, of)| ObservedDifference::new(name, of, all, &calm));
    let mut nr_unlike = 0;
    for at in calm {
        let unproved = unproved(&differences, at);
        match trace {
            Trace::Required => why[at] = unproved,
            Trace::Possible => nr_unlike += usize::from(unproved.is_some()),
        }
    }
    let traces: Vec<&str> = differences
        .iter()
        .filter(|differences| differences.is_trace)
        .map(|differences| differences.name)
        .collect();
    let nr_unlike = if traces.is_empty() { 0 } else { nr_unlike };
    let mut proved = Proved { traces, nr_unlike, ..Proved::default() };
    (proved.rounds.is_stopped, proved.rounds.too_dear) = (all.is_stopped, all.too_dear);
    proved.rounds.untimed.clone_from(&all.untimed);
    for (at, why) in why.into_iter().enumerate() {
        if let Some(why) = why {
            proved.dropped.push(Dropped { nr: at + 1, why });
        } else {
            proved.rounds.plain.push(all.plain[at].clone());
            proved.rounds.changed.push(all.changed[at].clone());
        }
    }
    proved
}

pub(super) fn undisturbed(all: &Rounds) -> Rounds {
    let both = all.plain.iter().zip(&all.changed);
    let calm = both.filter(|both| disturbance(*both).is_none());
    let (plain, changed) = calm.map(|(plain, changed)| (plain.clone(), changed.clone())).unzip();
    let untimed = all.untimed.clone();
    Rounds { plain, changed, is_stopped: all.is_stopped, too_dear: all.too_dear, untimed }
}

fn disturbance((plain, changed): (&LoadRun, &LoadRun)) -> Option<String> {
    plain.disturbance.clone().or_else(|| changed.disturbance.clone())
}

struct ObservedDifference {
    name: &'static str,
    shown: Vec<Option<f64>>,
    known: Vec<bool>,
    usual: f64,
    is_trace: bool,
}

impl ObservedDifference {
    fn new(name: &'static str, of: Difference, all: &Rounds, calm: &[usize]) -> Self {
        let few: Vec<usize> =
            calm.iter().step_by(calm.len().div_ceil(NR_COMPARED).max(1)).copied().collect();
        let pairs = few.iter().enumerate().flat_map(|(nr, at)| {
            few[nr + 1..].iter().map(|other| (&all.plain[*at], &all.plain[*other]))
        });
        let noises: Vec<f64> = pairs.filter_map(|(one, other)| of(one, other)).collect();
        let least = least_shown(noises);
        let mut differences = vec![None; all.plain.len()];
        for at in calm {
            differences[*at] = of(&all.plain[*at], &all.changed[*at]);
        }
        let known: Vec<bool> = differences.iter().map(Option::is_some).collect();
        let shown: Vec<Option<f64>> =
            differences.into_iter().map(|one| one.filter(|one| *one >= least)).collect();
        let values: Vec<f64> = shown.iter().flatten().copied().collect();
        let nr_known = known.iter().filter(|is_known| **is_known).count();
        let is_trace = !values.is_empty() && values.len() >= nr_known.div_ceil(QUARTER);
        let usual = Spread::of(&values).map_or(0.0, |usual| usual.median);
        Self { name, shown, known, usual, is_trace }
    }

    fn is_proved(&self, at: usize) -> bool {
        self.shown[at].is_some_and(|shown| shown >= SHARE * self.usual)
    }
}

fn least_shown(mut noises: Vec<f64>) -> f64 {
    let usual = Spread::of(&noises).map_or(0.0, |noise| noise.median);
    noises.sort_by(f64::total_cmp);
    let rare = noises.len().checked_sub(1 + noises.len() / TENTH).map_or(0.0, |at| noises[at]);
    SHOWN.max(NR_NOISES * usual).max(rare.next_up())
}

fn unproved(difference: &[ObservedDifference], at: usize) -> Option<String> {
    let mut traces = difference.iter().filter(|difference| difference.is_trace).peekable();
    if traces.peek().is_none() {
        let is_known = difference.iter().any(|difference| difference.known[at]);
        let why = if is_known {
            "the same folios and faults in both runs"
        } else {
            "nothing was \
                                                                              observed"
        };
        return Some(why.to_owned());
    }
    let known: Vec<&ObservedDifference> =
        traces.filter(|difference| difference.known[at]).collect();
    if known.is_empty() {
        return Some("the runs ended before their folios could be counted".to_owned());
    }
    let missing = known.iter().find(|difference| !difference.is_proved(at))?;
    Some(format!("{} differ less than in other rounds", missing.name))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a process")]
fn folios(one: &LoadRun, other: &LoadRun) -> Option<f64> {
    let memory = |run: &LoadRun| match &run.served {
        Some(served) => served.memory.clone(),
        None => run.memory.clone(),
    };
    let (one, other) = (memory(one)?, memory(other)?);
    // Uses fractions, because runs are sampled at different points of their progress.
    let share = |memory: &crate::timed_run::memory_sample::MemorySample, size: &u64| {
        let bytes = memory.folios.get(size).copied().unwrap_or(0);
        bytes as f64 / memory.mapped_bytes().max(1) as f64
    };
    let sizes: std::collections::BTreeSet<&u64> =
        one.folios.keys().chain(other.folios.keys()).collect();
    let moved: f64 = sizes.iter().map(|size| (share(&one, size) - share(&other, size)).abs()).sum();
    let unknown = |memory: &crate::timed_run::memory_sample::MemorySample| {
        memory.unknown_bytes as f64 / memory.mapped_bytes().max(1) as f64
    };
    let part = f64::midpoint(moved, (unknown(&one) - unknown(&other)).abs());
    let bytes = part * one.mapped_bytes().max(other.mapped_bytes()) as f64;
    Some(if bytes < BYTES_LEAST { 0.0 } else { part })
}

#[expect(clippy::cast_precision_loss, reason = "faults of a run")]
fn faults(one: &LoadRun, other: &LoadRun) -> Option<f64> {
    let nr = |run: &LoadRun| match &run.served {
        Some(served) => served.nr_minor_faults,
        None => run.sample.nr_minor_faults,
    };
    let (one, other) = (nr(one), nr(other));
    let difference = one.abs_diff(other);
    let difference = if difference < FAULTS_LEAST { 0 } else { difference };
    (one > 0).then(|| difference as f64 / one as f64)
}

#[cfg(test)]
mod tests;
