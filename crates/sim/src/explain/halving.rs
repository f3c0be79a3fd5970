//! Finds which rules make the difference in one number, with few replays.
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

use super::{Replays, Switch, WhyError, WhyQuestion};
use crate::replay::Outcome;
use crate::why::{Comparison, Mix};

/// Maximum number of additional cells per pair of rows.
pub const NR_CELLS_MAX: usize = 40;
/// A difference below this part of the whole does not matter.
pub const SMALL: f64 = 0.05;

/// The rules that make a difference, each with its part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// The largest first.
    pub switches: Vec<(Switch, f64)>,
    /// The whole difference.
    pub difference: f64,
    pub nr_cells: usize,
}

/// Halves the rules between the rows `before` and `after`. `value` returns the number, or `None` if
/// it is unknown.
///
/// # Errors
/// [`WhyError`].
pub fn halve(
    question: &WhyQuestion<'_>,
    [before, after]: [usize; 2],
    value: &dyn Fn(&Outcome) -> Option<f64>,
    replays: &mut Replays<'_>,
) -> Result<Option<Steps>, WhyError> {
    let comparison = Comparison::new(&question.specs[before], &question.specs[after])?;
    let ends = [(0, before), (comparison.switches().len(), after)];
    let known = |(at, row): (usize, usize)| Some((at, value(&question.rows[row])?));
    let Some(values) = ends.map(known).into_iter().collect::<Option<_>>() else { return Ok(None) };
    let mut search = Search { comparison: &comparison, values };
    search.halve(value, replays)?;
    Ok(Some(search.steps()))
}

struct Search<'a> {
    comparison: &'a Comparison,
    /// The number with the first n switches set, by n.
    values: BTreeMap<usize, f64>,
}

impl Search<'_> {
    fn spans(&self) -> Vec<(usize, usize, f64)> {
        let ends = self.values.iter().zip(self.values.iter().skip(1));
        ends.map(|((&from, before), (&to, after))| (from, to, after - before)).collect()
    }

    fn is_large(&self, difference: f64) -> bool {
        let all: f64 = self.spans().iter().map(|span| span.2).sum();
        difference.abs() >= SMALL * all.abs() && difference != 0.0
    }

    /// Halves every range that matters until each has one rule. Each round takes one pass.
    fn halve(
        &mut self,
        value: &dyn Fn(&Outcome) -> Option<f64>,
        replays: &mut Replays<'_>,
    ) -> Result<(), WhyError> {
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
            let mixes: Vec<Mix> = middles.iter().map(|&at| Mix::first(nr, at)).collect();
            let rows = replays.run(self.comparison, &mixes)?;
            for (at, row) in middles.into_iter().zip(&rows) {
                let Some(value) = value(row) else { return Ok(()) };
                self.values.insert(at, value);
            }
        }
    }

    fn steps(&self) -> Steps {
        let spans = self.spans();
        let single = spans.iter().filter(|(from, to, by)| to - from == 1 && self.is_large(*by));
        let switches = self.comparison.switches();
        let mut single: Vec<(Switch, f64)> =
            single.map(|&(from, _, by)| (Switch::new(&switches[from], true), by)).collect();
        single.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
        Steps {
            switches: single,
            difference: spans.iter().map(|span| span.2).sum(),
            nr_cells: self.values.len() - 2,
        }
    }
}
