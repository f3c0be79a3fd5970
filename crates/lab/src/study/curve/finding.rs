//! The results of a curve's lines, and the limits at which each is worse than the first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::cell::{CellEnd, Values, peak_bytes};
use super::super::count::Count;
use super::super::file::Study;
use super::super::finding::described_setup;
use super::super::metric::Number;
use super::super::unit::scaled;
use super::{LineKind, cell_name, limit};

/// A value is worse if it is larger by more than this factor.
const WORSE: f64 = 1.05;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveFinding {
    pub title: String,
    /// Trace, machine, filesystem and swap space.
    pub of: String,
    /// Peak memory of the first line without a limit: 100%.
    pub peak_bytes: Option<u64>,
    pub missing: Option<String>,
    /// Rising.
    pub limits: Vec<LimitFinding>,
    pub beside: Option<String>,
    pub counts: Vec<CountFinding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LimitFinding {
    pub percent: u32,
    /// `memory.max`.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountFinding {
    pub what: String,
    pub unit: String,
    pub lines: Vec<LineFinding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineFinding {
    pub name: String,
    pub own: Series,
    /// The same kernel with the `beside` edit.
    pub beside: Option<Series>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub kernel: String,
    /// In the order of the limits; absent if the program ended early.
    pub values: Vec<Option<f64>>,
    /// Why the program ended early, by limit in percent.
    pub ended: BTreeMap<u32, CellEnd>,
    /// Limits in percent at which it is worse than the first line of its kind: by more than 5%, or
    /// because only this line ended early.
    pub worse_at: Vec<u32>,
}

impl CurveFinding {
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
                        (series(line_nr, LineKind::Own)?, series(line_nr, LineKind::Beside));
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
        // An unknown number is worse only if the program ended early.
        (None, Some(_)) => series.ended.contains_key(*limit),
        (_, None) => false,
    });
    worse.map(|(&percent, _)| percent).collect()
}
