//! What each line gains and pays, which lines are on the frontier, and which programs lose.

use std::collections::BTreeSet;

use serde::Serialize;

use super::super::cell::Values;
use super::super::file::Study;
use super::super::finding::{described_setup, scaled};
use super::super::metric::Number;
use super::{Frontier, cell_name};

/// A program that takes up to this many per cent more does not lose.
const SAME_WITHIN: f64 = 0.05;

/// Lines over programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierFinding {
    /// What is compared.
    pub title: String,
    /// Machine, filesystem and swap space.
    pub of: String,
    /// Programs by name.
    pub programs: Vec<String>,
    /// Why programs have no numbers.
    pub missing: BTreeSet<String>,
    /// The first is what is to be gained.
    pub counts: Vec<FrontierCount>,
    /// In the order of the study file; the first is what the others are compared with.
    pub lines: Vec<FrontierLine>,
}

/// A number of every cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierCount {
    /// What it is of.
    pub what: String,
    /// Its unit; empty for a plain count.
    pub unit: String,
    /// Whether it is estimated with the costs of the machine.
    pub is_estimate: bool,
    /// Constants it rests on that no document or measurement gives.
    pub assumed: BTreeSet<String>,
}

/// A kernel over all programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierLine {
    /// What sets it apart.
    pub name: String,
    /// The kernel by name.
    pub kernel: String,
    /// One for each count.
    pub changes: Vec<ChangeFinding>,
    /// For each count that is paid with: whether no other line gains more and pays no more of it, or
    /// gains as much and pays less.
    pub is_on_frontier: Vec<bool>,
    /// Programs in which it loses what is to be gained.
    pub losers: Vec<String>,
}

/// A count of a kernel over all programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeFinding {
    /// In the order of the programs.
    pub values: Vec<Option<f64>>,
    /// Against the first line, in per cent.
    pub percent: Vec<Option<f64>>,
    /// Of the geometric mean of the ratios, in per cent; over the programs of which every line has all
    /// numbers.
    pub mean_percent: Option<f64>,
}

impl FrontierFinding {
    /// What the cells of frontier `nr` came to.
    pub(in super::super) fn new(study: &Study, nr: usize, values: &Values) -> Self {
        let frontier = &study.frontiers[nr];
        let programs: Vec<String> =
            frontier.programs.iter().map(|program| program.name().to_owned()).collect();
        let numbers = Numbers { study, frontier, nr, values };
        let whole: Vec<usize> = (0..programs.len()).filter(|&nr| numbers.is_whole(nr)).collect();
        let missing = (0..programs.len()).filter_map(|nr| numbers.missing(nr));
        let counts: Vec<FrontierCount> =
            (0..frontier.counts.len()).map(|count| numbers.count(count)).collect();
        let mut lines: Vec<FrontierLine> = (0..frontier.lines.len())
            .map(|line| {
                let changes: Vec<ChangeFinding> =
                    (0..counts.len()).map(|count| numbers.change(line, count, &whole)).collect();
                let losers = (0..programs.len()).filter(|&program| numbers.loses(line, program));
                let losers = losers.map(|program| programs[program].clone()).collect();
                let (name, spec) = &frontier.lines[line];
                let kernel = spec.kernel.name.clone();
                FrontierLine { name: name.clone(), kernel, changes, is_on_frontier: vec![], losers }
            })
            .collect();
        let means: Vec<Vec<Option<f64>>> = lines.iter().map(means).collect();
        for (line, own) in lines.iter_mut().zip(&means) {
            line.is_on_frontier = (1..counts.len())
                .map(|paid| {
                    let has_means = own[0].is_some() && own[paid].is_some();
                    has_means && !means.iter().any(|other| is_better(other, own, paid))
                })
                .collect();
        }
        let missing = missing.collect();
        let of = described_setup(&frontier.lines[0].1);
        Self { title: frontier.title.clone(), of, programs, missing, counts, lines }
    }
}

fn means(line: &FrontierLine) -> Vec<Option<f64>> {
    line.changes.iter().map(|change| change.mean_percent).collect()
}

