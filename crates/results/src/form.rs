//! The output formats of every result.

use std::io;

use serde::Serialize;

use crate::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Csv,
}

/// A result in every format. Predictions can also be written as Parquet
/// ([`parquet::file`](crate::predict::parquet::file)); results with a page have a method `page`.
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

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot write the result: {0}")]
    Io(#[from] io::Error),
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<csv::Error> for ExportError {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Self::Io(error),
            kind => Self::Io(io::Error::other(format!("{kind:?}"))),
        }
    }
}
