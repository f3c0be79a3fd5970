//! The result of a check as text: whether kernel and model agree, a table, what was compared and
//! omitted, and each difference with both sides.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::crosscheck::Aspect;
use largefolio_linux::shell::as_root;
use largefolio_results::figures;

use super::labels::{label_of, outcome};
use super::rows::{CrosscheckOutcome as Outcome, CrosscheckResult, CrosscheckRow as Row};

/// Maximum number of recordings whose differences are printed; the rest is counted.
const NR_SHOWN: usize = 12;
/// Maximum number of differences printed per recording: the first one shows where they begin.
const NR_EACH: usize = 3;

pub(super) fn of(report: &CrosscheckResult) -> String {
    let mut text = String::new();
    line(&mut text, &verdict(report));
    line(&mut text, "");
    if !report.head.kernel.is_empty() {
        let rules = report.rows.iter().find(|row| !row.rules.is_empty());
        let rules = rules.map_or("-", |row| row.rules.as_str());
        line(&mut text, &format!("kernel {}, rules {rules}", report.head.kernel));
        line(&mut text, "");
    }
    table(&mut text, report);
    compared(&mut text, report);
    notes(&mut text, report);
    differences(&mut text, report);
    if let Some(kept) = &report.head.kept {
        line(&mut text, "");
        line(&mut text, &format!("recordings are in {kept}"));
    }
    text
}

fn line(text: &mut String, line: &str) {
    let _ = writeln!(text, "{}", line.trim_end());
}

fn table(text: &mut String, report: &CrosscheckResult) {
    const OUTCOMES: [Outcome; 4] =
        [Outcome::Equal, Outcome::Different, Outcome::Skipped, Outcome::Failed];
    let mut groups: BTreeMap<(&str, u64), [usize; 4]> = BTreeMap::new();
    for row in &report.rows {
        let key = if report.head.kernel.is_empty() {
            (row.variant.as_str(), 0)
        } else {
            (row.filesystem.as_str(), row.window_kb)
        };
        let counts = groups.entry(key).or_default();
        for (count, outcome) in counts.iter_mut().zip(OUTCOMES) {
            *count += usize::from(row.outcome == outcome);
        }
    }
    let label = |(name, window_kb): (&str, u64)| {
        if report.head.kernel.is_empty() {
            name.to_owned()
        } else {
            format!("{name:13} {window_kb:>6}K")
        }
    };
    let head = if report.head.kernel.is_empty() { "kernel" } else { "filesystem     window" };
    let width = groups.keys().map(|&key| label(key).len()).max().unwrap_or(0).max(head.len());
    line(text, &format!("{head:width$}  recorded  equal  different  skipped  failed"));
    for (&key, &[equal, different, skipped, failed]) in &groups {
        let recorded = equal + different;
        line(
            text,
            &format!(
                "{:width$}  {recorded:>8}  {equal:>5}  {different:>9}  {skipped:>7}  {failed:>6}",
                label(key)
            ),
        );
    }
}

fn compared(text: &mut String, report: &CrosscheckResult) {
    let mut all: BTreeMap<Aspect, u64> = BTreeMap::new();
    for row in &report.rows {
        for (&aspect, nr) in &row.compared {
            *all.entry(aspect).or_default() += nr;
        }
    }
    let items = all.iter().filter(|(_, nr)| **nr > 0);
    let items: Vec<String> = items
        .map(|(&aspect, &nr)| format!("{} {}", figures::count(nr), label_of(aspect)))
        .collect();
    if !items.is_empty() {
        line(text, "");
        line(text, &format!("compared: {}", items.join(", ")));
    }
}

fn notes(text: &mut String, report: &CrosscheckResult) {
    let mut reasons: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in &report.rows {
        if let Some(reason) = &row.reason {
            reasons.entry((outcome(row.outcome), reason)).or_default().push(row);
        }
    }
    for ((word, reason), rows) in reasons {
        let first = &rows[0].name;
        line(text, &format!("{} {word}: {reason} ({first}{})", rows.len(), more(rows.len())));
    }
    for row in &report.rows {
        for (why, not_compared) in &row.not_compared {
            let (calls, files) = (not_compared.nr_calls, not_compared.files.len());
            let (calls, files) =
                (figures::counted(calls, "time"), figures::counted(files as u64, "file"));
            let name = &row.name;
            line(
                text,
                &format!(
                    "not comparable because of {why}, which occurred {calls}: {files} from that \
                     point on ({name})"
                ),
            );
        }
    }
    let nr_repeated = report.rows.iter().filter(|row| row.is_repeated).count();
    if nr_repeated > 0 {
        line(
            text,
            &format!(
                "{nr_repeated} recorded twice, because a pause was too short or they differed"
            ),
        );
    }
}

fn more(nr: usize) -> &'static str {
    if nr > 1 { ", .." } else { "" }
}

fn differences(text: &mut String, report: &CrosscheckResult) {
    let different: Vec<&Row> =
        report.rows.iter().filter(|row| row.outcome == Outcome::Different).collect();
    for row in different.iter().take(NR_SHOWN) {
        line(text, "");
        line(text, &row.name);
        for difference in row.differences.iter().take(NR_EACH) {
            difference.to_string().lines().for_each(|one| line(text, &format!("  {one}")));
        }
        if row.differences.len() > NR_EACH {
            line(text, &format!("  and {} more", row.differences.len() - NR_EACH));
        }
        if let Some(repeat) = &row.repeat {
            line(text, &format!("  {}", as_root(repeat)));
        }
    }
    if different.len() > NR_SHOWN {
        line(text, "");
        line(text, &format!("{} more differ; --json has all", different.len() - NR_SHOWN));
    }
}

fn verdict(report: &CrosscheckResult) -> String {
    let (equal, different) = (report.nr(Outcome::Equal), report.nr(Outcome::Different));
    let all = figures::counted((equal + different) as u64, "recording");
    match different {
        0 if equal > 0 => format!("kernel and model agree in all {all}"),
        0 => "nothing was recorded".to_owned(),
        _ => format!("kernel and model differ in {different} of {all}"),
    }
}
