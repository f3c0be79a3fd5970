//! The result as a table for people.
//!
//! ```text
//!   PredictResult --measures--> sections --section--> lines written out --layout--> blocks of columns
//!                                                    title above, notes below
//! ```
//!
//! One column per cell, the baseline first. If they do not fit into the width, the table continues
//! in further blocks, and every block repeats the baseline.
//!
//! Where it was asked which rule makes the difference, the answer (`why`) takes the table's place.

mod layout;
mod measures;
mod notes;
mod section;
mod why;

use std::io::Write;

use largefolio_sim::cost::BaseSource;
use largefolio_sim::replay::Outcome;
use section::Shown;

use crate::why::Why;
use crate::{ExportError, Exporter, PredictResult};

pub(crate) use notes::{notes, title};
pub(crate) use why::{pair, sentences};

/// Narrowest width that is respected; below it notes would have one word per line.
const WIDTH_MIN: usize = 40;

/// The table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Characters of a line.
    pub width: usize,
    /// Whether headings are bold.
    pub is_styled: bool,
    /// Whether estimated time is shown.
    pub shows_time: bool,
}

impl Exporter for Text {
    fn export(&self, report: &PredictResult, out: &mut dyn Write) -> Result<(), ExportError> {
        let width = self.width.max(WIDTH_MIN);
        for line in title(report) {
            writeln!(out, "{}", layout::wrapped(&line, width, 0))?;
        }
        if let Some(answers) = &report.why {
            return Self::write_why(report, answers, width, out);
        }
        let mut sections = Vec::new();
        let is_asked =
            report.rows.iter().any(|row| row.estimate.run.source != BaseSource::Estimated);
        if self.shows_time || is_asked {
            sections.push(measures::run_time(&report.rows));
        }
        sections.extend(measures::sections(&report.rows));
        if self.shows_time {
            sections.push(measures::time(&report.rows));
            sections.push(measures::latency(&report.rows));
        }
        let lines: Vec<_> = sections.iter().map(section::Section::show).collect();
        for block in layout::blocks(&report.rows, &lines, width, self.is_styled) {
            writeln!(out, "\n{block}")?;
        }
        writeln!(out)?;
        let mut below = notes(report);
        if self.shows_time || is_asked {
            below.extend(notes::run_times(&report.rows));
        }
        below.extend(if self.shows_time { notes::estimated(report) } else { notes::counted() });
        write_notes(&below, width, out)
    }
}

impl Text {
    /// Which rules make the difference, in the place of the table.
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
        writeln!(out, "{}", layout::wrapped(&format!("- {note}"), width, 2))?;
    }
    Ok(())
}

/// Every line of the table with its numbers written out, time included.
pub(crate) fn lines(rows: &[Outcome]) -> Vec<Shown> {
    if rows.is_empty() {
        return Vec::new();
    }
    let sections = std::iter::once(measures::run_time(rows))
        .chain(measures::sections(rows))
        .chain([measures::time(rows), measures::latency(rows)]);
    sections.flat_map(|section| section.show()).collect()
}
