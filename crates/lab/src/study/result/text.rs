//! Findings as text: one table each, with notes below.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::study::{
    Change, Closeness, Derivation, Finding, InKernel, RowFinding, Score, TableFinding, ValuePair,
};

use super::columns::{number, signed, wrapped};
use super::{curve, frontier};

const HEADS: [&str; 8] = ["", "published", "ours", "distance", "change", "level", "score", "how"];
/// The column after `ours` in a table with such numbers.
const IN_KERNEL: &str = "in a kernel";
pub(super) fn shown(findings: &[Finding]) -> String {
    let mut text = String::new();
    for (nr, finding) in findings.iter().enumerate() {
        if nr > 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "{}: {}", finding.study, finding.title);
        let origin = format!("{}: {}; {}", finding.reference, finding.source, finding.setup);
        wrapped(&mut text, "  ", &origin);
        if let Some(rests_on) = &finding.rests_on {
            wrapped(&mut text, "  ", &format!("published work in our inputs: {rests_on}"));
        }
        for table in &finding.tables {
            text.push('\n');
            add_table(&mut text, table, &finding.reference);
        }
        for closeness in &finding.frontiers {
            frontier::add(&mut text, closeness);
        }
        for curve in &finding.curves {
            curve::add(&mut text, curve);
        }
    }
    text
}

fn add_table(text: &mut String, table: &TableFinding, reference: &str) {
    let _ = writeln!(text, "  {}", table.title);
    let mut sources: Vec<&str> = Vec::new();
    let mut notes: Vec<(usize, Cow<'_, str>)> = Vec::new();
    let mut heads = HEADS.map(str::to_owned).to_vec();
    reference.clone_into(&mut heads[1]);
    let has_counts = table.rows.iter().any(|row| row.in_kernel.is_some());
    if has_counts {
        heads.insert(3, IN_KERNEL.to_owned());
    }
    let mut lines = vec![heads];
    for row in &table.rows {
        let mark: String = notes_of(row).map(|note| mark_of(&mut notes, note.into())).collect();
        let how = how_of(&mut sources, row);
        let mut line = vec![
            format!("{}{mark}", row.what),
            published(row),
            row.ours.map_or_else(|| "-".to_owned(), |ours| pair(ours, row, &row.ours_unit)),
            row.distance.map_or_else(|| "-".to_owned(), |distance| apart(distance, row)),
            closeness(row.closeness),
            closeness(row.level),
            score(row),
            how,
        ];
        if has_counts {
            let counts = row.in_kernel.as_ref();
            line.insert(3, counts.map_or_else(|| "-".to_owned(), |of| in_kernel(of, &mut notes)));
        }
        lines.push(line);
    }
    add_lines(text, &lines);
    for (letter, source) in (b'a'..=b'z').zip(sources) {
        wrapped(text, "    ", &format!("({}) {source}", char::from(letter)));
    }
    for (nr, note) in notes {
        wrapped(text, "    ", &format!("[{nr}] {note}"));
    }
}

/// `4,772 -> 1,507 (-68.4%)`, with the unit and the rows counted in a note.
fn in_kernel(counts: &InKernel, notes: &mut Vec<(usize, Cow<'_, str>)>) -> String {
    let change = counts.change().map_or_else(|| "new".to_owned(), |change| signed(change) + "%");
    let [before, after] = &counts.counted;
    let note = format!("{IN_KERNEL}: {}, {before} -> {after}", counts.unit);
    let numbers = format!("{} -> {}", number(counts.before, ""), number(counts.after, ""));
    format!("{numbers} ({change}){}", mark_of(notes, note.into()))
}

pub(super) fn closeness(closeness: Option<Closeness>) -> String {
    closeness.map_or("-", Closeness::label).to_owned()
}

pub(super) fn score(row: &RowFinding) -> String {
    row.score.map_or("-", Score::label).to_owned()
}

pub(super) fn basis(row: &RowFinding) -> String {
    row.basis.iter().map(|basis| basis.label()).collect::<Vec<_>>().join(", ")
}

pub(super) fn notes_of(row: &RowFinding) -> impl Iterator<Item = &str> {
    let note = row.disagrees.as_ref().or(row.reason.as_ref());
    let all = [row.inputs_of_series.as_ref(), row.other_quantity.as_ref(), note];
    all.into_iter().flatten().map(String::as_str)
}

/// Returns the mark of a note; rows with the same note share one.
fn mark_of<'a>(notes: &mut Vec<(usize, Cow<'a, str>)>, note: Cow<'a, str>) -> String {
    let known = notes.iter().find(|(_, known)| *known == note).map(|(nr, _)| *nr);
    let nr = known.unwrap_or_else(|| {
        notes.push((notes.len() + 1, note));
        notes.len()
    });
    format!(" [{nr}]")
}

