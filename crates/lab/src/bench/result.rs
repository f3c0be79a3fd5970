//! Measured values as a table, JSON or CSV.

use std::fmt::Write as _;

use largefolio_linux::measure::{Series, Spread};
use largefolio_linux::proc;
use largefolio_linux::system::Live;
use largefolio_results::ExportError;
use largefolio_results::cells::Cells;
use serde::Serialize;

use largefolio_results::{Forms, running};

const SCHEMA_VERSION: u32 = 2;

#[derive(Debug, Serialize)]
pub struct BenchRow {
    pub operation: String,
    pub size: String,
    pub subject: String,
    pub unit: &'static str,
    pub value: Spread,
    /// The value relative to the reference, within a round.
    pub ratio: Option<Spread>,
    /// The reference: the first subject of the same operation and size.
    pub ratio_to: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// Nanoseconds per part, for this many parts.
    NsEach(f64, &'static str),
    /// 10^9 bytes per second, for this many bytes.
    GbPerS(f64),
}

impl Scale {
    const fn unit(self) -> &'static str {
        match self {
            Self::NsEach(_, unit) => unit,
            Self::GbPerS(_) => "GB/s",
        }
    }

    fn value(self, series: &Series) -> Option<Spread> {
        let of = |ns: &f64| match self {
            Self::NsEach(parts, _) => ns / parts,
            // A time below the clock's resolution would be an infinite speed.
            Self::GbPerS(bytes) => bytes / ns.max(1.0),
        };
        let values: Vec<f64> = series.rounds_ns.iter().map(of).collect();
        Spread::of(&values)
    }

    /// The ratio of the values, not of the times: if the value is a speed, above 1 is faster.
    fn ratio(self, series: &Series, reference: &Series) -> Option<Spread> {
        match self {
            Self::NsEach(..) => series.ratio(reference),
            Self::GbPerS(_) => reference.ratio(series),
        }
    }
}

/// `2.10 [1.90 .. 2.31]`.
fn show_spread(spread: Spread) -> String {
    let number = |value: f64| match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let Spread { median, min, max, .. } = spread;
    format!("{} [{} .. {}]", number(median), number(min), number(max))
}

#[must_use]
pub fn rows(
    operation: &str,
    size: &str,
    scale: Scale,
    subjects: &[(String, Series)],
) -> Vec<BenchRow> {
    let of = |(name, series): &(String, Series)| {
        let reference = subjects.first().filter(|(first, _)| first != name);
        Some(BenchRow {
            operation: operation.to_owned(),
            size: size.to_owned(),
            subject: name.clone(),
            unit: scale.unit(),
            value: scale.value(series)?,
            ratio: reference.and_then(|(_, first)| scale.ratio(series, first)),
            ratio_to: reference.map(|(first, _)| first.clone()),
        })
    };
    subjects.iter().filter_map(of).collect()
}

/// `64K`, `2M`.
#[must_use]
pub fn short(bytes: u64) -> String {
    match bytes {
        large if large >= 1 << 30 => format!("{}G", large >> 30),
        middle if middle >= 1 << 20 => format!("{}M", middle >> 20),
        small => format!("{}K", small >> 10),
    }
}

#[derive(Debug, Serialize)]
pub struct BenchResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    /// Load average over the last minute when the report was made.
    load: String,
    published: &'static [&'static str],
    notes: Vec<String>,
    rows: Vec<BenchRow>,
}

impl BenchResult {
    #[must_use]
    pub fn new(
        command: Vec<String>,
        published: &'static [&'static str],
        rows: Vec<BenchRow>,
    ) -> Self {
        let kernel = running::release();
        let load = proc::load(&Live);
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line: command,
            kernel,
            load,
            published,
            notes: Vec::new(),
            rows,
        }
    }

    #[must_use]
    pub fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }
}

