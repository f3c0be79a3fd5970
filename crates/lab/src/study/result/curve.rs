//! Lines over limits, as text and as CSV rows.

use std::fmt::Write as _;

use crate::study::{CountFinding, CurveFinding, LimitFinding, LineFinding, Series};
use largefolio_results::ExportError;
use largefolio_results::cells::Cells;

use super::columns::{columns, number, wrapped};
use super::record::Record;

pub(super) fn add(text: &mut String, curve: &CurveFinding) {
    let _ = writeln!(text, "\n  {}", curve.title);
    wrapped(text, "    ", &basis(curve));
    for count in &curve.counts {
        let _ = writeln!(text, "\n    {}", head(count));
        wrapped(text, "      ", &verdict(curve, count));
        add_numbers(text, curve, count);
    }
}

/// Names what 100% refers to.
pub(super) fn basis(curve: &CurveFinding) -> String {
    match (&curve.missing, curve.peak_bytes) {
        (None, Some(bytes)) => {
            let first = curve.counts.first().and_then(|count| count.lines.first());
            let first = first.map_or("the first line", |line| line.name.as_str());
            let beside = curve.beside.as_ref().map(|beside| format!("; in brackets: {beside}"));
            format!(
                "{}; 100% = {}, the peak use without a limit ({first}){}",
                curve.of,
                mib(bytes),
                beside.unwrap_or_default()
            )
        }
        (missing, _) => format!("none: {}", missing.as_deref().unwrap_or("no memory was in use")),
    }
}

pub(super) fn head(count: &CountFinding) -> String {
    match count.unit.as_str() {
        "" => count.what.clone(),
        unit => format!("{}, {unit}", count.what),
    }
}

/// `worse than base pages: 64K at 10 to 50% (two lists: at no limit), ..`.
pub(super) fn verdict(curve: &CurveFinding, count: &CountFinding) -> String {
    let Some((first, others)) = count.lines.split_first() else { return String::new() };
    let of_line = |line: &LineFinding| {
        let own = format!("{} {}", line.name, places(curve, &line.own));
        match (&line.beside, &curve.beside) {
            (Some(beside), Some(name)) if beside.worse_at != line.own.worse_at => {
                format!("{own} ({name}: {})", places(curve, beside))
            }
            _ => own,
        }
    };
    let others: Vec<String> = others.iter().map(of_line).collect();
    format!("worse than {}: {}", first.name, others.join(", "))
}

fn places(curve: &CurveFinding, series: &Series) -> String {
    let limits: Vec<u32> = curve.limits.iter().map(|limit| limit.percent).collect();
    let is_worse = |percent: &u32| series.worse_at.contains(percent);
    if series.worse_at.len() == limits.len() {
        return "at every limit".to_owned();
    }
    let runs = limits.chunk_by(|before, after| is_worse(before) == is_worse(after));
    let runs = runs.filter(|run| is_worse(&run[0])).map(|run| match run {
        [one] => format!("{one}%"),
        [first, .., last] => format!("{first} to {last}%"),
        [] => String::new(),
    });
    let runs: Vec<String> = runs.collect();
    if runs.is_empty() { "at no limit".to_owned() } else { format!("at {}", runs.join(" and ")) }
}

fn add_numbers(text: &mut String, curve: &CurveFinding, count: &CountFinding) {
    let mut lines: Vec<Vec<String>> = vec![vec!["limit".to_owned(), String::new()]];
    lines[0].extend(count.lines.iter().map(|line| line.name.clone()));
    for (nr, limit) in curve.limits.iter().enumerate() {
        let mut shown = vec![format!("{}%", limit.percent), mib(limit.bytes)];
        shown.extend(count.lines.iter().map(|line| {
            let own = value(curve, &line.own, nr);
            match &line.beside {
                Some(beside) => format!("{own} ({})", value(curve, beside, nr)),
                None => own,
            }
        }));
        lines.push(shown);
    }
    columns(text, "     ", &lines);
}

pub(super) fn value(curve: &CurveFinding, series: &Series, nr: usize) -> String {
    match series.values.get(nr).copied().flatten() {
        Some(value) => number(value, ""),
        None => ended(series, curve.limits[nr]).unwrap_or("-").to_owned(),
    }
}

fn ended(series: &Series, limit: LimitFinding) -> Option<&'static str> {
    series.ended.get(&limit.percent).map(|ended| ended.label())
}

pub(super) fn mib(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.1} MiB")
}

pub(super) fn add_csv(
    csv: &mut Cells,
    study: &str,
    curve: &CurveFinding,
) -> Result<(), ExportError> {
    for count in &curve.counts {
        for line in &count.lines {
            for series in std::iter::once(&line.own).chain(&line.beside) {
                for (&limit, value) in curve.limits.iter().zip(&series.values) {
                    let value = value.map(|value| value.to_string()).unwrap_or_default();
                    let note = ended(series, limit).unwrap_or_default();
                    let what = format!("{}, {}, {}%", count.what, line.name, limit.percent);
                    let of = format!("{}, {}, memory.max {}", series.kernel, curve.of, limit.bytes);
                    let record = Record {
                        study: study.to_owned(),
                        table: curve.title.clone(),
                        what,
                        ours: [String::new(), value, String::new()],
                        ours_unit: count.unit.clone(),
                        how: "counted".to_owned(),
                        of,
                        note: note.to_owned(),
                        ..Record::default()
                    };
                    csv.record(record.cells())?;
                }
            }
        }
    }
    Ok(())
}
