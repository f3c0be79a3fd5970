//! `crosscheck run` as text: the verdict, a table by setting and filesystem, and each difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use largefolio_results::cells::Cells;
use largefolio_results::{ExportError, Forms, figures};

use crate::crosscheck::run::NotComparable;
use crate::crosscheck::run::generate::Feature;

use super::run_rows::{NumberRow, NumberState, RunOutcome, RunResult, RunRow};

/// Numbers printed per differing program of several.
const NR_EACH: usize = 4;

impl Forms for RunResult {
    fn text(&self) -> String {
        let mut text = verdict(self) + "\n";
        if let [row] = self.rows.as_slice() {
            one(&mut text, row);
        } else {
            by_feature(&mut text, self);
            table(&mut text, self);
            let is_shown = |row: &&RunRow| row.outcome != RunOutcome::Equal || !row.is_expected();
            for row in self.rows.iter().filter(is_shown) {
                short(&mut text, row);
            }
        }
        if let Some(kept) = &self.head.kept {
            let _ = writeln!(text, "\ntraces and scripts are in {kept}");
        }
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut writer = Cells::text();
        writer.record([
            "name",
            "feature",
            "filesystem",
            "window_kb",
            "settings",
            "cache",
            "outcome",
            "number",
            "predicted",
            "real_min",
            "real_max",
            "state",
        ])?;
        for row in &self.rows {
            for number in &row.numbers {
                writer.record([
                    row.name.as_str(),
                    row.feature.map_or("", Feature::name),
                    row.filesystem.as_str(),
                    row.window_kb.to_string().as_str(),
                    row.settings.as_str(),
                    row.cache,
                    word(row.outcome),
                    number.name.as_str(),
                    number.predicted.to_string().as_str(),
                    number.real[0].to_string().as_str(),
                    number.real[1].to_string().as_str(),
                    state(number.state),
                ])?;
            }
        }
        writer.into_text()
    }
}

const fn word(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Equal => "equal",
        RunOutcome::Different => "different",
        RunOutcome::Failed => "failed",
    }
}

const fn state(state: NumberState) -> &'static str {
    match state {
        NumberState::Equal => "equal",
        NumberState::Different => "different",
        NumberState::NotCompared => "not compared",
    }
}

fn verdict(result: &RunResult) -> String {
    let interrupted = if result.is_interrupted { " (interrupted)" } else { "" };
    if let [row] = result.rows.as_slice() {
        let (different, equal) = (row.nr(NumberState::Different), row.nr(NumberState::Equal));
        return match row.outcome {
            RunOutcome::Equal => {
                format!("prediction and plain run agree in all {equal} numbers{}", varying(row))
            }
            RunOutcome::Different => format!(
                "prediction and plain run differ in {different} of {} numbers{}",
                different + equal,
                varying(row)
            ),
            RunOutcome::Failed => {
                format!("not compared: {}", row.reason.as_deref().unwrap_or_default())
            }
        } + interrupted;
    }
    let nr = |outcome| result.nr(outcome);
    let compared = nr(RunOutcome::Equal) + nr(RunOutcome::Different);
    format!(
        "{} of {} equal, {} not compared{interrupted}",
        nr(RunOutcome::Equal),
        figures::counted(compared as u64, "program"),
        nr(RunOutcome::Failed)
    )
}

/// The numbers that vary, which no single prediction can equal.
fn varying(row: &RunRow) -> String {
    let varying = || row.numbers.iter().filter(|one| one.reason == Some(NotComparable::Varies));
    let is_inside = |one: &&NumberRow| (one.real[0]..=one.real[1]).contains(&one.predicted);
    match varying().count() {
        0 => String::new(),
        nr => {
            let nr_inside = varying().filter(is_inside).count();
            format!("; {nr_inside} of {nr} that vary between plain runs are within their range")
        }
    }
}

