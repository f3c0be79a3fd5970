//! Which column is best for a goal, by what margin, how certainly, and which rules cause it.
//!
//! ```text
//!   rows --same machine and memory--> answers: columns that can be compared
//!                                     each against the first: change, with bounds
//!                                     certainly better, with the largest change --> best
//!   reference, best --halving the rules between them--> which of them make the difference
//! ```
//!
//! Memory is also compared across machines: bytes are the same everywhere.
//!
//! Seeds are samples of one column: the column's change is their median, and its bounds cover all
//! of them. Owns the choice of the best column and its wording; the numbers come from the rows.
//!
//! Invariants:
//! - V1: a column is better only if all of its bounds are better by at least `SMALL_PERCENT` of a
//!   run, the smallest change that can be measured. If all bounds are smaller, the column is
//!   unchanged.
//! - V2: memory and faults are exact counts. With one seed their bounds are the number itself, and
//!   the smallest change counts.

mod cause;
pub(crate) mod sentences;

use std::str::FromStr;

use largefolio_sim::interval::Interval;
use largefolio_sim::replay::Outcome;
use serde::Serialize;

use crate::figures::{SMALL_PERCENT, is_certain};
use crate::predict::sums::memory_bytes;

pub use cause::{Cause, Causes, NR_ANSWERS_MAX, NR_ROWS_MAX};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    #[default]
    Time,
    /// The least memory: private memory at its peak plus the page cache, which includes shared memory.
    Memory,
    Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    Better,
    /// No column is better than the first, and at least one is worse.
    FirstIsBest,
    Same,
    /// The bounds include 0 or come close to it: no column is certainly better than the first.
    NotCertain,
    /// A required cost is missing.
    NotKnown,
    OneColumn,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub goal: Goal,
    /// One per machine and memory size; for memory, one per memory size. Other columns are not
    /// comparable.
    pub answers: Vec<Answer>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    pub finding: Finding,
    pub reference: usize,
    /// Row of the best column: the reference, unless another is certainly better.
    pub best: usize,
    pub columns: Vec<Column>,
    /// Rules that make the difference; `None` if they were not searched for.
    pub causes: Option<Causes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Column {
    /// The column's first row, which has the first of its seeds.
    pub row: usize,
    /// Change in percent of a run, of the memory or of the faults. `None`: not known, or the
    /// reference has 0.
    pub change: Option<Interval>,
    /// The same, relative to the best column.
    pub change_from_best: Option<Interval>,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Time, Self::Memory, Self::Faults];
        let goal_of_name = all.into_iter().find(|goal| goal.name() == name);
        goal_of_name
            .ok_or_else(|| format!("there is no goal {name:?}; choose time, memory or faults"))
    }
}

