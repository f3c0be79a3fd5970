//! The numbers of a result, each defined once: [`table`] has one entry per number, and every
//! format (text, CSV, Parquet, page), `--why` and the studies read it. Their descriptions are in
//! `schemas/predict.json`; a test compares the two.
//!
//! Owns names, units and accessors. Does not own the counters ([`crate::replay::outcome`]) or
//! formats.
//!
//! Invariants:
//! - M1: an entry's path leads to its number in the JSON of a row.
//! - M2: [`numbers`] has every counted number as an exact integer. An unknown number has no row.

pub mod table;

use std::collections::BTreeMap;

use crate::replay::Outcome;

/// A number of a result, or a table of numbers of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Keys from a row of the JSON to the number, separated by dots.
    pub path: &'static str,
    csv: Option<&'static str>,
    pub unit: &'static str,
    /// The line's name in tables for people.
    pub label: &'static str,
    pub better: Better,
    pub value: Value,
    /// Whether older sweeps lack its column in the data frame; it is null there.
    pub is_later: bool,
    /// By how many columns it precedes its place in the data frame, which older sweeps fixed.
    pub frame_up: usize,
}

/// Which change of a number is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Less,
    Neither,
}

#[derive(Clone, Copy, Debug)]
pub enum Value {
    Count(fn(&Outcome) -> u64),
    /// A count that may be unknown or not apply.
    Known(fn(&Outcome) -> Option<u64>),
    /// Not an integer: only in JSON and the data frame.
    Real(fn(&Outcome) -> Option<f64>),
    /// Not an integer: rounded for the CSV after multiplication with the factor.
    Rounded(fn(&Outcome) -> Option<f64>, f64),
    Sizes(Sizes),
    /// Counts by reason or event.
    Names(&'static str, for<'a> fn(&'a Outcome) -> &'a BTreeMap<&'static str, u64>),
    Groups(Groups),
}

/// The values of each member, by folio size in bytes.
type RowsBySize = Vec<(u64, Vec<u64>)>;
/// The values of each member, by the group's name; an unknown value is `None`.
type RowsByName = Vec<(String, Vec<Option<u64>>)>;

/// Numbers by folio size.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The size's name in the data frame.
    pub key: &'static str,
    pub members: &'static [Member],
    pub rows: fn(&Outcome) -> RowsBySize,
}

/// Numbers by control group or program.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    pub key: &'static str,
    /// Name of the column in the data frame, which holds the first `nr_framed` members.
    pub frame: &'static str,
    pub nr_framed: usize,
    pub members: &'static [Member],
    pub rows: fn(&Outcome) -> RowsByName,
}

#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub name: &'static str,
    pub csv: &'static str,
    pub unit: &'static str,
}

impl Metric {
    const fn new(path: &'static str, unit: &'static str, value: Value) -> Self {
        Self {
            path,
            csv: None,
            unit,
            label: "",
            better: Better::Neither,
            value,
            is_later: false,
            frame_up: 0,
        }
    }

    const fn csv(self, name: &'static str) -> Self {
        Self { csv: Some(name), ..self }
    }

