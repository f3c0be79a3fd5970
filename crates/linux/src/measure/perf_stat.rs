//! The output of `perf stat` as a plain run of a program.
//!
//! ```text
//!   text    1,234,567      cycles:u        # 3.2 GHz   (66.67%)
//!           1.0023 +- 0.0012 seconds time elapsed
//!   -x,     1234567,,cycles:u,4000000,66.67,3.2,GHz
//!   -j      {"counter-value" : "1234567.000000", "event" : "cycles:u", ...}
//! ```
//!
//! Owns the formats. `events` owns the meaning of each event.

use std::collections::BTreeMap;

use largefolio_trace::{HardwareCounters, PlainRun};
use serde::Deserialize;
use thiserror::Error;

use super::events::{Counts, EVENTS, Event};

/// Longer output is not of `perf stat`.
pub const BYTES_MAX: u64 = 1 << 20;
/// Bits of a raw event that say when to count, and not what.
const WHEN: u64 = 0xff_0000;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PerfStatError {
    #[error(
        "it has no counts; expected the output of perf stat, such as perf stat -o FILE -e \
         cycles,instructions,dTLB-load-misses CMD"
    )]
    Empty,
    #[error(
        "{one} and {other} count in different modes; count both in the same mode, such as -e \
         cycles:u,instructions:u"
    )]
    Modes { one: String, other: String },
}

/// A run as `perf stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfStat {
    pub run: PlainRun,
    /// What its events do not add up to, one sentence each.
    pub incomplete: Vec<String>,
}

/// A line's value.
struct Line {
    value: f64,
    unit: String,
    event: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct JsonLine {
    counter_value: String,
    #[serde(default)]
    unit: String,
    event: String,
}

/// The events that were counted, by name without mode.
struct Found(BTreeMap<String, (f64, String)>);

/// Reads the output of `perf stat` in any of its formats. Other lines are ignored.
///
/// # Errors
/// If it has no counts, or counts that do not belong together.
pub fn parse(text: &str) -> Result<PerfStat, PerfStatError> {
    let mut run = PlainRun::default();
    let mut found = BTreeMap::new();
    for line in text.lines().filter_map(line_of) {
        let Line { value, unit, event } = line;
        match (event.as_str(), unit.as_str()) {
            ("elapsed", _) => run.wall_ns = whole(value * 1e9),
            ("user", _) => run.user_ns = whole(value * 1e9),
            ("sys", _) => run.system_ns = whole(value * 1e9),
            ("duration_time", _) => run.wall_ns = whole(value),
            ("user_time", _) => run.user_ns = whole(value),
            ("system_time", _) => run.system_ns = whole(value),
            _ => {
                let (name, mode) = named(&event);
                let (sum, _) = found.entry(name).or_insert((0.0, mode));
                *sum += value;
            }
        }
    }
    let found = Found(found);
    let count = |name: &str| found.0.get(name).map(|(value, _)| whole(*value));
    run.major_faults = count("major-faults").unwrap_or(0);
    run.minor_faults = count("minor-faults")
        .or_else(|| Some(count("page-faults")?.saturating_sub(run.major_faults)))
        .unwrap_or(0);
    let (counters, incomplete) = found.counters()?;
    if counters == HardwareCounters::default() && run.wall_ns == 0 {
        return Err(PerfStatError::Empty);
    }
    run.counters = (counters != HardwareCounters::default()).then_some(counters);
    Ok(PerfStat { run, incomplete })
}

impl Found {
    fn counters(&self) -> Result<(HardwareCounters, Vec<String>), PerfStatError> {
        let mut counters = HardwareCounters::default();
        let mut incomplete = Vec::new();
        for counts in Counts::ALL {
            let lists = EVENTS.families.iter().map(|family| &family.events);
            let mut best: Option<(u64, Vec<&str>)> = None;
            for events in lists.chain([&EVENTS.generic]) {
                let (mut sum, mut missing, mut nr) = (0.0, Vec::new(), 0);
                for event in events.iter().filter(|event| event.counts == counts) {
                    match self.value(event) {
                        Some(value) => (sum, nr) = (sum + value, nr + 1),
                        None => missing.push(event.name.as_str()),
                    }
                }
                let is_better = best.as_ref().is_none_or(|(_, fewer)| missing.len() < fewer.len());
                if nr > 0 && is_better {
                    best = Some((whole(sum), missing));
                }
            }
            match best {
                Some((sum, missing)) if missing.is_empty() => {
                    *counts.of(&mut counters) = Some(sum);
                }
                Some((_, missing)) => {
                    let of = match counts {
                        Counts::WalkCycles => "walk cycles",
                        _ => "TLB misses",
                    };
                    incomplete.push(format!("{of} also need the events {}", missing.join(", ")));
                }
                None => {}
            }
        }
        let mode = |name: &'static str| Some((name, &self.0.get(name)?.1));
        if let (Some((one, mode)), Some((other, other_mode))) =
            (mode("cycles").or_else(|| mode("cpu-cycles")), mode("instructions"))
            && mode != other_mode
        {
            let [one, other] =
                [(one, mode), (other, other_mode)].map(|(name, mode)| format!("{name}{mode}"));
            return Err(PerfStatError::Modes { one, other });
        }
        Ok((counters, incomplete))
    }

