//! The table of predicted and measured values, and the verdict.

use std::fmt::Write as _;

use largefolio_linux::measure::Spread;
use largefolio_report::ExportError;
use serde::Serialize;

use super::setup::{CheckRequest, CheckRow};
use crate::{Forms, running};

/// Version of the JSON's layout.
const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct Line {
    operation: &'static str,
    size: String,
    unit: String,
    predicted_ns: Option<f64>,
    causes: String,
    measured_ns: Spread,
    predicted_over_measured: Option<f64>,
    /// To the first size of the operation; absent for itself.
    ratio_predicted: Option<f64>,
    ratio_measured: Option<Spread>,
    /// Predicted over measured ratio, less 1.
    distance: Option<f64>,
    bound: f64,
    /// Absent for the reference.
    is_within: Option<bool>,
}

/// Predicted beside measured times in nanoseconds; the verdict is about ratios of folio sizes.
#[derive(Debug, Serialize)]
pub struct CheckResult {
    schema: u32,
    version: &'static str,
    command: Vec<String>,
    kernel: String,
    rules: String,
    machine: String,
    nr_compared: usize,
    nr_within: usize,
    notes: Vec<String>,
    rows: Vec<Line>,
}

impl CheckResult {
    pub(super) fn new(
        request: &CheckRequest,
        command: Vec<String>,
        rows: &[CheckRow],
        notes: Vec<String>,
    ) -> Self {
        let lines: Vec<Line> =
            rows.iter().filter_map(|row| line(row, reference(rows, row))).collect();
        let verdicts = || lines.iter().filter_map(|line| line.is_within);
        Self {
            schema: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            command,
            kernel: running::release(),
            rules: request.kernel.name.clone(),
            machine: request.machine.description.clone(),
            nr_compared: verdicts().count(),
            nr_within: verdicts().filter(|is_within| *is_within).count(),
            notes,
            rows: lines,
        }
    }

    /// Whether every ratio is within its bound.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.nr_within == self.nr_compared && self.nr_compared > 0
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
                    "  {:14} {:>10} {:>32} {:>6}   {:>9} {:>8} {:>9}",
                    "size", "predicted", "measured", "p/m", "predicted", "measured", "distance"
                );
            }
            text.push_str(&line.text());
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        let (nr, all) = (self.nr_within, self.nr_compared);
        let _ = writeln!(text, "\n{nr} of {all} ratios are within their bounds");
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut text = "operation,size,unit,predicted_ns,measured_ns,min,max,n,ratio_predicted,\
                        ratio_measured,distance,bound,within,causes\n"
            .to_owned();
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        for line in &self.rows {
            let Spread { median, min, max, n } = line.measured_ns;
            let _ = writeln!(
                text,
                "\"{}\",{},{},{},{median},{min},{max},{n},{},{},{},{},{},{}",
                line.operation,
                line.size,
                line.unit,
                number(line.predicted_ns),
                number(line.ratio_predicted),
                number(line.ratio_measured.map(|ratio| ratio.median)),
                number(line.distance),
                line.bound,
                line.is_within.map_or_else(String::new, |is_within| is_within.to_string()),
                line.causes,
            );
        }
        Ok(text)
    }
}

impl Line {
    fn text(&self) -> String {
        let Spread { median, min, max, n } = self.measured_ns;
        let measured = format!("{median:.1} [{min:.1} .. {max:.1}] {n}");
        let number = |value: Option<f64>, digits| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let predicted = match self.predicted_ns {
            Some(ns) => format!("{ns:.1}"),
            None => "not known".to_owned(),
        };
        let verdict = match self.is_within {
            Some(false) => format!("  MISS, bound {:.0}%", self.bound * 100.0),
            _ => String::new(),
        };
        let distance =
            self.distance.map_or_else(|| "-".to_owned(), |by| format!("{:+.0}%", by * 100.0));
        format!(
            "  {:14} {predicted:>10} {measured:>32} {:>6}   {:>9} {:>8} {distance:>9}{verdict}\n",
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

fn line(row: &CheckRow, reference: Option<&CheckRow>) -> Option<Line> {
    let measured = Spread::of(&row.measured.rounds_ns)?;
    let ratio_predicted =
        reference.and_then(|reference| Some(row.predicted? / reference.predicted?));
    let ratio_measured = reference.and_then(|reference| row.measured.ratio(&reference.measured));
    let distance = ratio_predicted
        .zip(ratio_measured)
        .map(|(predicted, measured)| predicted / measured.median - 1.0)
        .filter(|distance| distance.is_finite());
    Some(Line {
        operation: row.operation,
        size: row.size.clone(),
        unit: row.unit.to_owned(),
        predicted_ns: row.predicted,
        causes: row.causes.clone(),
        measured_ns: measured,
        predicted_over_measured: row.predicted.map(|ns| ns / measured.median),
        ratio_predicted,
        ratio_measured,
        distance,
        bound: row.bound,
        // What could not be predicted is not within a bound.
        is_within: reference.map(|_| distance.is_some_and(|by| by.abs() <= row.bound)),
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
            causes: String::new(),
            measured: Series { rounds_ns: rounds_ns.to_vec() },
            bound: 0.25,
            is_reference: size == "4K",
        }
    }

    #[test]
    fn ratios_are_compared_not_values() {
        let rows = [
            row("4K", Some(50.0), &[100.0, 200.0]),
            row("2M", Some(12.0), &[20.0, 40.0]),
            row("64K", Some(30.0), &[20.0, 40.0]),
            row("1G", None, &[20.0, 40.0]),
        ];
        let lines: Vec<Line> =
            rows.iter().filter_map(|row| line(row, reference(&rows, row))).collect();
        let within: Vec<_> = lines.iter().map(|line| line.is_within).collect();
        assert_eq!(within, [None, Some(true), Some(false), Some(false)]);
        assert!((lines[1].distance.unwrap() - 0.2).abs() < 1e-9);
        assert!(lines[3].text().contains("not known"));
        assert!(lines[2].text().contains("MISS, bound 25%"));
    }

    #[test]
    fn values_that_are_no_numbers_are_misses() {
        let rows = [row("4K", Some(f64::NAN), &[1.0]), row("2M", Some(1.0), &[0.0])];
        let line = line(&rows[1], reference(&rows, &rows[1])).unwrap();
        assert_eq!(line.is_within, Some(false));
    }
}