fn one(text: &mut String, row: &RunRow) {
    let _ = writeln!(
        text,
        "\n{}, {} K, {}, {} cache; rules {}\n",
        row.filesystem,
        row.window_kb,
        settings(row),
        row.cache,
        row.rules
    );
    let width = row.numbers.iter().map(|number| number.name.chars().count()).max().unwrap_or(0);
    let _ = writeln!(text, "  {:width$}  {:>13}  {:>13}", "number", "predicted", "real");
    for number in &row.numbers {
        line(text, number, width);
    }
    for warning in &row.warnings {
        let _ = writeln!(text, "recording: {warning}");
    }
}

fn line(text: &mut String, number: &NumberRow, width: usize) {
    let mark = if number.state == NumberState::Different { '*' } else { ' ' };
    let note = number.reason.map_or_else(String::new, |reason| format!("  {reason}"));
    let _ = writeln!(
        text,
        "{mark} {:width$}  {:>13}  {:>13}{note}",
        number.name,
        figures::count(number.predicted),
        real(number)
    );
}

fn real(number: &NumberRow) -> String {
    match number.real {
        [lowest, highest] if lowest == highest => figures::count(lowest),
        [lowest, highest] => format!("{}..{}", figures::count(lowest), figures::count(highest)),
    }
}

fn settings(row: &RunRow) -> &str {
    if row.settings.is_empty() { "settings as they are" } else { &row.settings }
}

/// A table that the documentation can include.
fn by_feature(text: &mut String, result: &RunResult) {
    let mut groups: BTreeMap<Feature, [usize; 3]> = BTreeMap::new();
    for row in &result.rows {
        let Some(feature) = row.feature else { continue };
        groups.entry(feature).or_default()[row.outcome as usize] += 1;
    }
    if groups.is_empty() {
        return;
    }
    text.push_str("\n| feature | equal | of | equal, % | not compared |\n|---|---|---|---|---|\n");
    for (feature, [equal, different, failed]) in groups {
        let of = equal + different;
        let permille = (equal * 1000).checked_div(of).unwrap_or(0);
        let (whole, tenth) = (permille / 10, permille % 10);
        let _ = writeln!(text, "| {feature} | {equal} | {of} | {whole}.{tenth} | {failed} |");
    }
}

fn table(text: &mut String, result: &RunResult) {
    let mut groups: BTreeMap<[&str; 3], [usize; 3]> = BTreeMap::new();
    for row in &result.rows {
        let counts = groups.entry([settings(row), &row.filesystem, row.cache]).or_default();
        counts[row.outcome as usize] += 1;
    }
    let width = groups.keys().map(|key| key[0].len()).max().unwrap_or(0).max(8);
    let _ = writeln!(text, "\n{:width$}  filesystem    cache  equal  of  not compared", "settings");
    for ([settings, filesystem, cache], [equal, different, failed]) in groups {
        let of = equal + different;
        let _ = writeln!(
            text,
            "{settings:width$}  {filesystem:12}  {cache:5}  {equal:>5}  {of:>2}  {failed:>12}"
        );
    }
}

fn short(text: &mut String, row: &RunRow) {
    let _ = writeln!(
        text,
        "\n{} ({}, {} K, {}, {})",
        row.name,
        row.filesystem,
        row.window_kb,
        settings(row),
        row.cache
    );
    if let Some(known) = &row.known {
        let is_equal = row.outcome == RunOutcome::Equal;
        let word = if is_equal { "equal, but marked as different" } else { "known" };
        let _ = writeln!(text, "  {word}: {known}");
    }
    if let Some(reason) = &row.reason {
        let _ = writeln!(text, "  {reason}");
    }
    let differing = row.numbers.iter().filter(|number| number.state == NumberState::Different);
    for number in differing.take(NR_EACH) {
        let predicted = figures::count(number.predicted);
        let _ = writeln!(text, "  {}: predicted {predicted}, real {}", number.name, real(number));
    }
    if let Some(script) = row.reduced.as_ref().or(row.script.as_ref()) {
        let _ = writeln!(text, "  {script}");
    }
}
