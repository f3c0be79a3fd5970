//! Finds which rules make the difference between the reference and the explained column.
//!
//! The rules between the two kernels are set one after the other, the oldest first, as in the *in
//! order* column of `--why`. This search finds only the steps that matter: it halves a range of
//! rules between two cells that differ until one rule is left, or the difference is too small to
//! matter.
//!
//! ```text
//!   reference  --------------------+---------------------  explained 57 rules, one number
//!                -2.0              |      -0.1 (small)
//!              ---------+----------
//!                0 (same)   -2.0  ..  until one rule: fault.exec -2.0
//! ```
//!
//! Effects that cancel out within a half are missed; `--why` finds them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use largefolio_sim::replay::{ReplayError, RowsDone, nr_passes, replay_until};
use largefolio_sim::why::{Comparison, Mix};
use serde::Serialize;

use super::{Answer, Goal, Verdict};
use crate::why::{Question, Switch, WhyError};

/// Maximum number of additional cells per answer.
pub const NR_CELLS_MAX: usize = 40;
/// Traces with more rows are searched only for `--why`: the search takes about six times as long as
/// the prediction.
pub const NR_ROWS_MAX: u64 = 50_000_000;
/// Maximum number of answers to search rules for; a prediction for more machines is a survey.
pub const NR_ANSWERS_MAX: usize = 3;
/// A difference below this part of the whole does not matter.
const SMALL: f64 = 0.05;
const NR_NAMED: usize = 3;

/// The rules that make the difference, if any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Causes {
    pub row: usize,
    /// The rules that make most of the difference, the largest share first.
    pub rules: Vec<Cause>,
    /// The effect of all other rules, in the same points.
    pub others: f64,
    pub nr_cells: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    #[serde(flatten)]
    pub switch: Switch,
    /// The change of the goal in percent of the reference's value.
    pub points: f64,
}

struct Steps<'a> {
    question: &'a Question<'a>,
    comparison: &'a Comparison,
    goal: Goal,
    values: BTreeMap<usize, f64>,
}

impl Causes {
    /// Returns whether the only cause is the edit that the column is named after, which would be a
    /// tautology.
    pub(super) fn is_the_name(&self) -> bool {
        let [only] = self.rules.as_slice() else { return false };
        only.switch.since.is_none() && self.others.abs() < SMALL * only.points.abs()
    }
}

impl Verdict {
    /// Searches for the rules of the first [`NR_ANSWERS_MAX`] answers. `progress` receives the rows
    /// replayed and the total needed so far, and returns whether to continue. If an intermediate
    /// kernel is impossible or takes too much work, the answer has no rules, and the prediction
    /// remains.
    ///
    /// # Errors
    /// [`ReplayError::Stopped`] if `progress` stops it.
    pub fn search(
        &mut self,
        question: &Question<'_>,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<(), WhyError> {
        if question.nr_rows > NR_ROWS_MAX {
            return Ok(());
        }
        let mut pass = Pass { done: RowsDone::default(), nr_all: 0, progress };
        let goal = self.goal;
        for answer in self.answers.iter_mut().take(NR_ANSWERS_MAX) {
            match causes(answer, goal, question, &mut pass) {
                Ok(causes) => answer.causes = causes,
                Err(error @ WhyError::Replay(ReplayError::Stopped)) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

struct Pass<'a> {
    done: RowsDone,
    nr_all: u64,
    progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
}

fn causes(
    answer: &Answer,
    goal: Goal,
    question: &Question<'_>,
    pass: &mut Pass<'_>,
) -> Result<Option<Causes>, WhyError> {
    let Some(row) = answer.told() else { return Ok(None) };
    let (before, after) = (&question.specs[answer.reference], &question.specs[row]);
    let is_other = before.linked != after.linked || before.machine.name != after.machine.name;
    if is_other || before.kernel == after.kernel {
        return Ok(None);
    }
    let comparison = Comparison::new(before, after)?;
    let ends = [(0, answer.reference), (comparison.switches().len(), row)];
    let value = |(at, row): (usize, usize)| Some((at, goal.value(&question.rows[row])?));
    let values = ends.map(value).into_iter().collect::<Option<BTreeMap<_, _>>>();
    let base = goal.base(&question.rows[answer.reference]).filter(|&base| base > 0.0);
    let (Some(values), Some(base)) = (values, base) else { return Ok(None) };
    let mut steps = Steps { question, comparison: &comparison, goal, values };
    steps.halve(pass)?;
    Ok(Some(steps.causes(row, base)))
}

impl Steps<'_> {
    fn spans(&self) -> Vec<(usize, usize, f64)> {
        let ends = self.values.iter().zip(self.values.iter().skip(1));
        ends.map(|((&from, before), (&to, after))| (from, to, after - before)).collect()
    }

    fn is_large(&self, difference: f64) -> bool {
        let all: f64 = self.spans().iter().map(|span| span.2).sum();
        difference.abs() >= SMALL * all.abs() && difference != 0.0
    }

    /// Halves every range that matters until each has one rule. Each round takes one pass.
    fn halve(&mut self, pass: &mut Pass<'_>) -> Result<(), WhyError> {
        let nr = self.comparison.switches().len();
        loop {
            let spans = self.spans();
            let large = spans.iter().filter(|(from, to, by)| to - from > 1 && self.is_large(*by));
            let room = (NR_CELLS_MAX + 2).saturating_sub(self.values.len());
            let middles: Vec<usize> =
                large.map(|(from, to, _)| usize::midpoint(*from, *to)).take(room).collect();
            if middles.is_empty() {
                return Ok(());
            }
            let specs = middles.iter().map(|&at| self.comparison.spec(&Mix::first(nr, at)));
            let specs = specs.collect::<Result<Vec<_>, _>>()?;
            pass.nr_all += self.question.nr_rows.saturating_mul(nr_passes(&specs));
            pass.done.begin();
            let mut hear = |nr_read| (pass.progress)(pass.done.observe(nr_read), pass.nr_all);
            let (_, rows) = replay_until(self.question.trace, &specs, &mut hear)?;
            for (at, row) in middles.into_iter().zip(&rows) {
                let Some(value) = self.goal.value(row) else { return Ok(()) };
                self.values.insert(at, value);
            }
        }
    }

    fn causes(&self, row: usize, base: f64) -> Causes {
        let points = |difference: f64| 100.0 * difference / base;
        let spans = self.spans();
        let all: f64 = spans.iter().map(|span| span.2).sum();
        let mut single: Vec<(usize, f64)> = spans
            .iter()
            .filter(|(from, to, by)| to - from == 1 && self.is_large(*by))
            .map(|&(from, _, by)| (from, by))
            .collect();
        single.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
        single.truncate(NR_NAMED);
        let named: f64 = single.iter().map(|(_, by)| by).sum();
        let switches = self.comparison.switches();
        let cause = |(at, by): (usize, f64)| Cause {
            switch: Switch::new(&switches[at], true),
            points: points(by),
        };
        Causes {
            row,
            rules: single.into_iter().map(cause).collect(),
            others: points(all - named),
            nr_cells: self.values.len() - 2,
        }
    }
}
