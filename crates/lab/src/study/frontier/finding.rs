//! Each line's gain and cost, the lines on the frontier, and the programs that lose.

use std::collections::BTreeSet;

use serde::Serialize;

use super::super::cell::Values;
use super::super::count::Count;
use super::super::file::Study;
use super::super::finding::described_setup;
use super::super::metric::Number;
use super::super::unit::scaled;
use super::cell_name;

/// A program loses only if it needs more than this many percent more.
const SAME_WITHIN: f64 = 0.05;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierFinding {
    pub title: String,
    pub of: String,
    pub programs: Vec<String>,
    pub missing: BTreeSet<String>,
    /// The first count is the gain.
    pub counts: Vec<FrontierCount>,
    /// In file order; the first line is the reference.
    pub lines: Vec<FrontierLine>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierCount {
    pub what: String,
    pub unit: String,
    pub is_estimate: bool,
    /// Constants without a document or measurement that it uses.
    pub assumed: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierLine {
    pub name: String,
    pub kernel: String,
    pub changes: Vec<ChangeFinding>,
    /// Per cost: whether no other line gains more at the same or a lower cost, or gains as much at
    /// a lower cost.
    pub is_on_frontier: Vec<bool>,
    /// Programs whose gain count gets worse.
    pub losers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeFinding {
    pub values: Vec<Option<f64>>,
    /// Against the first line, in percent.
    pub percent: Vec<Option<f64>>,
    /// The geometric mean of the ratios, in percent, over the programs for which every line has all
    /// numbers.
    pub mean_percent: Option<f64>,
}

impl FrontierFinding {
    pub(in super::super) fn new(study: &Study, nr: usize, values: &Values) -> Self {
        let frontier = &study.frontiers[nr];
        let programs: Vec<String> =
            frontier.programs.iter().map(|program| program.name().to_owned()).collect();
        let numbers = Numbers::new(study, nr, values);
        let whole: Vec<usize> = (0..programs.len()).filter(|&nr| numbers.is_whole(nr)).collect();
        let missing = (0..programs.len()).filter(|nr| !whole.contains(nr));
        let missing = missing.map(|nr| format!("{}: {}", programs[nr], numbers.missing(nr)));
        let missing = missing.collect();
        let counts: Vec<FrontierCount> = frontier
            .counts
            .iter()
            .map(|count| count_on_frontier(count, study, nr, values))
            .collect();
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
        let of = described_setup(&frontier.lines[0].1);
        Self { title: frontier.title.clone(), of, programs, missing, counts, lines }
    }
}

fn means(line: &FrontierLine) -> Vec<Option<f64>> {
    line.changes.iter().map(|change| change.mean_percent).collect()
}

/// Returns whether a line with the means `other` gains and costs no worse than `own`, and one of
/// the two is better.
fn is_better(other: &[Option<f64>], own: &[Option<f64>], paid: usize) -> bool {
    let (Some(other_gain), Some(other_paid)) = (other[0], other[paid]) else { return false };
    let (Some(gain), Some(pays)) = (own[0], own[paid]) else { return false };
    other_gain <= gain && other_paid <= pays && (other_gain < gain || other_paid < pays)
}

fn count_on_frontier(count: &Count, study: &Study, nr: usize, values: &Values) -> FrontierCount {
    let cells = study.frontiers[nr].cells(nr);
    let cells = cells.filter_map(|(name, ..)| values.cell(&study.name, &name).ok());
    FrontierCount {
        what: count.what.clone(),
        unit: count.unit.clone(),
        is_estimate: count.metric.is_estimate(),
        assumed: cells.flat_map(|cell| count.metric.assumed_in(cell)).collect(),
    }
}

struct Numbers(Vec<Vec<CellNumbers>>);

/// A cell's number per count, or the reason for its absence.
struct CellNumbers {
    counts: Vec<Result<f64, String>>,
    has_ended: bool,
}

impl Numbers {
    fn new(study: &Study, nr: usize, values: &Values) -> Self {
        let frontier = &study.frontiers[nr];
        let of_cell = |line, program| {
            let name = cell_name(nr, line, program);
            let has_ended = values.ended(&study.name, &name).is_some();
            let cell = values.cell(&study.name, &name).map_err(|why| {
                if has_ended {
                    format!("{why} under {}", frontier.lines[line].0)
                } else {
                    why.to_owned()
                }
            });
            let number =
                |count: &Count| match count.metric.of(cell.as_ref().map_err(String::clone)?) {
                    Number::Known(number) => Ok(scaled(number, &count.metric, &count.unit)),
                    Number::NotKnown(what) => Err(format!("not known: {what}")),
                };
            CellNumbers { counts: frontier.counts.iter().map(number).collect(), has_ended }
        };
        let of_line = |line| (0..frontier.programs.len()).map(|nr| of_cell(line, nr)).collect();
        Self((0..frontier.lines.len()).map(of_line).collect())
    }

    fn value(&self, line: usize, program: usize, count: usize) -> Option<f64> {
        self.0[line][program].counts[count].as_ref().ok().copied()
    }

    /// Returns a line's number as a share of the first line's. A share of 0 is undefined, but 0 of
    /// 0 is 1.
    fn ratio(&self, line: usize, program: usize, count: usize) -> Option<f64> {
        let before = self.value(0, program, count)?;
        let after = self.value(line, program, count)?;
        match (before > 0.0, after > 0.0) {
            (true, _) => Some(after / before),
            (false, false) => Some(1.0),
            (false, true) => None,
        }
    }

    /// Returns whether every line has a positive share for every count, as the mean needs.
    fn is_whole(&self, program: usize) -> bool {
        self.0.iter().enumerate().all(|(line, of_line)| {
            let mut counts = 0..of_line[program].counts.len();
            counts.all(|count| self.ratio(line, program, count).is_some_and(|ratio| ratio > 0.0))
        })
    }

    fn missing(&self, program: usize) -> &str {
        let mut all = self.0.iter().flat_map(|of_line| &of_line[program].counts);
        let why = all.find_map(|number| number.as_ref().err());
        why.map_or("a count is 0 for some but not for others", String::as_str)
    }

    /// Returns whether a line has a worse gain count than the first, or ends a program early that
    /// the first completes.
    fn loses(&self, line: usize, program: usize) -> bool {
        match (self.value(0, program, 0), self.value(line, program, 0)) {
            (Some(before), Some(after)) => after > before * (1.0 + SAME_WITHIN / 100.0),
            (Some(_), None) => self.0[line][program].has_ended,
            (None, _) => false,
        }
    }

    fn change(&self, line: usize, count: usize, whole: &[usize]) -> ChangeFinding {
        let programs = 0..self.0[line].len();
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
