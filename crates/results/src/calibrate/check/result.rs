//! The table of predicted and measured values, and the verdict.
//!
//! - V1: a row passes if its measured median is in the predicted interval and, unless it is the
//!   reference, its ratio to the reference is within the bound.
//! - V2: a row without a prediction does not pass.

use std::fmt::Write as _;

use crate::ExportError;
use largefolio_linux::calibrate::Pace;
use largefolio_linux::measure::Spread;
use largefolio_sim::interval::Interval;
use serde::Serialize;

use super::setup::{CheckRequest, CheckRow};
use crate::{Forms, running};

const SCHEMA_VERSION: u32 = 3;

#[derive(Debug, Serialize)]
struct ComparedRow {
    operation: &'static str,
    size: String,
    unit: String,
    predicted_ns: Option<f64>,
    predicted_interval_ns: Option<Interval>,
    causes: String,
    measured_ns: Spread,
    predicted_over_measured: Option<f64>,
    /// Relative to the operation's first size; absent for that size.
    ratio_predicted: Option<f64>,
    ratio_measured: Option<Spread>,
    /// Predicted over measured ratio, minus 1.
    distance: Option<f64>,
    bound: f64,
    is_in_interval: bool,
    /// Whether the distance is within the bound; absent for the reference.
    is_ratio_within: Option<bool>,
    is_within: bool,
}

/// Predicted and measured times in nanoseconds. The verdict compares ratios of folio sizes.
#[derive(Debug, Serialize)]
pub struct CheckResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    rules: String,
    machine: String,
    nr_rows: usize,
    nr_in_interval: usize,
    nr_ratios: usize,
    nr_ratios_within: usize,
    nr_within: usize,
    pace: Pace,
    notes: Vec<String>,
    rows: Vec<ComparedRow>,
}

impl CheckResult {
    pub(super) fn new(
        request: &CheckRequest,
        command: Vec<String>,
        rows: &[CheckRow],
        pace: Pace,
        notes: Vec<String>,
    ) -> Self {
        let lines: Vec<ComparedRow> =
            rows.iter().filter_map(|row| line(row, reference(rows, row))).collect();
        let nr = |is: &dyn Fn(&ComparedRow) -> bool| lines.iter().filter(|line| is(line)).count();
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line: command,
            kernel: running::release(),
            rules: request.kernel.name.clone(),
            machine: request.machine.description.clone(),
            nr_rows: lines.len(),
            nr_in_interval: nr(&|line| line.is_in_interval),
            nr_ratios: nr(&|line| line.is_ratio_within.is_some()),
            nr_ratios_within: nr(&|line| line.is_ratio_within == Some(true)),
            nr_within: nr(&|line| line.is_within),
            pace,
            notes,
            rows: lines,
        }
    }

    #[must_use]
    pub fn is_good(&self) -> bool {
        self.nr_within == self.nr_rows && self.nr_rows > 0
    }
}

impl Forms for CheckResult {
    fn text(&self) -> String {
        let mut text = format!(
            "{}\nkernel {}, predicted under the rules of {}; interleaved rounds: median [smallest .. \
             largest] n\n",
            self.machine, self.kernel, self.rules
        );
        let mut last = "";
        for line in &self.rows {
            if line.operation != last {
                last = line.operation;
                let _ = writeln!(text, "\n{last}, ns per {}", line.unit);
                let _ = writeln!(
                    text,
                    "  {:14} {:>30} {:>32} {:>6}   {:>9} {:>8} {:>9}",
                    "size", "predicted", "measured", "p/m", "predicted", "measured", "distance"
                );
            }
            text.push_str(&line.text());
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        let _ = writeln!(
            text,
            "\n{} of {} medians are in the predicted interval, {} of {} ratios are within their \
             bounds; {} of {} rows are within both",
            self.nr_in_interval,
            self.nr_rows,
            self.nr_ratios_within,
            self.nr_ratios,
            self.nr_within,
            self.nr_rows
        );
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut text = "operation,size,unit,predicted_ns,low,high,measured_ns,min,max,n,\
                        ratio_predicted,ratio_measured,distance,bound,in_interval,ratio_within,\
                        within,causes\n"
            .to_owned();
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        for line in &self.rows {
            let Spread { median, min, max, n } = line.measured_ns;
            let _ = writeln!(
                text,
                "\"{}\",{},{},{},{},{},{median},{min},{max},{n},{},{},{},{},{},{},{},{}",
                line.operation,
                line.size,
                line.unit,
                number(line.predicted_ns),
                number(line.predicted_interval_ns.map(|interval| interval.low)),
                number(line.predicted_interval_ns.map(|interval| interval.high)),
                number(line.ratio_predicted),
                number(line.ratio_measured.map(|ratio| ratio.median)),
                number(line.distance),
                line.bound,
                line.is_in_interval,
                line.is_ratio_within.map_or_else(String::new, |is_within| is_within.to_string()),
                line.is_within,
                line.causes,
            );
        }
        Ok(text)
    }
}

impl ComparedRow {
    fn text(&self) -> String {
        let Spread { median, min, max, n } = self.measured_ns;
        let measured = format!("{median:.1} [{min:.1} .. {max:.1}] {n}");
        let number = |value: Option<f64>, digits| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let predicted = match self.predicted_ns {
            Some(ns) => match self.predicted_interval_ns {
                Some(Interval { low, high, .. }) => format!("{ns:.1} [{low:.1} .. {high:.1}]"),
                None => format!("{ns:.1}"),
            },
            None => "not known".to_owned(),
        };
        let mut verdict = match self.is_ratio_within {
            Some(false) => format!("  MISS, bound {:.0}%", self.bound * 100.0),
            _ => String::new(),
        };
        if !self.is_in_interval {
            verdict.push_str("  OUTSIDE the interval");
        }
        let distance =
            self.distance.map_or_else(|| "-".to_owned(), |by| format!("{:+.0}%", by * 100.0));
        format!(
            "  {:14} {predicted:>30} {measured:>32} {:>6}   {:>9} {:>8} {distance:>9}{verdict}\n",
            self.size,
            number(self.predicted_over_measured, 2),
            number(self.ratio_predicted, 3),
            number(self.ratio_measured.map(|ratio| ratio.median), 3),
        )
    }
}

fn reference<'a>(rows: &'a [CheckRow], row: &CheckRow) -> Option<&'a CheckRow> {
    if row.is_reference {
        return None;
    }
    rows.iter().find(|other| other.operation == row.operation && other.is_reference)
}

