//! The output formats of every result.

use largefolio_report::{ExportError, json};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Csv,
}

pub trait Forms: Serialize {
    fn text(&self) -> String;

    /// Returns one row per item, with a header.
    ///
    /// # Errors
    /// Never in practice: writing to memory does not fail.
    fn csv(&self) -> Result<String, ExportError>;

    /// # Errors
    /// If JSON cannot represent a value.
    fn json(&self) -> Result<String, ExportError> {
        Ok(json::pretty(self)?)
    }

    /// Returns the requested format.
    ///
    /// # Errors
    /// As that format.
    fn written(&self, form: Form) -> Result<String, ExportError> {
        match form {
            Form::Text => Ok(self.text()),
            Form::Json => self.json(),
            Form::Csv => self.csv(),
        }
    }
}