fn how_of<'a>(sources: &mut Vec<&'a str>, row: &'a RowFinding) -> String {
    let source = match &row.how {
        Derivation::Counted { of } | Derivation::Estimated { of, .. } => of.as_str(),
        Derivation::None { why } => return format!("none: {why}"),
        Derivation::Measured(measured) => {
            let [median, min, max] = measured.change;
            return format!(
                "{}, n = {}, {median:+.0}% [{min:+.0} .. {max:+.0}], {}",
                basis(row),
                measured.n,
                measured.cpu
            );
        }
        Derivation::Quoted(quoted) => {
            let range = quoted.range.map(|[min, max]| format!(" [{min:+.0}% .. {max:+.0}%]"));
            let (range, from) = (range.unwrap_or_default(), &quoted.from);
            let (basis, cpu, n) = (basis(row), &quoted.cpu, quoted.n);
            return format!("{basis}: {from}; {cpu}, n = {n}{range}");
        }
    };
    let nr = sources.iter().position(|known| *known == source).unwrap_or_else(|| {
        sources.push(source);
        sources.len() - 1
    });
    let letter = (b'a'..=b'z').nth(nr).map_or('*', char::from);
    format!("{}, {} ({letter}){}", row.how.word(), basis(row), caveats(&row.how))
}

pub(super) fn caveats(how: &Derivation) -> String {
    let Derivation::Estimated { not_known, assumed, .. } = how else { return String::new() };
    let lacks = not_known.iter().map(|costs| format!("; not known: {costs}"));
    let rests = (!assumed.is_empty()).then(|| format!("; assumed: {}", assumed.join(", ")));
    lacks.chain(rests).collect()
}

fn add_lines(text: &mut String, lines: &[Vec<String>]) {
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    for line in lines {
        let mut shown = String::from("   ");
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(shown, " {cell:width$} ");
        }
        let _ = writeln!(text, "{}", shown.trim_end());
    }
}

fn published(row: &RowFinding) -> String {
    let spread = row.published_spread.as_ref().map(|spread| format!(" ({spread})"));
    let shown = match (&row.published_text, row.published) {
        (Some(text), _) => text.clone(),
        (None, Some(published)) => pair(published, row, &row.unit),
        (None, None) => "-".to_owned(),
    };
    shown + &spread.unwrap_or_default()
}

/// `46% -> 7% (-39.0pp)`.
fn pair(pair: ValuePair, row: &RowFinding, unit: &str) -> String {
    let change = pair.change.map(|change| {
        format!("{}{}", signed(change), if row.measure == Change::Points { "pp" } else { "%" })
    });
    match (pair.before, pair.after) {
        (Some(before), Some(after)) => {
            let change = change.unwrap_or_else(|| "new".to_owned());
            format!("{} -> {} ({change})", number(before, ""), number(after, unit))
        }
        (_, Some(after)) => number(after, unit),
        _ => change.unwrap_or_else(|| "-".to_owned()),
    }
}

pub(super) fn apart(distance: f64, row: &RowFinding) -> String {
    let has_change = row.ours.is_some_and(|ours| ours.change.is_some());
    if has_change { format!("{}pp", signed(distance)) } else { signed(distance) + " " + &row.unit }
}