fn line(row: &CheckRow, reference: Option<&CheckRow>) -> Option<ComparedRow> {
    let measured = Spread::of(&row.measured.rounds_ns)?;
    let ratio_predicted =
        reference.and_then(|reference| Some(row.predicted? / reference.predicted?));
    let ratio_measured = reference.and_then(|reference| row.measured.ratio(&reference.measured));
    let distance = ratio_predicted
        .zip(ratio_measured)
        .map(|(predicted, measured)| predicted / measured.median - 1.0)
        .filter(|distance| distance.is_finite());
    let is_in_interval = row.predicted.is_some()
        && row
            .interval
            .is_some_and(|all| all.low <= measured.median && measured.median <= all.high);
    let is_ratio_within = reference.map(|_| distance.is_some_and(|by| by.abs() <= row.bound));
    Some(ComparedRow {
        operation: row.operation,
        size: row.size.clone(),
        unit: row.unit.to_owned(),
        predicted_ns: row.predicted,
        predicted_interval_ns: row.interval,
        causes: row.causes.clone(),
        measured_ns: measured,
        predicted_over_measured: row.predicted.map(|ns| ns / measured.median),
        ratio_predicted,
        ratio_measured,
        distance,
        bound: row.bound,
        is_in_interval,
        is_ratio_within,
        is_within: is_in_interval && is_ratio_within != Some(false),
    })
}

#[cfg(test)]
mod tests {
    use largefolio_linux::measure::Series;

    use super::*;

    fn row(size: &str, predicted: Option<f64>, rounds_ns: &[f64]) -> CheckRow {
        CheckRow {
            operation: "x",
            size: size.to_owned(),
            unit: "call",
            predicted,
            interval: predicted.map(|ns| Interval::within(ns, 1.25)),
            causes: String::new(),
            measured: Series { rounds_ns: rounds_ns.to_vec() },
            bound: 0.25,
            is_reference: size == "4K",
        }
    }

    fn lines(rows: &[CheckRow]) -> Vec<ComparedRow> {
        rows.iter().filter_map(|row| line(row, reference(rows, row))).collect()
    }

    #[test]
    fn rows_are_judged_by_interval_and_ratio() {
        let lines = lines(&[
            row("4K", Some(140.0), &[100.0, 200.0]),
            row("2M", Some(32.0), &[20.0, 40.0]),
            row("64K", Some(37.0), &[20.0, 40.0]),
            row("32K", Some(22.0), &[20.0, 40.0]),
            row("1G", None, &[20.0, 40.0]),
        ]);
        let ratios: Vec<_> = lines.iter().map(|line| line.is_ratio_within).collect();
        assert_eq!(ratios, [None, Some(true), Some(false), Some(true), Some(false)]);
        let inside: Vec<_> = lines.iter().map(|line| line.is_in_interval).collect();
        assert_eq!(inside, [true, true, true, false, false]);
        let within: Vec<_> = lines.iter().map(|line| line.is_within).collect();
        assert_eq!(within, [true, true, false, false, false]);
        assert!(lines[4].text().contains("not known"));
        assert!(lines[2].text().contains("MISS, bound 25%"));
        assert!(lines[3].text().contains("OUTSIDE the interval"));
    }

    #[test]
    fn non_numeric_values_count_as_missing() {
        let lines = lines(&[row("4K", Some(f64::NAN), &[1.0]), row("2M", Some(1.0), &[0.0])]);
        assert_eq!(lines[1].is_ratio_within, Some(false));
        assert!(!lines[0].is_within && !lines[1].is_within);
    }
}
