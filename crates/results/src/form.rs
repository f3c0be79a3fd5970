//! The forms that every result has.

use largefolio_report::{ExportError, json};
use serde::Serialize;

/// In which form a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// All of it, with a schema version.
    Json,
    /// One row per item, for spreadsheets and data frames.
    Csv,
}

/// A result that has all of them.
pub trait Forms: Serialize {
    /// For people; ends with a newline.
    fn text(&self) -> String;

    /// One row per item, with a header.
    ///
    /// # Errors
    /// None in practice: memory takes everything.
    fn csv(&self) -> Result<String, ExportError>;

    /// Indented JSON.
    ///
    /// # Errors
    /// A value that JSON has no form for.
    fn json(&self) -> Result<String, ExportError> {
        Ok(json::pretty(self)?)
    }

    /// In the form that was asked for.
    ///
    /// # Errors
    /// As that form.
    fn written(&self, form: Form) -> Result<String, ExportError> {
        match form {
            Form::Text => Ok(self.text()),
            Form::Json => self.json(),
            Form::Csv => self.csv(),
        }
    }
}