impl Forms for BenchResult {
    fn text(&self) -> String {
        let mut text = String::new();
        let n = self.rows.first().map_or(0, |row| row.value.n);
        let _ = writeln!(
            text,
            "kernel {}; load {}; {n} interleaved rounds: median [smallest .. largest]\n",
            self.kernel, self.load
        );
        let width = self.rows.iter().map(|row| row.subject.len()).max().unwrap_or(0);
        let mut last = "";
        for row in &self.rows {
            if row.operation != last {
                let _ = writeln!(text, "{}, {}", row.operation, row.unit);
                last = &row.operation;
            }
            let (size, subject, value) = (&row.size, &row.subject, show_spread(row.value));
            let ratio = row.ratio.zip(row.ratio_to.as_ref());
            let ratio = ratio.map(|(ratio, to)| format!("  {}x of {to}", show_spread(ratio)));
            let ratio = ratio.unwrap_or_default();
            let own = row.value.n;
            let own = if own == n { String::new() } else { format!("  (n = {own})") };
            let _ = writeln!(text, "  {size:>6}  {subject:width$} {value:>26}{ratio}{own}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        for published in self.published {
            let _ = writeln!(text, "\npublished: {published}");
        }
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut cells = Cells::text();
        cells.record([
            "operation",
            "size",
            "subject",
            "unit",
            "value",
            "min",
            "max",
            "n",
            "ratio",
            "ratio_min",
            "ratio_max",
            "ratio_to",
        ])?;
        for row in &self.rows {
            let of =
                |spread: Spread| [spread.median, spread.min, spread.max].map(|v| v.to_string());
            let ratio = row.ratio.map_or_else(|| [const { String::new() }; 3], of);
            let texts = [&row.operation, &row.size, &row.subject, row.unit].map(str::to_owned);
            let n = row.value.n.to_string();
            let to = row.ratio_to.clone().unwrap_or_default();
            let numbers = of(row.value).into_iter().chain([n]).chain(ratio);
            cells.record(texts.into_iter().chain(numbers).chain([to]))?;
        }
        cells.into_text()
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
        let rows = rows("fork", "64K", Scale::NsEach(5.0, "ns"), &subjects);
        assert!(rows[0].ratio.is_none());
        assert_eq!(show_spread(rows[0].value), "3.00 [2.00 .. 4.00]");
        assert_eq!(show_spread(rows[1].ratio.unwrap()), "0.38 [0.25 .. 0.50]");
        assert_eq!(rows[1].ratio_to.as_deref(), Some("kernel"));
    }

    #[test]
    fn a_speed_is_bytes_over_time_and_its_ratio_above_one_is_faster() {
        let series = |rounds: &[f64]| Series { rounds_ns: rounds.to_vec() };
        let subjects = [
            ("before".to_owned(), series(&[100.0, 200.0])),
            ("after".to_owned(), series(&[50.0, 50.0])),
        ];
        let rows = rows("clear, cold", "4K", Scale::GbPerS(1000.0), &subjects);
        assert_eq!(show_spread(rows[0].value), "7.50 [5.00 .. 10.0]");
        assert_eq!(show_spread(rows[1].value), "20.0 [20.0 .. 20.0]");
        assert_eq!(show_spread(rows[1].ratio.unwrap()), "3.00 [2.00 .. 4.00]");
        let report =
            BenchResult::new(Vec::new(), &["that"], rows).with_notes(vec!["this".to_owned()]);
        let text = report.text();
        assert!(text.contains("clear, cold, GB/s\n"), "{text}");
        assert!(text.contains("3.00 [2.00 .. 4.00]x of before\n"), "{text}");
        assert!(text.ends_with("\nnote: this\n\npublished: that\n"), "{text}");
        let csv = report.csv().unwrap();
        assert!(csv.contains("\"clear, cold\",4K,after,GB/s,20,20,20,2,3,2,4,before\n"), "{csv}");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!([4 << 10, 64 << 10, 2 << 20, 1 << 30].map(short), ["4K", "64K", "2M", "1G"]);
    }
}
