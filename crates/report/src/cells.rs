//! CSV that neither a terminal nor a spreadsheet interprets as commands.
//!
//! Owns how a text becomes a cell; every verb's CSV is written here. Invariants:
//! - C1: no cell has a character that is not printable ([`printable`]): a name that has one is
//!   changed, and only the JSON has it as it is.
//! - C2: a text that a spreadsheet would run as a formula - it begins with `=`, `+`, `-` or `@`, or
//!   with one of these in full width, and is not a number - has a `'` in front.

use std::io::Write;

use crate::ExportError;
use crate::figures::printable;

/// What a formula begins with. Spreadsheets for East Asian languages take the full width as well.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Writes CSV, record by record.
#[derive(Debug)]
pub struct Cells<W: Write>(csv::Writer<W>);

impl<W: Write> Cells<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self(csv::Writer::from_writer(out))
    }

    /// Writes a record.
    ///
    /// # Errors
    /// When `out` does not take it, or it has not as many cells as the one before.
    pub fn record<T: AsRef<str>>(
        &mut self,
        cells: impl IntoIterator<Item = T>,
    ) -> Result<(), ExportError> {
        let cells = cells.into_iter().map(|text| cell(text.as_ref()));
        Ok(self.0.write_record(cells)?)
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn flush(&mut self) -> Result<(), ExportError> {
        Ok(self.0.flush()?)
    }
}

impl Cells<Vec<u8>> {
    /// Begins a text.
    #[must_use]
    pub fn text() -> Self {
        Self::new(Vec::new())
    }

    /// The text.
    ///
    /// # Errors
    /// None in practice: memory takes everything, and cells are text.
    pub fn into_text(self) -> Result<String, ExportError> {
        let bytes = self.0.into_inner().map_err(csv::IntoInnerError::into_error)?;
        String::from_utf8(bytes).map_err(|error| std::io::Error::other(error).into())
    }
}

/// A text as a cell (C1, C2).
///
/// ```
/// use largefolio_report::cells::cell;
/// assert_eq!(cell("/usr/bin/cc1"), "/usr/bin/cc1");
/// assert_eq!(cell("-1.5"), "-1.5");
/// assert_eq!(cell("=1+1"), "'=1+1");
/// assert_eq!(cell("\u{ff1d}1+1"), "'\u{ff1d}1+1", "in full width");
/// assert_eq!(cell("a\x1b[2J"), "a?[2J");
/// ```
#[must_use]
pub fn cell(text: &str) -> String {
    let text = printable(text);
    let begins = text.chars().nth(1).is_some() && text.starts_with(FORMULA);
    let is_number = text.trim_end_matches('%').parse::<f64>().is_ok();
    if begins && !is_number { format!("'{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_begins_a_formula_has_an_apostrophe_in_front() {
        for sign in ['=', '+', '-', '@', '＝', '＋', '－', '＠'] {
            assert_eq!(
                cell(&format!("{sign}cmd|' /C calc'!A0")).chars().next(),
                Some('\''),
                "{sign}"
            );
            assert_eq!(cell(&sign.to_string()), sign.to_string(), "alone it is none");
        }
    }
}
