//! The result of a check: one row per recording; JSON.

use std::collections::{BTreeMap, BTreeSet};

use crate::crosscheck::record::{FreeMemory, SettingChange, Settings};
use crate::crosscheck::{Aspect, Difference, NotCompared, Verdict};
use serde::Serialize;

use super::head::Head;

use largefolio_results::Remark;

pub(super) const SCHEMA_VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrosscheckOutcome {
    #[default]
    Equal,
    Different,
    Skipped,
    Failed,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct CrosscheckRow {
    pub(super) name: String,
    pub(super) variant: String,
    pub(super) rules: String,
    pub(super) rules_note: Option<String>,
    pub(super) filesystem: String,
    pub(super) window_kb: u64,
    pub(super) outcome: CrosscheckOutcome,
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repeat: Option<String>,
    pub(super) is_repeated: bool,
    pub(super) nr_steps: usize,
    pub(super) nr_in_flight: u64,
    pub(super) nr_waits: u64,
    pub(super) compared: BTreeMap<Aspect, u64>,
    pub(super) not_compared: BTreeMap<String, NotCompared>,
    pub(super) differences: Vec<Difference>,
}

impl CrosscheckRow {
    pub(super) fn take(&mut self, verdict: Verdict) {
        self.outcome = if verdict.is_equal() {
            CrosscheckOutcome::Equal
        } else {
            CrosscheckOutcome::Different
        };
        let is_nothing = verdict.compared.values().all(|nr| *nr == 0);
        if verdict.is_equal() && is_nothing && !verdict.not_compared.is_empty() {
            self.outcome = CrosscheckOutcome::Skipped;
            self.reason = Some(
                "the program uses all its files in ways that no rule \
                                covers"
                    .to_owned(),
            );
        }
        self.rules = verdict.rules;
        self.rules_note = verdict.rules_note;
        self.nr_steps = verdict.nr_steps;
        self.nr_in_flight = verdict.nr_in_flight;
        self.nr_waits = verdict.nr_waits;
        self.compared = verdict.compared;
        self.not_compared = verdict.not_compared;
        self.differences = verdict.differences;
    }
}

impl CrosscheckRow {
    /// Voids a difference if another process has changed a setting since `before`.
    pub(super) fn unless_changed(&mut self, before: &Settings) {
        if self.outcome != CrosscheckOutcome::Different {
            return;
        }
        let changes = before.changes(&Settings::now());
        if let Some(reason) = not_judged(&changes) {
            self.outcome = CrosscheckOutcome::Failed;
            self.reason = Some(reason);
            self.differences.clear();
        }
    }
}

impl CrosscheckRow {
    /// Voids a difference if memory for large folios has been short since `before`.
    pub(super) fn unless_short(&mut self, before: &FreeMemory, page_bytes: u64) {
        if self.outcome != CrosscheckOutcome::Different {
            return;
        }
        if let Some(evidence) = before.shortage(&FreeMemory::now(page_bytes)) {
            self.outcome = CrosscheckOutcome::Failed;
            self.reason = Some(format!("not compared: {evidence}; free some memory and try again"));
            self.differences.clear();
        }
    }
}

fn not_judged(changes: &[SettingChange]) -> Option<String> {
    let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let all = changes.join(", ");
    (!changes.is_empty())
        .then(|| format!("another program changed a setting during the run ({all}): not compared"))
}

#[derive(Clone, Debug, Serialize)]
pub struct CrosscheckResult {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) rows: Vec<CrosscheckRow>,
}

impl CrosscheckResult {
    pub(super) fn new(kernel: &str, command_line: Vec<String>) -> Self {
        Self { head: Head::new(SCHEMA_VERSION, kernel, command_line), rows: Vec::new() }
    }

    #[must_use]
    pub fn nr(&self, outcome: CrosscheckOutcome) -> usize {
        self.rows.iter().filter(|row| row.outcome == outcome).count()
    }

    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        let notes: BTreeSet<_> =
            self.rows.iter().filter_map(|row| row.rules_note.as_ref()).collect();
        notes.into_iter().map(|note| Remark::Warning(note.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_setting_is_a_reason_not_to_judge() {
        let change = |setting: &str| SettingChange {
            setting: setting.to_owned(),
            from: "never".to_owned(),
            to: "always".to_owned(),
        };
        assert_eq!(not_judged(&[]), None);
        let reason = not_judged(&[change("shmem_enabled")]).unwrap();
        let expected = "another program changed a setting during the run (shmem_enabled changed \
                        from never to always): not compared";
        assert_eq!(reason, expected);
    }

    /// Two files were skipped and nothing else was compared: neither agreement nor difference.
    #[test]
    fn a_recording_of_which_nothing_can_be_compared_neither_agrees_nor_differs() {
        let mut row = CrosscheckRow::default();
        let not_compared = NotCompared { nr_calls: 3, files: [0, 1].into() };
        let not_compared = BTreeMap::from([("mlock".to_owned(), not_compared)]);
        row.take(Verdict { not_compared: not_compared.clone(), ..Verdict::default() });
        assert_eq!((row.outcome, row.reason.is_some()), (CrosscheckOutcome::Skipped, true));
        let compared = BTreeMap::from([(Aspect::Insertions, 7)]);
        row.take(Verdict { compared, not_compared, ..Verdict::default() });
        assert_eq!(row.outcome, CrosscheckOutcome::Equal);
    }
}