    fn value(&self, event: &Event) -> Option<f64> {
        let is_it = |name: &str| {
            event.is_called(name)
                || event.is_raw() && raw_config(name).is_some_and(|config| config == event.config)
        };
        self.0.iter().find(|(name, _)| is_it(name)).map(|(_, (value, _))| *value)
    }
}

/// Returns the event that a name such as `r43f045` spells in numbers.
fn raw_config(name: &str) -> Option<u64> {
    Some(u64::from_str_radix(name.strip_prefix('r')?, 16).ok()? & !WHEN)
}

/// Splits an event into its name in lower case, without its PMU, and its mode, such as `:u`.
fn named(event: &str) -> (String, String) {
    let event = event.to_lowercase();
    if let Some((_, inner)) = event.split_once('/')
        && let Some((name, mode)) = inner.split_once('/')
    {
        let mode = mode.trim_start_matches(':');
        let mode = if mode.is_empty() { String::new() } else { format!(":{mode}") };
        return (name.to_owned(), mode);
    }
    match event.split_once(':') {
        Some((name, mode)) => (name.to_owned(), format!(":{mode}")),
        None => (event, String::new()),
    }
}

fn line_of(line: &str) -> Option<Line> {
    let line = line.trim();
    if line.starts_with('{') {
        let JsonLine { counter_value, unit, event } = serde_json::from_str(line).ok()?;
        return Some(Line { value: finite(counter_value.trim())?, unit, event });
    }
    let first = line.split_whitespace().next()?;
    if !first.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if first.contains(char::is_alphabetic) {
        return separated(line);
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let words: &[&str] = match words.as_slice() {
        [value, "+-", _, rest @ ..] => &[&[*value], rest].concat(),
        words => words,
    };
    let line = |value: f64, unit: &str, event: &str| {
        Some(Line { value, unit: unit.to_owned(), event: event.to_owned() })
    };
    match words {
        [value, "seconds", "time", "elapsed", ..] => line(decimal(value)?, "s", "elapsed"),
        [value, "seconds", kind @ ("user" | "sys"), ..] => line(decimal(value)?, "s", kind),
        [value, unit @ ("msec" | "ns" | "Joules"), event, ..] => line(decimal(value)?, unit, event),
        [value, event, ..] => line(grouped(value)?, "", event),
        _ => None,
    }
}

/// Reads a line of `-x`. The separator follows the number.
fn separated(line: &str) -> Option<Line> {
    let end = line.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let separator = line[end..].chars().next()?;
    let mut fields = line.split(separator);
    let (value, unit, event) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Line { value: finite(value)?, unit: unit.to_owned(), event: event.to_owned() })
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)
}

/// Reads a number with a decimal point or comma.
fn decimal(text: &str) -> Option<f64> {
    finite(&text.replace(',', "."))
}

/// Reads a whole number, with or without separators between thousands.
fn grouped(text: &str) -> Option<f64> {
    finite(&text.replace([',', '.', '\'', '\u{a0}', '\u{202f}'], ""))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests;
