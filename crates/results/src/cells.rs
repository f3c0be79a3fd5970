//! Writes CSV that neither a terminal nor a spreadsheet interprets as commands.
//!
//! Every verb writes its CSV here. Invariants:
//! - C1: every character in a cell is printable ([`printable`]). Other characters are replaced;
//!   only the JSON keeps them.
//! - C2: a text that a spreadsheet would execute as a formula is prefixed with `'`. Such a text is
//!   not a number and begins with `=`, `+`, `-` or `@`, or with one of their full-width forms.

use crate::ExportError;
use crate::figures::printable;

/// Characters that begin a formula. East Asian spreadsheets accept the full-width forms too.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

#[derive(Debug)]
pub struct Cells(csv::Writer<Vec<u8>>);

impl Cells {
    #[must_use]
    pub fn text() -> Self {
        Self(csv::Writer::from_writer(Vec::new()))
    }

    /// Writes a record.
    ///
    /// # Errors
    /// If the number of cells differs from the previous record's.
    pub fn record<T: AsRef<str>>(
        &mut self,
        cells: impl IntoIterator<Item = T>,
    ) -> Result<(), ExportError> {
        let cells = cells.into_iter().map(|text| cell(text.as_ref()));
        Ok(self.0.write_record(cells)?)
    }

    /// Returns the text.
    ///
    /// # Errors
    /// Never in practice: writing to memory does not fail, and cells are text.
    pub fn into_text(self) -> Result<String, ExportError> {
        let bytes = self.0.into_inner().map_err(csv::IntoInnerError::into_error)?;
        String::from_utf8(bytes).map_err(|error| std::io::Error::other(error).into())
    }
}

/// Turns a text into a cell (C1, C2).
///
/// ```
/// use largefolio_results::cells::cell;
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
