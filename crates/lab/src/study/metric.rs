//! A number of a cell: names from the result's JSON, sums and quotients of them.
//!
//! ```text
//!   metric = sum [ "/" sum ]        sum = name { "+" name }
//!   name   = reads.bytes | folios.file.by_size.64K.aligned_bytes | estimate.causes.fault.ns | ..
//! ```
//!
//! `folios.file` is text and data together. A folio size that did not occur counts as 0. Loading a
//! study fails if no result has the name.

use std::fmt;

use serde_json::Value;

use super::dimension::Dimension;
use largefolio_sim::metrics;
use largefolio_sim::names::nearest;
use largefolio_sim::size::parse_bytes;

const NR_NAMES_MAX: usize = 16;

/// Keys below a requested folio size.
const ASKED: [&str; 4] = ["file_asked", "file_got", "anon_asked", "anon_got"];

/// Maps of such maps: by tenth of a trace, by round.
const MAPS_OF_ASKED: [&str; 2] = ["asked_tenths", "aged"];

/// A number of a cell, or a quotient of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    text: String,
    sum: Vec<Vec<String>>,
    of: Option<Vec<Vec<String>>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    /// The value, in the result's unit.
    Known(f64),
    /// Unknown; names the missing input.
    NotKnown(String),
}

impl Metric {
    /// Parses a metric.
    ///
    /// ```
    /// use largefolio_lab::study::Metric;
    /// let share = Metric::parse("folios.file.by_size.64K.aligned_bytes / folios.file.mapped_bytes")?;
    /// assert!(!share.is_estimate());
    /// assert!(Metric::parse("faults.total /").is_err());
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// Describes the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = "expected field names in a result's JSON, such as \"reads.bytes\" or \
                        \"folios.text.contpte_bytes / folios.text.mapped_bytes\"";
        let mut sides = text.split('/').map(sum);
        let (Some(Some(first)), of, None) = (sides.next(), sides.next(), sides.next()) else {
            return Err(expected.to_owned());
        };
        let of = match of {
            None => None,
            Some(Some(of)) => Some(of),
            Some(None) => return Err(expected.to_owned()),
        };
        if first.len() + of.as_ref().map_or(0, Vec::len) > NR_NAMES_MAX {
            return Err(format!("more than {NR_NAMES_MAX} names"));
        }
        Ok(Self { text: text.to_owned(), sum: first, of })
    }

    /// Returns the number's dimension.
    ///
    /// # Errors
    /// Names two summands with different dimensions.
    pub(super) fn dimension(&self) -> Result<Dimension, String> {
        let of_sum = |sum: &[Vec<String>]| {
            let mut all = sum.iter().map(|name| Dimension::of(name));
            let first = all.next().unwrap_or(Dimension::Count);
            match all.find(|other| *other != first) {
                None => Ok(first),
                Some(other) => Err(format!(
                    "{self} adds {} and {}; add only numbers of one kind",
                    first.label(),
                    other.label()
                )),
            }
        };
        let first = of_sum(&self.sum)?;
        self.of.as_deref().map_or(Ok(first), |of| Ok(first.over(of_sum(of)?)))
    }

    /// Returns whether it is estimated from machine costs rather than counted.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        let names = self.sum.iter().chain(self.of.iter().flatten());
        names.into_iter().any(|name| {
            let is_time = name.last().is_some_and(|last| last.ends_with("_ns"));
            name[0] == "estimate" || name[0] == "latency" && is_time
        })
    }

    /// Returns the machine constants that a cell's estimate uses, by name. If the metric names
    /// causes, only their costs.
    pub(super) fn constants_in<'a>(&self, cell: &'a Value) -> Vec<(&'a str, &'a Value)> {
        let names = || self.sum.iter().chain(self.of.iter().flatten());
        let cause = |name: &Vec<String>| match name.as_slice() {
            [estimate, causes, cause, ..] if estimate == "estimate" && causes == "causes" => {
                Some(cause.clone())
            }
            _ => None,
        };
        let causes: Option<Vec<String>> = names().map(cause).collect();
        let estimate = &cell["estimate"];
        let constants = estimate["constants"].as_object().filter(|_| self.is_estimate());
        let Some(constants) = constants else { return Vec::new() };
        let terms_of = |cause: &String| estimate["causes"][cause]["terms"].as_array();
        let costs =
            |cause| terms_of(cause).into_iter().flatten().filter_map(|t| t["cost"].as_str());
        let is_used = |name: &str| match &causes {
            None => true,
            Some(causes) if causes.iter().flat_map(costs).any(|cost| cost == name) => true,
            // Indirect inputs: cycles use the clock, reads use the device's reference pace.
            Some(causes) => match name {
                "costs.clock" => {
                    let unit = |cost: &str| constants.get(cost).map(|one| &one["unit"]);
                    causes
                        .iter()
                        .flat_map(costs)
                        .any(|cost| unit(cost).is_some_and(|u| u == "cycles"))
                }
                "costs.reference" => causes.iter().any(|cause| cause == "read"),
                _ => false,
            },
        };
        let used = constants.iter().filter(|(name, _)| is_used(name));
        used.map(|(name, one)| (name.as_str(), one)).collect()
    }

    pub(super) fn assumed_in(&self, cell: &Value) -> Vec<String> {
        let used = self.constants_in(cell).into_iter();
        used.filter(|(_, one)| one["assumed"] == true).map(|(name, _)| name.to_owned()).collect()
    }

    pub(super) fn unknown_in(&self, sample: &Value) -> Option<String> {
        let names = self.sum.iter().chain(self.of.iter().flatten());
        names.into_iter().find_map(|name| unknown(sample, name))
    }

    /// Returns the metric's value in a cell. A share of 0 is unknown, but 0 of 0 is 0: a kernel
    /// that requests no folio of a size gets none.
    pub(super) fn of(&self, cell: &Value) -> Number {
        let total = |sum: &[Vec<String>]| {
            let mut total = 0.0;
            for name in sum {
                match lookup(cell, name) {
                    Some(number) => total += number,
                    None => return Err(not_known(cell, name)),
                }
            }
            Ok(total)
        };
        let below = self.of.as_deref().map(total).transpose();
        match (total(&self.sum), below) {
            (Ok(sum), Ok(None)) => Number::Known(sum),
            (Ok(0.0), Ok(Some(0.0))) => Number::Known(0.0),
            (Ok(_), Ok(Some(0.0))) => Number::NotKnown(format!("a share of 0 ({self})")),
            (Ok(sum), Ok(Some(below))) => Number::Known(sum / below),
            (Err(why), _) | (_, Err(why)) => Number::NotKnown(why),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses a sum; `None` if a name is empty.
fn sum(text: &str) -> Option<Vec<Vec<String>>> {
    text.split('+')
        .map(|name| {
            let steps: Vec<String> = name.trim().split('.').map(key).collect();
            steps.iter().all(|step| !step.is_empty() && !step.contains(' ')).then_some(steps)
        })
        .collect()
}

/// Converts a size to bytes, as in the JSON; returns any other step unchanged.
fn key(step: &str) -> String {
    let is_size = step.starts_with(|c: char| c.is_ascii_digit());
    let bytes = is_size.then(|| parse_bytes(step)).flatten();
    bytes.map_or_else(|| step.to_owned(), |bytes| bytes.to_string())
}

/// Returns the names below each key of the map `name`, whose keys are data: folio sizes, reasons.
fn map_named(name: &str) -> Option<Vec<&'static str>> {
    if name == "causes" {
        return Some(vec!["ns"]);
    }
    let is_named = |metric: &&metrics::Metric| metric.path.rsplit('.').next() == Some(name);
    metrics::table::all().filter(is_named).find_map(|metric| match metric.value {
        metrics::Value::Names(..) => Some(Vec::new()),
        metrics::Value::Sizes(sizes) if sizes.members.len() == 1 => Some(Vec::new()),
        metrics::Value::Sizes(sizes) => {
            Some(sizes.members.iter().map(|member| member.name).collect())
        }
        _ => None,
    })
}

fn unknown(sample: &Value, name: &[String]) -> Option<String> {
    let mut at = sample;
    if name.first().is_some_and(|first| MAPS_OF_ASKED.contains(&first.as_str())) {
        let is_known = matches!(name, [_, _, _, last] if ASKED.contains(&last.as_str()));
        return (!is_known).then(|| unknown_name(name, ASKED.into_iter()));
    }
    for (nr, step) in name.iter().enumerate() {
        if let Some(members) = nr.checked_sub(1).and_then(|before| map_named(&name[before])) {
            let rest: Vec<&str> = name[nr + 1..].iter().map(String::as_str).collect();
            return match (members.as_slice(), rest.as_slice()) {
                ([], []) => None,
                (members, [member]) if members.contains(member) => None,
                _ => Some(unknown_name(name, members.iter().copied())),
            };
        }
        let Some(next) = at.get(step) else {
            let known = at.as_object().into_iter().flat_map(|object| object.keys());
            return Some(unknown_name(name, known.map(String::as_str)));
        };
        at = next;
    }
    (!at.is_number() && !at.is_null()).then(|| {
        let known = at.as_object().into_iter().flat_map(|object| object.keys());
        unknown_name(name, known.map(String::as_str))
    })
}

fn unknown_name<'a>(name: &[String], known: impl Iterator<Item = &'a str>) -> String {
    let hint = nearest(name.last().map_or("", String::as_str), known);
    format!("there is no number '{}'; {hint}", name.join("."))
}

/// Looks up a number. A key missing from a map is 0, and null is `None`.
fn lookup(cell: &Value, name: &[String]) -> Option<f64> {
    let mut at = cell;
    for step in name {
        match at.get(step) {
            Some(next) => at = next,
            None => return Some(0.0),
        }
    }
    at.as_f64()
}

fn not_known(cell: &Value, name: &[String]) -> String {
    let missing = cell.pointer("/estimate/not_known").and_then(Value::as_array);
    let missing: Vec<&str> = missing.into_iter().flatten().filter_map(Value::as_str).collect();
    if missing.is_empty() { name.join(".") } else { missing.join(", ") }
}
