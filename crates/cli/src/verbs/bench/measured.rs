//! Measured values as a table, JSON or CSV.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use largefolio_linux::measure::{Series, Spread};
use serde::Serialize;

use crate::console::Console;
use crate::verbs::values::Form;

/// Version of the JSON's layout.
const SCHEMA_VERSION: u32 = 1;

/// One subject of one measurement.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// What was done.
    pub(super) operation: String,
    /// Folio size, or another dimension of the table.
    pub(super) size: String,
    /// Who did it.
    pub(super) subject: String,
    /// Nanoseconds a unit.
    pub(super) ns: Value,
    /// Over the reference subject of the same operation and size, within a round.
    pub(super) ratio: Option<Value>,
}

/// A median with its smallest and largest value.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Value {
    median: f64,
    min: f64,
    max: f64,
    n: usize,
}

impl From<Spread> for Value {
    fn from(spread: Spread) -> Self {
        let Spread { median, min, max, n } = spread;
        Self { median, min, max, n }
    }
}

impl Value {
    /// `2.10 [1.90 .. 2.31]`.
    fn text(self) -> String {
        let number = |value: f64| match value.abs() {
            large if large >= 100.0 => format!("{value:.0}"),
            middle if middle >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        };
        format!("{} [{} .. {}]", number(self.median), number(self.min), number(self.max))
    }
}

/// Rows of one operation and size: the first series is the reference.
pub(super) fn rows(
    operation: &str,
    size: &str,
    units: f64,
    subjects: &[(String, Series)],
) -> Vec<Row> {
    let reference = subjects.first();
    let scaled = |series: &Series| Series {
        rounds_ns: series.rounds_ns.iter().map(|ns| ns / units).collect(),
    };
    let of = |(name, series): &(String, Series)| {
        let ratio = reference.filter(|(first, _)| first != name);
        Some(Row {
            operation: operation.to_owned(),
            size: size.to_owned(),
            subject: name.clone(),
            ns: scaled(series).spread()?.into(),
            ratio: ratio.and_then(|(_, first)| series.ratio(first)).map(Value::from),
        })
    };
    subjects.iter().filter_map(of).collect()
}

/// A result with what is needed to understand it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    version: &'static str,
    command: Vec<String>,
    kernel: String,
    /// What a unit is.
    unit: &'static str,
    /// What the series published, where it did.
    published: &'static [&'static str],
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(
        command: Vec<String>,
        unit: &'static str,
        published: &'static [&'static str],
        rows: Vec<Row>,
    ) -> Self {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let version = env!("CARGO_PKG_VERSION");
        Self { schema: SCHEMA_VERSION, version, command, kernel, unit, published, rows }
    }

    /// Writes the report in the form asked for.
    pub(super) fn write(&self, form: Form, console: &mut Console) -> Result<()> {
        let text = match form {
            Form::Text => self.text(),
            Form::Csv => self.csv(),
            Form::Json => {
                let mut text = serde_json::to_string_pretty(self).context("writing JSON")?;
                text.push('\n');
                text
            }
        };
        console.deliver(text.as_bytes(), None)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let reference = self.rows.first().map_or("", |row| row.subject.as_str());
        let n = self.rows.first().map_or(0, |row| row.ns.n);
        let _ = writeln!(
            text,
            "kernel {}; {}; {n} interleaved rounds: median [smallest .. largest]\n",
            self.kernel, self.unit
        );
        let mut last = "";
        for row in &self.rows {
            if row.operation != last {
                let _ = writeln!(text, "{}", row.operation);
                last = &row.operation;
            }
            let ratio = row.ratio.map(|ratio| format!("  {}x of {reference}", ratio.text()));
            let line = format!(
                "  {:>6}  {:24} {:>32}{}",
                row.size,
                row.subject,
                row.ns.text(),
                ratio.unwrap_or_default()
            );
            let _ = writeln!(text, "{line}");
        }
        for published in self.published {
            let _ = writeln!(text, "\npublished: {published}");
        }
        text
    }

    fn csv(&self) -> String {
        let mut text =
            "operation,size,subject,ns,ns_min,ns_max,n,ratio,ratio_min,ratio_max\n".to_owned();
        for row in &self.rows {
            let Value { median, min, max, n } = row.ns;
            let ratio = row.ratio.map_or_else(
                || ",,".to_owned(),
                |ratio| format!("{},{},{}", ratio.median, ratio.min, ratio.max),
            );
            let _ = writeln!(
                text,
                "{},{},{},{median},{min},{max},{n},{ratio}",
                row.operation, row.size, row.subject
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_subject_is_the_reference_within_each_round() {
        let series = |rounds: &[f64]| Series { rounds_ns: rounds.to_vec() };
        let subjects = [
            ("kernel".to_owned(), series(&[10.0, 20.0])),
            ("6.18".to_owned(), series(&[5.0, 5.0])),
        ];
        let rows = rows("fork", "64K", 5.0, &subjects);
        assert!(rows[0].ratio.is_none());
        assert_eq!(rows[0].ns.text(), "3.00 [2.00 .. 4.00]");
        assert_eq!(rows[1].ratio.unwrap().text(), "0.38 [0.25 .. 0.50]");
    }
}
