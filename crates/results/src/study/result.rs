//! Findings with what is needed to understand them: how many rows are how close; JSON and CSV.

use largefolio_report::ExportError;
use largefolio_report::cells::Cells;
use largefolio_sim::study::{self, Closeness, Finding, How, RowFinding};
use serde::Serialize;

use super::{curve, frontier};
use crate::{Remark, running};

/// Version of the JSON's layout.
const SCHEMA_VERSION: u32 = 2;

/// The result, with what is needed to understand it.
#[derive(Serialize)]
pub struct StudyResult {
    schema_version: u32,
    tool_version: &'static str,
    pub(super) command_line: Vec<String>,
    pub(super) kernel: String,
    /// Rows of each study.
    pub(super) summary: Vec<StudyCounts>,
    pub(super) studies: Vec<Finding>,
}

/// How many rows of a study are how close.
#[derive(Serialize)]
pub(super) struct StudyCounts {
    pub(super) study: String,
    pub(super) nr_rows: usize,
    pub(super) nr_within_10_percent: usize,
    pub(super) nr_within_factor_2: usize,
    pub(super) nr_same_direction: usize,
    /// Single numbers more than a factor of 2 apart.
    pub(super) nr_apart: usize,
    pub(super) nr_other_direction: usize,
    /// One side has no number.
    pub(super) nr_not_compared: usize,
    /// Of the first two, estimates that rest on assumed constants.
    pub(super) nr_coincidences: usize,
}

impl StudyCounts {
    fn of(finding: &Finding) -> Self {
        let rows = || finding.tables.iter().flat_map(|table| &table.rows);
        let nr = |found| rows().filter(|row| row.closeness == found).count();
        Self {
            study: finding.study.clone(),
            nr_rows: rows().count(),
            nr_within_10_percent: nr(Some(Closeness::Close)),
            nr_within_factor_2: nr(Some(Closeness::Factor)),
            nr_same_direction: nr(Some(Closeness::Direction)),
            nr_apart: nr(Some(Closeness::Apart)),
            nr_other_direction: nr(Some(Closeness::Other)),
            nr_not_compared: nr(None),
            nr_coincidences: rows().filter(|row| row.coincidence).count(),
        }
    }
}

impl StudyResult {
    pub(super) fn new(command: Vec<String>, studies: Vec<Finding>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line: command,
            kernel: running::release(),
            summary: studies.iter().map(StudyCounts::of).collect(),
            studies,
        }
    }

    /// Whether no row has a number of ours, and nothing else was drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = |finding: &Finding| {
            let mut rows = finding.tables.iter().flat_map(|table| &table.rows);
            let has_more = !finding.curves.is_empty() || !finding.frontiers.is_empty();
            rows.all(|row| row.ours.is_none()) && !has_more
        };
        self.studies.iter().all(is_empty)
    }

    /// Rows that do not go the way they are known to go: there are none of those unless something
    /// changed.
    #[must_use]
    pub fn surprises(&self) -> Vec<Remark> {
        let of_study = |finding: &Finding| {
            let study = finding.study.clone();
            let told = |(table, row): (&study::TableFinding, &RowFinding)| {
                let known = row.disagrees.as_ref().map_or("should agree", |_| "should disagree");
                let what = format!("{study}: {}: {}: {known}, does not", table.title, row.what);
                Remark::Warning(what)
            };
            finding.surprises().map(told).collect::<Vec<_>>()
        };
        self.studies.iter().flat_map(of_study).collect()
    }
}

/// One row per row of a table, per limit of a line, and per program of a frontier.
pub(super) fn csv(findings: &[Finding]) -> Result<String, ExportError> {
    let mut csv = Cells::text();
    csv.record([
        "study",
        "table",
        "what",
        "published_before",
        "published_after",
        "published_change",
        "unit",
        "ours_before",
        "ours_after",
        "ours_change",
        "ours_unit",
        "measure",
        "distance",
        "closeness",
        "coincidence",
        "how",
        "of",
        "note",
    ])?;
    for finding in findings {
        for table in &finding.tables {
            for row in &table.rows {
                csv.record(record(&finding.study, &table.title, row))?;
            }
        }
        for found in &finding.frontiers {
            frontier::add_csv(&mut csv, &finding.study, found)?;
        }
        for curve in &finding.curves {
            curve::add_csv(&mut csv, &finding.study, curve)?;
        }
    }
    csv.into_text()
}

fn record(study: &str, table: &str, row: &RowFinding) -> Vec<String> {
    let number = |number: Option<f64>| number.map(|n| n.to_string()).unwrap_or_default();
    let pair = |pair: Option<study::Pair>| {
        let pair = pair.unwrap_or_default();
        [pair.before, pair.after, pair.change].map(number)
    };
    let mut record = vec![study.to_owned(), table.to_owned(), row.what.clone()];
    record.extend(pair(row.published));
    record.push(row.unit.clone());
    record.extend(pair(row.ours));
    record.push(row.ours_unit.clone());
    record.push(if row.measure == study::Change::Points { "points" } else { "percent" }.to_owned());
    record.push(number(row.distance));
    record.push(row.closeness.map(|found| found.words().to_lowercase()).unwrap_or_default());
    record.push(row.coincidence.to_string());
    record.push(row.how.word());
    record.push(match &row.how {
        How::Counted { of } | How::Estimated { of, .. } => of.clone(),
        How::Measured(measured) => format!("{}, {}", measured.cpu, measured.kernel),
        How::Quoted(quoted) => format!("{}, {}, n = {}", quoted.cpu, quoted.kernel, quoted.n),
        How::None { why } => why.clone(),
    });
    record.push(row.disagrees.clone().or_else(|| row.reason.clone()).unwrap_or_default());
    record
}
