//! The result of `crosscheck run`: one row per program; JSON.

use std::path::Path;

use serde::Serialize;

use super::head::Head;

use crate::crosscheck::run::generate::Feature;
use crate::crosscheck::run::{NotComparable, Row, RowState, Verdict};

const SCHEMA_VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    #[default]
    Equal,
    Different,
    /// It could not be recorded, predicted or compared.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NumberState {
    Equal,
    Different,
    NotCompared,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct NumberRow {
    pub(super) name: String,
    pub(super) predicted: u64,
    /// Lowest and highest of the plain runs.
    pub(super) real: [u64; 2],
    pub(super) state: NumberState,
    pub(super) reason: Option<NotComparable>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct RunRow {
    pub(super) name: String,
    /// The feature of a random script.
    pub feature: Option<Feature>,
    pub(super) filesystem: String,
    pub(super) window_kb: u64,
    pub(super) settings: String,
    pub(super) cache: &'static str,
    pub(super) limit_bytes: Option<u64>,
    pub(super) rules: String,
    pub outcome: RunOutcome,
    pub(super) reason: Option<String>,
    /// Why the suite expects a difference.
    pub known: Option<String>,
    pub(super) script: Option<String>,
    /// The shortest script that still differs.
    pub(super) reduced: Option<String>,
    /// Differences first.
    pub(super) numbers: Vec<NumberRow>,
    pub(super) warnings: Vec<String>,
}

impl RunRow {
    pub(super) fn failed(mut self, reason: String) -> Self {
        self.outcome = RunOutcome::Failed;
        self.reason = Some(reason);
        self
    }

    pub(super) fn take(&mut self, verdict: &Verdict) {
        self.outcome = if verdict.is_equal() { RunOutcome::Equal } else { RunOutcome::Different };
        self.numbers = verdict.ranked().into_iter().map(number).collect();
    }

    #[must_use]
    pub(super) fn nr(&self, state: NumberState) -> usize {
        self.numbers.iter().filter(|number| number.state == state).count()
    }

    /// Whether the suite expects this outcome.
    #[must_use]
    pub fn is_expected(&self) -> bool {
        match self.outcome {
            RunOutcome::Equal => self.known.is_none(),
            RunOutcome::Different => self.known.is_some(),
            RunOutcome::Failed => false,
        }
    }
}

fn number(row: &Row) -> NumberRow {
    let (state, reason) = match row.state {
        RowState::Equal => (NumberState::Equal, None),
        RowState::Different => (NumberState::Different, None),
        RowState::NotCompared(reason) => (NumberState::NotCompared, Some(reason)),
    };
    let Row { predicted, real, .. } = *row;
    NumberRow { name: row.measure.to_string(), predicted, real, state, reason }
}

#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    #[serde(flatten)]
    pub(super) head: Head,
    /// Ctrl-C ended the check before the last program.
    pub is_interrupted: bool,
    pub rows: Vec<RunRow>,
}

impl RunResult {
    #[must_use]
    pub fn new(kernel: &str, command_line: Vec<String>) -> Self {
        Self {
            head: Head::new(SCHEMA_VERSION, kernel, command_line),
            is_interrupted: false,
            rows: Vec::new(),
        }
    }

    pub fn keep_in(&mut self, keep: Option<&Path>) {
        self.head.keep_in(keep);
    }

    #[must_use]
    pub fn nr(&self, outcome: RunOutcome) -> usize {
        self.rows.iter().filter(|row| row.outcome == outcome).count()
    }
}
