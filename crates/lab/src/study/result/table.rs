//! Findings, and how many of their rows count and match; JSON and CSV.

use crate::study::{self, Closeness, Derivation, Finding, RowFinding, Score};
use largefolio_results::ExportError;
use largefolio_results::cells::Cells;
use serde::Serialize;

use super::record::Record;
use super::{curve, frontier, text};
use largefolio_results::{Remark, running};

const SCHEMA_VERSION: u32 = 3;

#[derive(Serialize)]
pub struct StudyResult {
    schema_version: u32,
    tool_version: &'static str,
    pub(super) command_line: Vec<String>,
    pub(super) kernel: String,
    pub(super) summary: Vec<StudyCounts>,
    pub(super) studies: Vec<Finding>,
}

#[derive(Serialize)]
pub(super) struct StudyCounts {
    pub(super) study: String,
    pub(super) nr_rows: usize,
    /// Rows that can confirm or refute the model: the sum of the next three.
    pub(super) nr_independent: usize,
    /// Level and change match the published ones.
    pub(super) nr_match: usize,
    /// Both match, but the estimate rests on assumed constants.
    pub(super) nr_coincidence: usize,
    /// Level or change differs.
    pub(super) nr_miss: usize,
    /// Both sides are 0, before and after.
    pub(super) nr_zero: usize,
    /// Our quantity differs from the published one.
    pub(super) nr_other_quantity: usize,
    /// One of our inputs is the published number itself.
    pub(super) nr_own_input: usize,
    /// One side has no number.
    pub(super) nr_not_compared: usize,
}

impl StudyCounts {
    fn of(finding: &Finding) -> Self {
        let rows = || finding.tables.iter().flat_map(|table| &table.rows);
        let nr = |score| rows().filter(|row| row.score == Some(score)).count();
        Self {
            study: finding.study.clone(),
            nr_rows: rows().count(),
            nr_independent: rows()
                .filter(|row| row.score.is_some_and(Score::is_independent))
                .count(),
            nr_match: nr(Score::Match),
            nr_coincidence: nr(Score::Coincidence),
            nr_miss: nr(Score::Miss),
            nr_zero: nr(Score::Zero),
            nr_other_quantity: nr(Score::OtherQuantity),
            nr_own_input: nr(Score::OwnInput),
            nr_not_compared: rows().filter(|row| row.score.is_none()).count(),
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

    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = |finding: &Finding| {
            let mut rows = finding.tables.iter().flat_map(|table| &table.rows);
            let has_more = !finding.curves.is_empty() || !finding.frontiers.is_empty();
            rows.all(|row| row.ours.is_none()) && !has_more
        };
        self.studies.iter().all(is_empty)
    }

    /// Returns rows that deviate from their known result, which happens only after a change.
    #[must_use]
    pub fn surprises(&self) -> Vec<Remark> {
        let of_study = |finding: &Finding| {
            let study = finding.study.clone();
            let describe = |(table, row): (&study::TableFinding, &RowFinding)| {
                let known = row.disagrees.as_ref().map_or("should agree", |_| "should disagree");
                let what = format!("{study}: {}: {}: {known}, but does not", table.title, row.what);
                Remark::Warning(what)
            };
            finding.surprises().map(describe).collect::<Vec<_>>()
        };
        self.studies.iter().flat_map(of_study).collect()
    }
}

pub(super) fn csv(findings: &[Finding]) -> Result<String, ExportError> {
    let mut csv = Cells::text();
    csv.record(Record::HEADS)?;
    for finding in findings {
        for table in &finding.tables {
            for row in &table.rows {
                csv.record(record(&finding.study, &table.title, row).cells())?;
            }
        }
        for frontier_finding in &finding.frontiers {
            frontier::add_csv(&mut csv, &finding.study, frontier_finding)?;
        }
        for curve in &finding.curves {
            curve::add_csv(&mut csv, &finding.study, curve)?;
        }
    }
    csv.into_text()
}

fn record(study: &str, table: &str, row: &RowFinding) -> Record {
    let number = |number: Option<f64>| number.map(|n| n.to_string()).unwrap_or_default();
    let pair = |pair: Option<study::ValuePair>| {
        let pair = pair.unwrap_or_default();
        [pair.before, pair.after, pair.change].map(number)
    };
    let label = |closeness: Option<Closeness>| {
        closeness.map(|closeness| closeness.label().to_lowercase()).unwrap_or_default()
    };
    Record {
        study: study.to_owned(),
        table: table.to_owned(),
        what: row.what.clone(),
        published: pair(row.published),
        unit: row.unit.clone(),
        ours: pair(row.ours),
        ours_unit: row.ours_unit.clone(),
        in_kernel: row.in_kernel.as_ref().map_or_else(Default::default, |counts| {
            [Some(counts.before), Some(counts.after), counts.change()].map(number)
        }),
        in_kernel_unit: row
            .in_kernel
            .as_ref()
            .map(|counts| counts.unit.clone())
            .unwrap_or_default(),
        measure: if row.measure == study::Change::Points { "points" } else { "percent" },
        distance: number(row.distance),
        closeness: label(row.closeness),
        level: label(row.level),
        score: row.score.map_or("", Score::label),
        basis: text::basis(row),
        inputs_of_series: row.inputs_of_series.clone().unwrap_or_default(),
        other_quantity: row.other_quantity.clone().unwrap_or_default(),
        how: row.how.word(),
        of: match &row.how {
            Derivation::Counted { of } | Derivation::Estimated { of, .. } => of.clone(),
            Derivation::Measured(measured) => format!("{}, {}", measured.cpu, measured.kernel),
            Derivation::Quoted(quoted) => {
                format!("{}, {}, n = {}", quoted.cpu, quoted.kernel, quoted.n)
            }
            Derivation::None { why } => why.clone(),
        },
        note: row.disagrees.clone().or_else(|| row.reason.clone()).unwrap_or_default(),
    }
}
