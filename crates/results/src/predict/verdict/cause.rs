//! Names the rules that make the difference between the reference and the explained column.

use largefolio_sim::explain::{Progress, Replays, SMALL, Switch, WhyError, WhyQuestion, halve};
use largefolio_sim::replay::{Outcome, ReplayError};
use serde::Serialize;

use super::{Answer, Goal, Verdict};

/// Traces with more rows are searched only for `--why`: the search takes about six times as long as
/// the prediction.
pub const NR_ROWS_MAX: u64 = 50_000_000;
/// Maximum number of answers to search rules for; a prediction for more machines is a survey.
pub const NR_ANSWERS_MAX: usize = 3;
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
        question: &WhyQuestion<'_>,
        progress: Progress<'_>,
    ) -> Result<(), WhyError> {
        if question.nr_rows > NR_ROWS_MAX {
            return Ok(());
        }
        let mut replays = question.replays(progress);
        let goal = self.goal;
        for answer in self.answers.iter_mut().take(NR_ANSWERS_MAX) {
            match causes(answer, goal, question, &mut replays) {
                Ok(causes) => answer.causes = causes,
                Err(error @ WhyError::Replay(ReplayError::Stopped)) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

fn causes(
    answer: &Answer,
    goal: Goal,
    question: &WhyQuestion<'_>,
    replays: &mut Replays<'_>,
) -> Result<Option<Causes>, WhyError> {
    let Some(row) = answer.explained_row() else { return Ok(None) };
    let (before, after) = (&question.specs[answer.reference], &question.specs[row]);
    let is_other = before.linked != after.linked || before.machine.name != after.machine.name;
    if is_other || before.kernel == after.kernel {
        return Ok(None);
    }
    let base = goal.base(&question.rows[answer.reference]).filter(|&base| base > 0.0);
    let Some(base) = base else { return Ok(None) };
    let value = |row: &Outcome| goal.value(row);
    let Some(mut steps) = halve(question, [answer.reference, row], &value, replays)? else {
        return Ok(None);
    };
    let points = |difference: f64| 100.0 * difference / base;
    steps.switches.truncate(NR_NAMED);
    let named: f64 = steps.switches.iter().map(|(_, by)| by).sum();
    let rules = steps.switches.into_iter();
    Ok(Some(Causes {
        row,
        rules: rules.map(|(switch, by)| Cause { switch, points: points(by) }).collect(),
        others: points(steps.difference - named),
        nr_cells: steps.nr_cells,
    }))
}
