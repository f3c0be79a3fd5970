//! What the lines came to, and at which limits they are worse than the first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::cell::{Ended, Values, peak_bytes};
use super::super::count::Count;
use super::super::file::Study;
use super::super::finding::described_setup;
use super::super::metric::Number;
use super::super::unit::scaled;
use super::{Kind, cell_name, limit};

/// A number this much larger, as a factor, is worse.
const WORSE: f64 = 1.05;

/// Lines over limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveFinding {
    /// What the program is.
    pub title: String,
    /// Trace, machine, filesystem and swap space.
    pub of: String,
    /// Most memory that the first line has in use without a limit: 100%.
    pub peak_bytes: Option<u64>,
    /// Why there are no numbers.
    pub missing: Option<String>,
    /// Rising.
    pub limits: Vec<LimitFinding>,
    /// What the series beside are.
    pub beside: Option<String>,
    /// One table each.
    pub counts: Vec<CountFinding>,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LimitFinding {
    /// Share of the peak.
    pub percent: u32,
    /// `memory.max`.
    pub bytes: u64,
}

/// A number at every limit, for every line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountFinding {
    /// What it is of.
    pub what: String,
    /// Its unit; empty for a plain count.
    pub unit: String,
    /// In the order of the study file.
    pub lines: Vec<LineFinding>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineFinding {
    /// What sets it apart.
    pub name: String,
    /// Its own kernel.
    pub own: Series,
    /// That kernel with the edit beside.
    pub beside: Option<Series>,
}

/// A kernel at every limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The kernel by name.
    pub kernel: String,
    /// In the order of the limits; absent where the program did not get to its end.
    pub values: Vec<Option<f64>>,
    /// Why it did not, by limit in percent.
    pub ended: BTreeMap<u32, Ended>,
    /// Limits, in percent, at which it is worse than the first line of its kind: by more than 5%,
    /// or ended where that is not.
    pub worse_at: Vec<u32>,
}

impl CurveFinding {
    /// What the cells of curve `nr` came to.
    pub(in super::super) fn new(study: &Study, nr: usize, values: &Values) -> Self {
        let curve = &study.curves[nr];
        let (whole, spec) = curve.whole(nr);
        let (peak_bytes, missing) = match values.cell(&study.name, &whole) {
            Ok(value) => (peak_bytes(value), None),
            Err(why) => (None, Some(why.to_owned())),
        };
        let limits = curve.limits.iter().map(|&percent| LimitFinding {
            percent,
            bytes: limit(peak_bytes.unwrap_or_default(), percent),
        });
        let of_count = |count: &Count| {
            let series = |line_nr: usize, kind| {
                let spec = curve.lines[line_nr].spec(kind)?;
                let number = |&percent: &u32| {
                    let name = cell_name(nr, line_nr, kind, percent);
                    let cell = values.cell(&study.name, &name).ok()?;
                    match count.metric.of(cell) {
                        Number::Known(number) => Some(scaled(number, &count.metric, &count.unit)),
                        Number::NotKnown(_) => None,
                    }
                };
                let ended = curve.limits.iter().filter_map(|&percent| {
                    let name = cell_name(nr, line_nr, kind, percent);
                    Some((percent, values.ended(&study.name, &name)?))
                });
                Some(Series {
                    kernel: spec.kernel.name.clone(),
                    values: curve.limits.iter().map(number).collect(),
                    ended: ended.collect(),
                    worse_at: Vec::new(),
                })
            };
            let mut lines: Vec<LineFinding> = (0..curve.lines.len())
                .filter_map(|line_nr| {
                    let name = curve.lines[line_nr].name.clone();
                    let (own, beside) =
                        (series(line_nr, Kind::Own)?, series(line_nr, Kind::Beside));
                    Some(LineFinding { name, own, beside })
                })
                .collect();
            compare(&mut lines, &curve.limits);
            CountFinding { what: count.what.clone(), unit: count.unit.clone(), lines }
        };
        Self {
            title: curve.title.clone(),
            of: format!("{}, {}", curve.input.name(), described_setup(&spec)),
            peak_bytes,
            missing,
            limits: if peak_bytes.is_some() { limits.collect() } else { Vec::new() },
            beside: curve.beside.clone(),
            counts: if peak_bytes.is_some() {
                curve.counts.iter().map(of_count).collect()
            } else {
                Vec::new()
            },
        }
    }
}

/// Says of each line where it is worse than the first.
fn compare(lines: &mut [LineFinding], limits: &[u32]) {
    let Some((first, others)) = lines.split_first_mut() else { return };
    for line in others {
        line.own.worse_at = worse_at(&line.own, &first.own, limits);
        if let (Some(beside), Some(first)) = (&mut line.beside, &first.beside) {
            beside.worse_at = worse_at(beside, first, limits);
        }
    }
}

fn worse_at(series: &Series, first: &Series, limits: &[u32]) -> Vec<u32> {
    let pairs = limits.iter().zip(series.values.iter().zip(&first.values));
    let worse = pairs.filter(|(limit, pair)| match pair {
        (Some(value), Some(first)) => *value > *first * WORSE,
        // A number that is not known is no worse: the program got to its end.
        (None, Some(_)) => series.ended.contains_key(*limit),
        (_, None) => false,
    });
    worse.map(|(&percent, _)| percent).collect()
}
