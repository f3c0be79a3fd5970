//! Kernels over many programs, as text and as CSV rows.

use std::fmt::Write as _;

use crate::study::{ChangeFinding, FrontierCount, FrontierFinding, FrontierLine};
use largefolio_results::ExportError;
use largefolio_results::cells::Cells;

use super::columns::{columns, signed, wrapped};
use super::record::Record;

pub(super) fn add(text: &mut String, frontier: &FrontierFinding) {
    let _ = writeln!(text, "\n  {}", frontier.title);
    wrapped(text, "    ", &basis(frontier));
    for sentence in verdict(frontier) {
        wrapped(text, "    ", &sentence);
    }
    text.push('\n');
    let others = frontier.lines.get(1..).unwrap_or_default();
    let mut lines = vec![vec!["program".to_owned()]];
    lines[0].extend(others.iter().map(|line| line.name.clone()));
    for (nr, program) in frontier.programs.iter().enumerate() {
        let mut shown = vec![program.clone()];
        shown.extend(others.iter().map(|line| changes(line, Some(nr))));
        lines.push(shown);
    }
    let mut means = vec!["mean".to_owned()];
    means.extend(others.iter().map(|line| changes(line, None)));
    lines.push(means);
    columns(text, "     ", &lines);
}

pub(super) fn basis(frontier: &FrontierFinding) -> String {
    let counts: Vec<String> = frontier.counts.iter().map(describe_count).collect();
    let first = frontier.lines.first().map_or("the first line", |line| line.name.as_str());
    let missing: Vec<&str> = frontier.missing.iter().map(String::as_str).collect();
    let missing = match missing.as_slice() {
        [] => String::new(),
        missing => format!("; not included in the means: {}", missing.join(", ")),
    };
    format!("{}; change against {first} in percent: {}{missing}", frontier.of, counts.join(" / "))
}

/// `Time (estimated; assumed: costs.walk)`.
fn describe_count(count: &FrontierCount) -> String {
    let assumed: Vec<&str> = count.assumed.iter().map(String::as_str).collect();
    let what = lower(&count.what);
    match (count.is_estimate, assumed.as_slice()) {
        (false, _) => format!("{what} (counted)"),
        (true, []) => format!("{what} (estimated)"),
        (true, assumed) => format!("{what} (estimated; assumed: {})", assumed.join(", ")),
    }
}

/// Names, for each cost, the lines on the frontier, and the lines that lose in some programs.
pub(super) fn verdict(frontier: &FrontierFinding) -> Vec<String> {
    let Some((gain, paid)) = frontier.counts.split_first() else { return Vec::new() };
    let on_frontier = |(nr, count): (usize, &FrontierCount)| {
        let lines = frontier.lines.iter().filter(|line| line.is_on_frontier[nr]);
        let names: Vec<&str> = lines.map(|line| line.name.as_str()).collect();
        let (gain, paid) = (lower(&gain.what), lower(&count.what));
        format!("on the frontier of {gain} and {paid}: {}", names.join(", "))
    };
    if frontier.lines.iter().all(|line| line.changes[0].mean_percent.is_none()) {
        return vec!["no program has all of these numbers".to_owned()];
    }
    let nr_programs = frontier.programs.len();
    let loses = |line: &FrontierLine| {
        let what = lower(&gain.what);
        match line.losers.len() {
            0 => format!("{} loses {what} in no program", line.name),
            nr => {
                let names = line.losers.join(", ");
                format!("{} loses {what} in {nr} of {nr_programs}: {names}", line.name)
            }
        }
    };
    paid.iter()
        .enumerate()
        .map(on_frontier)
        .chain(frontier.lines.iter().skip(1).map(loses))
        .collect()
}

/// Lowercases the first letter for use inside a sentence, except in abbreviations.
pub(super) fn lower(what: &str) -> String {
    let mut letters = what.chars();
    match letters.next() {
        Some(first) if !letters.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => what.to_owned(),
    }
}

/// `-11.0 / +3.9 / +8.8`: of a program, or of the mean.
pub(super) fn changes(line: &FrontierLine, program: Option<usize>) -> String {
    let of_count = |change: &ChangeFinding| {
        let percent = match program {
            Some(nr) => change.percent.get(nr).copied().flatten(),
            None => change.mean_percent,
        };
        percent.map_or_else(|| "-".to_owned(), signed)
    };
    line.changes.iter().map(of_count).collect::<Vec<_>>().join(" / ")
}

pub(super) fn add_csv(
    csv: &mut Cells,
    study: &str,
    frontier: &FrontierFinding,
) -> Result<(), ExportError> {
    let Some((first, others)) = frontier.lines.split_first() else { return Ok(()) };
    let number = |number: Option<f64>| number.map(|n| n.to_string()).unwrap_or_default();
    for line in others {
        for (nr, count) in frontier.counts.iter().enumerate() {
            for (program_nr, program) in frontier.programs.iter().enumerate() {
                let ours = [
                    first.changes[nr].values[program_nr],
                    line.changes[nr].values[program_nr],
                    line.changes[nr].percent[program_nr],
                ];
                let record = Record {
                    study: study.to_owned(),
                    table: frontier.title.clone(),
                    what: format!("{program}, {}, {}", count.what, line.name),
                    ours: ours.map(number),
                    ours_unit: count.unit.clone(),
                    measure: "percent",
                    how: if count.is_estimate { "estimated" } else { "counted" }.to_owned(),
                    of: format!("{program}, {} -> {}, {}", first.kernel, line.kernel, frontier.of),
                    ..Record::default()
                };
                csv.record(record.cells())?;
            }
        }
    }
    Ok(())
}
