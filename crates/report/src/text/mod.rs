//! The result as a table for people.
//!
//! ```text
//!   Report --measures--> sections --section--> lines written out --layout--> blocks of columns
//!                                                    title above, notes below
//! ```
//!
//! One column for each cell, the reference first. Where they do not fit the width, the table
//! continues in further blocks, and every block repeats the reference.

mod layout;
mod measures;
mod notes;
mod section;

use std::io::Write;

use crate::{ExportError, Exporter, Report};

/// Narrowest width that is respected; below it notes would be a word a line.
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
    fn export(&self, report: &Report, out: &mut dyn Write) -> Result<(), ExportError> {
        let width = self.width.max(WIDTH_MIN);
        for line in notes::title(report) {
            writeln!(out, "{}", layout::wrapped(&line, width, 0))?;
        }
        let mut sections = measures::sections(&report.rows);
        if self.shows_time {
            sections.push(measures::time(&report.rows));
        }
        let lines: Vec<_> = sections.iter().map(section::Section::show).collect();
        for block in layout::blocks(&report.rows, &lines, width, self.is_styled) {
            writeln!(out, "\n{block}")?;
        }
        writeln!(out)?;
        let mut notes = notes::notes(report);
        notes.extend(if self.shows_time { notes::estimated(report) } else { notes::counted() });
        for note in notes {
            writeln!(out, "{}", layout::wrapped(&format!("- {note}"), width, 2))?;
        }
        Ok(())
    }
}