    const fn label(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    const fn less_is_better(self) -> Self {
        Self { better: Better::Less, ..self }
    }

    const fn later(self) -> Self {
        Self { is_later: true, ..self }
    }

    const fn frame_up(self, frame_up: usize) -> Self {
        Self { frame_up, ..self }
    }

    /// Returns its metric name in the CSV and for `--why`.
    #[must_use]
    pub fn csv_name(&self) -> String {
        self.csv.map_or_else(|| self.path.replace('.', "_"), str::to_owned)
    }

    /// Returns its column in the data frame.
    #[must_use]
    pub fn frame_name(&self) -> String {
        match self.value {
            Value::Groups(groups) => groups.frame.to_owned(),
            _ => self.path.replace("causes.", "").replace('.', "_"),
        }
    }

    /// Returns the value of a single count; `None` if it is unknown.
    #[must_use]
    pub fn count(&self, outcome: &Outcome) -> Option<u64> {
        match self.value {
            Value::Count(of) => Some(of(outcome)),
            Value::Known(of) => of(outcome),
            _ => None,
        }
    }

    fn add(&self, outcome: &Outcome, numbers: &mut Vec<Number>) {
        let plain = |metric: String, value: i128| Number {
            metric,
            folio_bytes: None,
            value,
            unit: self.unit,
        };
        match self.value {
            Value::Count(_) | Value::Known(_) => {
                numbers
                    .extend(self.count(outcome).map(|value| plain(self.csv_name(), value.into())));
            }
            Value::Real(_) => {}
            Value::Rounded(of, factor) => {
                let value = of(outcome).map(|value| whole(value * factor).into());
                numbers.extend(value.map(|value| plain(self.csv_name(), value)));
            }
            Value::Sizes(sizes) => {
                for (folio_bytes, values) in (sizes.rows)(outcome) {
                    for (member, value) in sizes.members.iter().zip(values) {
                        numbers.push(Number {
                            metric: member.csv.to_owned(),
                            folio_bytes: Some(folio_bytes),
                            value: value.into(),
                            unit: member.unit,
                        });
                    }
                }
            }
            Value::Names(_, of) => {
                let prefix = self.csv_name();
                let counts = of(outcome).iter();
                numbers
                    .extend(counts.map(|(name, &nr)| plain(format!("{prefix}_{name}"), nr.into())));
            }
            Value::Groups(groups) => {
                for (group, values) in (groups.rows)(outcome) {
                    let known = groups.members.iter().zip(values);
                    numbers.extend(known.filter_map(|(member, value)| {
                        let metric = format!("{}:{group}", member.csv);
                        Some(Number { unit: member.unit, ..plain(metric, value?.into()) })
                    }));
                }
            }
        }
    }
}

/// One number of a result in long form: a row of the CSV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    pub metric: String,
    pub folio_bytes: Option<u64>,
    pub value: i128,
    pub unit: &'static str,
}

/// Returns every number of `outcome` in the order of the CSV.
#[must_use]
pub fn numbers(outcome: &Outcome) -> Vec<Number> {
    numbers_of(&[table::RESULTS, table::TIMES, table::RUN, table::ENDS].concat(), outcome)
}

/// Returns the numbers without those of the run time, which changes are measured against.
#[must_use]
pub fn results(outcome: &Outcome) -> Vec<Number> {
    numbers_of(&[table::RESULTS, table::TIMES, table::ENDS].concat(), outcome)
}

fn numbers_of(tables: &[&[Metric]], outcome: &Outcome) -> Vec<Number> {
    let mut numbers = Vec::new();
    for metric in tables.iter().copied().flatten() {
        metric.add(outcome, &mut numbers);
    }
    add_policy(outcome, &mut numbers);
    numbers
}

/// The answers at single points, which the data frame has only in sum.
fn add_policy(outcome: &Outcome, numbers: &mut Vec<Number>) {
    for (point, answers) in outcome.policy.iter().flat_map(|policy| &policy.points) {
        for (what, value) in
            [("asked", answers.asked), ("honoured", answers.honoured), ("refused", answers.refused)]
        {
            numbers.push(Number {
                metric: format!("policy_{point}_{what}"),
                folio_bytes: None,
                value: value.into(),
                unit: "answers",
            });
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "saturates")]
fn whole(value: f64) -> i64 {
    value.round() as i64
}

/// Returns the metric at `path`.
///
/// # Panics
/// If the table has none: paths are part of the program.
#[must_use]
pub fn at(path: &str) -> &'static Metric {
    let metric_of_path = table::all().find(|metric| metric.path == path);
    let Some(metric) = metric_of_path else { unreachable!("no metric {path}") };
    metric
}

#[cfg(test)]
mod tests;