/// Whether a line with the means `other` gains as much as `own` and pays no more, and one of them is
/// better.
fn is_better(other: &[Option<f64>], own: &[Option<f64>], paid: usize) -> bool {
    let (Some(other_gain), Some(other_paid)) = (other[0], other[paid]) else { return false };
    let (Some(gain), Some(pays)) = (own[0], own[paid]) else { return false };
    other_gain <= gain && other_paid <= pays && (other_gain < gain || other_paid < pays)
}

/// The cells of a frontier.
struct Numbers<'a> {
    study: &'a Study,
    frontier: &'a Frontier,
    nr: usize,
    values: &'a Values,
}

impl Numbers<'_> {
    fn value(&self, line: usize, program: usize, count: usize) -> Option<f64> {
        let cell = self.values.cell(&self.study.name, &cell_name(self.nr, line, program)).ok()?;
        let count = &self.frontier.counts[count];
        match count.metric.of(cell) {
            Number::Known(number) => Some(scaled(number, &count.metric, &count.unit)),
            Number::NotKnown(_) => None,
        }
    }

    fn count(&self, count: usize) -> FrontierCount {
        let of = &self.frontier.counts[count];
        let cells = self.frontier.cells(self.nr);
        let cells = cells.filter_map(|(name, ..)| self.values.cell(&self.study.name, &name).ok());
        FrontierCount {
            what: of.what.clone(),
            unit: of.unit.clone(),
            is_estimate: of.metric.is_estimate(),
            assumed: cells.flat_map(|cell| of.metric.assumed_in(cell)).collect(),
        }
    }

    /// A number of a line as a share of the first line's; of nothing there is none, but nothing stays
    /// nothing.
    fn ratio(&self, line: usize, program: usize, count: usize) -> Option<f64> {
        let before = self.value(0, program, count)?;
        let after = self.value(line, program, count)?;
        match (before > 0.0, after > 0.0) {
            (true, _) => Some(after / before),
            (false, false) => Some(1.0),
            (false, true) => None,
        }
    }

    /// Whether every line has a change of every count that a mean can take.
    fn is_whole(&self, program: usize) -> bool {
        let lines = 0..self.frontier.lines.len();
        let mut pairs =
            lines.flat_map(|line| (0..self.frontier.counts.len()).map(move |c| (line, c)));
        pairs.all(|(line, count)| self.ratio(line, program, count).is_some_and(|ratio| ratio > 0.0))
    }

    /// Why a program is in no mean.
    fn missing(&self, program: usize) -> Option<String> {
        if self.is_whole(program) {
            return None;
        }
        let name = self.frontier.programs[program].name();
        for line in 0..self.frontier.lines.len() {
            let cell = self.values.cell(&self.study.name, &cell_name(self.nr, line, program));
            let cell = match cell {
                Ok(cell) => cell,
                Err(why) => return Some(format!("{name}: {why}")),
            };
            let mut counts = self.frontier.counts.iter();
            let unknown = counts.find_map(|count| match count.metric.of(cell) {
                Number::NotKnown(what) => Some(what),
                Number::Known(_) => None,
            });
            if let Some(what) = unknown {
                return Some(format!("{name}: not known: {what}"));
            }
        }
        Some(format!("{name}: a count is 0 for some and not for others"))
    }

    /// Whether a line needs more of what is to be gained than the first.
    fn loses(&self, line: usize, program: usize) -> bool {
        let values = self.value(0, program, 0).zip(self.value(line, program, 0));
        values.is_some_and(|(before, after)| after > before * (1.0 + SAME_WITHIN / 100.0))
    }

    fn change(&self, line: usize, count: usize, whole: &[usize]) -> ChangeFinding {
        let programs = 0..self.frontier.programs.len();
        let ratios = programs.clone().map(|program| self.ratio(line, program, count));
        let logs =
            whole.iter().filter_map(|&program| self.ratio(line, program, count)).map(f64::ln);
        #[expect(clippy::cast_precision_loss, reason = "a handful of programs")]
        let mean = (!whole.is_empty()).then(|| (logs.sum::<f64>() / whole.len() as f64).exp());
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        ChangeFinding {
            percent: ratios.map(|ratio| ratio.map(percent)).collect(),
            values: programs.map(|program| self.value(line, program, count)).collect(),
            mean_percent: mean.map(percent),
        }
    }
}