impl Goal {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Faults => "faults",
        }
    }

    /// Returns whether columns of different machines are comparable: a byte is the same everywhere,
    /// but faults and times depend on the machine.
    pub(crate) const fn spans_machines(self) -> bool {
        matches!(self, Self::Memory)
    }

    /// Returns how `row` differs from `reference`, of the same machine, in percent of a run, of the
    /// memory or of the faults.
    #[must_use]
    pub fn change(self, row: &Outcome, reference: &Outcome) -> Option<Interval> {
        if self == Self::Time {
            let change = row.estimate.run_change_from(&reference.estimate)?;
            let is_small = change.low.abs().max(change.high.abs()) < SMALL_PERCENT;
            return Some(if is_small { Interval::default() } else { change });
        }
        let [now, before] = [row, reference].map(|row| self.value(row));
        let (now, before) = (now?, before?);
        if before > 0.0 {
            return Some(Interval::exact(100.0 * (now - before) / before));
        }
        // A share of 0 is undefined, unless the value stayed 0.
        (now <= before).then(|| Interval::exact(0.0))
    }

    /// Returns whether `change` is certainly a decrease (V1).
    #[must_use]
    pub fn is_less(self, change: Interval) -> bool {
        self.is_certain(change) && change.high < 0.0
    }

    /// Returns whether the sign of `change` is certain (V1). A zero change has no sign.
    fn is_certain(self, change: Interval) -> bool {
        match self {
            Self::Time => is_certain(change),
            Self::Memory | Self::Faults => !change.may_be_zero(),
        }
    }

    /// Returns whether the reference's count is 0 and the row's is not.
    fn is_new(self, row: &Outcome, reference: &Outcome) -> bool {
        let is_none = |row| self.value(row).is_some_and(|value| value <= 0.0);
        self != Self::Time && is_none(reference) && !is_none(row)
    }

    /// Returns the number to minimize: time of memory management in ns, bytes, or faults.
    fn value(self, row: &Outcome) -> Option<f64> {
        match self {
            Self::Time => row.estimate.total.map(|total| total.mid),
            Self::Memory => Some(number(memory_bytes(row))),
            Self::Faults => Some(number(row.faults.total)),
        }
    }

    fn base(self, row: &Outcome) -> Option<f64> {
        match self {
            Self::Time => row.estimate.run_time().map(|run| run.mid),
            Self::Memory | Self::Faults => self.value(row),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a change is read to three digits")]
fn number(value: u64) -> f64 {
    value as f64
}

impl Verdict {
    #[must_use]
    pub fn new(goal: Goal, rows: &[Outcome]) -> Self {
        let machine = |row: &Outcome| (!goal.spans_machines()).then(|| row.machine.clone());
        let answers = groups(rows, |row| (machine(row), row.memory_bytes));
        let all: Vec<usize> = (0..rows.len()).collect();
        let answers = answers(&all).into_iter().map(|group| Answer::new(goal, rows, &group));
        Self { goal, answers: answers.collect() }
    }
}

impl Answer {
    fn new(goal: Goal, rows: &[Outcome], group: &[usize]) -> Self {
        let name = |row: &Outcome| (row.kernel.clone(), row.machine.clone(), row.linked.clone());
        let columns = groups(rows, name)(group);
        let Some((first, others)) = columns.split_first() else {
            unreachable!("a group has a row")
        };
        let change = |of: &Vec<usize>, from: &Vec<usize>| {
            let samples =
                of.iter().zip(from).map(|(&of, &from)| goal.change(&rows[of], &rows[from]));
            together(samples)
        };
        let against_first: Vec<_> = others.iter().map(|one| change(one, first)).collect();
        let is_new = |of: &Vec<usize>| {
            of.iter().zip(first).all(|(&of, &from)| goal.is_new(&rows[of], &rows[from]))
        };
        let signs = others.iter().zip(&against_first);
        let signs: Vec<_> =
            signs.map(|(of, change)| Sign::new(goal, *change, is_new(of))).collect();
        let is_better = |(_, change): &(&Vec<usize>, &Option<Interval>)| {
            change.is_some_and(|change| goal.is_less(change))
        };
        let mid = |change: &Option<Interval>| change.map_or(f64::INFINITY, |change| change.mid);
        let pairs = others.iter().zip(&against_first);
        let best = pairs.filter(is_better).min_by(|one, other| mid(one.1).total_cmp(&mid(other.1)));
        let best = best.map_or(first, |(column, _)| column);
        let column = |(of, &change_of): (&Vec<usize>, &Option<Interval>)| Column {
            row: of[0],
            change: change_of,
            change_from_best: change(of, best),
        };
        Self {
            finding: finding(&signs),
            reference: first[0],
            best: best[0],
            columns: others.iter().zip(&against_first).map(column).collect(),
            causes: None,
        }
    }

    /// Returns the row to explain: the best, else the one that differs most. `None` if no row
    /// differs.
    #[must_use]
    pub fn explained_row(&self) -> Option<usize> {
        if self.finding == Finding::Better {
            return Some(self.best);
        }
        let mid = |column: &Column| column.change.map_or(0.0, |change| change.mid);
        let differing = self.columns.iter().filter(|column| mid(column) != 0.0);
        let most = differing.max_by(|one, other| mid(one).abs().total_cmp(&mid(other).abs()));
        most.map(|column| column.row)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Less,
    None,
    More,
    NotCertain,
    NotKnown,
}

impl Sign {
    fn new(goal: Goal, change: Option<Interval>, is_new: bool) -> Self {
        match change {
            None if is_new => Self::More,
            None => Self::NotKnown,
            Some(change) if is_none(change) => Self::None,
            Some(change) if goal.is_less(change) => Self::Less,
            Some(change) if goal.is_certain(change) => Self::More,
            Some(_) => Self::NotCertain,
        }
    }
}

fn is_none(change: Interval) -> bool {
    change.low == 0.0 && change.high == 0.0
}

fn finding(signs: &[Sign]) -> Finding {
    match signs {
        [] => Finding::OneColumn,
        _ if signs.contains(&Sign::Less) => Finding::Better,
        _ if signs.contains(&Sign::NotKnown) => Finding::NotKnown,
        _ if signs.contains(&Sign::NotCertain) => Finding::NotCertain,
        _ if signs.contains(&Sign::More) => Finding::FirstIsBest,
        _ => Finding::Same,
    }
}

/// Combines the changes of a column's samples. `None` if one of them is not known.
fn together(samples: impl Iterator<Item = Option<Interval>>) -> Option<Interval> {
    let samples: Vec<Interval> = samples.collect::<Option<_>>()?;
    let mids: Vec<f64> = samples.iter().map(|sample| sample.mid).collect();
    let mid = Interval::measured(&mids)?.mid;
    let low = samples.iter().map(|sample| sample.low).fold(mid, f64::min);
    let high = samples.iter().map(|sample| sample.high).fold(mid, f64::max);
    Some(Interval { low, mid, high })
}

/// Groups rows by `key`, in the order of each group's first row.
fn groups<K: PartialEq>(
    rows: &[Outcome],
    key: impl Fn(&Outcome) -> K,
) -> impl Fn(&[usize]) -> Vec<Vec<usize>> {
    let keys: Vec<K> = rows.iter().map(key).collect();
    move |of: &[usize]| {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &row in of {
            match groups.iter_mut().find(|group| keys[group[0]] == keys[row]) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests;
