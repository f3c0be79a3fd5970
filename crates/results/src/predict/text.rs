//! The result as a terminal table.
//!
//! The verdict comes first, then a few lines (`brief`), or every number if the user asks for all.
//!
//! ```text
//!   PredictResult --measures--> sections --section--> lines written out --layout--> blocks of columns
//!                                                    title above, notes below
//! ```
//!
//! There is one column per cell, the baseline first. If the columns do not fit into the width, the
//! table continues in further blocks, and every block repeats the baseline.
//!
//! If the user asks which rule makes the difference, the answer (`why`) replaces the table.

mod brief;
mod fault_times;
mod fit;
mod layout;
mod measures;
mod notes;
mod programs;
mod regions;
mod section;
mod why;

use std::fmt::Write as _;

use largefolio_sim::explain::Why;
use largefolio_sim::replay::Outcome;
use section::Shown;

use crate::predict::PredictResult;
use crate::predict::verdict::sentences;
use crate::prose::wrapped;

pub(crate) use notes::{notes, title};
pub(crate) use why::{pair, sentences};

/// The narrowest width; below it, notes would have one word per line.
const WIDTH_MIN: usize = 40;
/// The width where no terminal sets one.
const WIDTH: usize = 100;

/// How the text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    pub width: usize,
    /// Whether the text may contain escape sequences.
    pub is_styled: bool,
    pub depth: Depth,
}

impl Default for TextStyle {
    fn default() -> Self {
        Self { width: WIDTH, is_styled: false, depth: Depth::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    #[default]
    Brief,
    /// `Brief`, and estimated time by cause.
    Time,
    Full,
}

/// Returns `report` as a table. The text ends with a newline.
#[must_use]
pub fn text(report: &PredictResult, style: TextStyle) -> String {
    let TextStyle { is_styled, depth, .. } = style;
    let width = style.width.max(WIDTH_MIN);
    let mut text = String::new();
    for line in title(report) {
        let _ = writeln!(text, "{}", wrapped(&line, width, 0));
    }
    if report.fit.is_none() {
        write_verdict(report, width, is_styled, &mut text);
    }
    if report.rows.is_empty() {
        return text;
    }
    let below = if let Some(fits) = &report.fit {
        fit::write(report, fits, width, &mut text)
    } else if let Some(answers) = &report.why {
        write_why(report, answers, width, &mut text)
    } else {
        write_table(report, width, is_styled, depth, &mut text)
    };
    for note in below {
        let _ = writeln!(text, "{}", wrapped(&format!("- {note}"), width, 2));
    }
    text
}

fn write_verdict(report: &PredictResult, width: usize, is_styled: bool, out: &mut String) {
    for sentences in sentences::describe(report) {
        out.push('\n');
        for (nr, sentence) in sentences.iter().enumerate() {
            let text = wrapped(sentence, width, 0);
            let _ = match (nr, is_styled) {
                (0, true) => writeln!(out, "\u{1b}[1m{text}\u{1b}[0m"),
                _ => writeln!(out, "{text}"),
            };
        }
    }
    for hint in sentences::hints(report) {
        let _ = writeln!(out, "{hint}");
    }
}

/// Returns the notes below the table.
fn write_table(
    report: &PredictResult,
    width: usize,
    is_styled: bool,
    depth: Depth,
    out: &mut String,
) -> Vec<String> {
    let mut sentences = programs::sentences(&report.rows);
    sentences.extend(regions::sentences(&report.rows));
    sentences.extend(fault_times::sentence(&report.rows));
    if !sentences.is_empty() {
        let _ = writeln!(out, "\n{}", wrapped(&sentences.join(" "), width, 0));
    }
    let mut lines = Vec::new();
    if depth == Depth::Full {
        let sections = measures::sections(&report.rows);
        lines.push(measures::run_time(&report.rows).show());
        lines.extend(sections.iter().map(section::Section::show));
    } else {
        lines.push(brief::section(&report.rows).show_mixed());
    }
    let rows = &report.rows;
    lines.extend(programs::section(rows).iter().map(section::Section::show));
    lines.extend(regions::sections(report).iter().map(section::Section::show));
    lines.extend(fault_times::section(rows).iter().map(section::Section::show));
    if depth != Depth::Brief {
        let time = [measures::time(&report.rows), measures::latency(&report.rows)];
        lines.extend(time.iter().map(section::Section::show));
    }
    for block in layout::blocks(&report.rows, &lines, width, is_styled) {
        let _ = writeln!(out, "\n{block}");
    }
    out.push('\n');
    let mut below = notes(report);
    below.extend(fault_times::notes(&report.rows));
    below.extend(notes::run_times(report));
    below.extend(notes::counted(report));
    below.extend(match depth {
        Depth::Brief => notes::brief(),
        Depth::Time | Depth::Full => notes::estimated(report),
    });
    below
}

/// Returns the notes below the answers.
fn write_why(
    report: &PredictResult,
    answers: &[Why],
    width: usize,
    out: &mut String,
) -> Vec<String> {
    for answer in answers {
        out.push('\n');
        for line in why::answer(report, answer, width) {
            let _ = writeln!(out, "{line}");
        }
    }
    out.push('\n');
    let mut below = why::notes(answers);
    below.extend(notes(report).into_iter().filter(|note| !note.starts_with("change: ")));
    below.extend(notes::explained());
    below
}

pub(crate) fn lines(rows: &[Outcome]) -> Vec<Shown> {
    if rows.is_empty() {
        return Vec::new();
    }
    let sections = std::iter::once(measures::run_time(rows))
        .chain(measures::sections(rows))
        .chain([measures::time(rows), measures::latency(rows)]);
    sections.flat_map(|section| section.show()).collect()
}
