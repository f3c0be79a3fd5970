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
mod layout;
mod measures;
mod notes;
mod programs;
mod section;
mod why;

use std::io::Write;

use largefolio_sim::explain::Why;
use largefolio_sim::replay::Outcome;
use section::Shown;

use crate::prose::wrapped;
use crate::verdict::sentences;
use crate::{ExportError, Exporter, PredictResult};

pub(crate) use notes::{notes, title};
pub(crate) use why::{pair, sentences};

/// The narrowest width; below it, notes would have one word per line.
const WIDTH_MIN: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    pub width: usize,
    pub is_styled: bool,
    pub depth: Depth,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    #[default]
    Brief,
    /// `Brief`, and estimated time by cause.
    Time,
    Full,
}

impl Exporter for Text {
    fn export(&self, report: &PredictResult, out: &mut dyn Write) -> Result<(), ExportError> {
        let width = self.width.max(WIDTH_MIN);
        for line in title(report) {
            writeln!(out, "{}", wrapped(&line, width, 0))?;
        }
        self.write_verdict(report, width, out)?;
        if report.rows.is_empty() {
            return Ok(());
        }
        if let Some(answers) = &report.why {
            return Self::write_why(report, answers, width, out);
        }
        let sentences = programs::sentences(&report.rows);
        if !sentences.is_empty() {
            writeln!(out, "\n{}", wrapped(&sentences.join(" "), width, 0))?;
        }
        let mut lines = Vec::new();
        if self.depth == Depth::Full {
            let sections = measures::sections(&report.rows);
            lines.push(measures::run_time(&report.rows).show());
            lines.extend(sections.iter().map(section::Section::show));
        } else {
            lines.push(brief::section(&report.rows).show_mixed());
        }
        lines.extend(programs::section(&report.rows).map(|section| section.show()));
        if self.depth != Depth::Brief {
            let time = [measures::time(&report.rows), measures::latency(&report.rows)];
            lines.extend(time.iter().map(section::Section::show));
        }
        for block in layout::blocks(&report.rows, &lines, width, self.is_styled) {
            writeln!(out, "\n{block}")?;
        }
        writeln!(out)?;
        let mut below = notes(report);
        below.extend(notes::run_times(report));
        below.extend(match self.depth {
            Depth::Brief => notes::brief(),
            Depth::Time | Depth::Full => notes::estimated(report),
        });
        write_notes(&below, width, out)
    }
}

impl Text {
    fn write_verdict(
        &self,
        report: &PredictResult,
        width: usize,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        for sentences in sentences::describe(report) {
            writeln!(out)?;
            for (nr, sentence) in sentences.iter().enumerate() {
                let text = wrapped(sentence, width, 0);
                match (nr, self.is_styled) {
                    (0, true) => writeln!(out, "\u{1b}[1m{text}\u{1b}[0m")?,
                    _ => writeln!(out, "{text}")?,
                }
            }
        }
        for hint in sentences::hints(report) {
            writeln!(out, "{hint}")?;
        }
        Ok(())
    }

    fn write_why(
        report: &PredictResult,
        answers: &[Why],
        width: usize,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        for answer in answers {
            writeln!(out)?;
            for line in why::answer(report, answer, width) {
                writeln!(out, "{line}")?;
            }
        }
        writeln!(out)?;
        let mut below = why::notes(answers);
        below.extend(notes(report).into_iter().filter(|note| !note.starts_with("change: ")));
        below.extend(notes::explained());
        write_notes(&below, width, out)
    }
}

fn write_notes(notes: &[String], width: usize, out: &mut dyn Write) -> Result<(), ExportError> {
    for note in notes {
        writeln!(out, "{}", wrapped(&format!("- {note}"), width, 2))?;
    }
    Ok(())
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
