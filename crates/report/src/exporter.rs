//! The forms of a result.

use std::io::{self, Write};

use parquet::errors::ParquetError;

use crate::PredictResult;
use crate::table::TableError;

/// Failure to export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output does not take more.
    #[error("cannot write the result: {0}")]
    Io(#[from] io::Error),
    /// A value JSON has no form for.
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A value a data frame has no form for.
    #[error(transparent)]
    Table(#[from] TableError),
    /// What the Parquet library refuses.
    #[error("cannot write the result as Parquet: {0}")]
    Parquet(#[from] ParquetError),
}

impl From<csv::Error> for ExportError {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Self::Io(error),
            kind => Self::Io(io::Error::other(format!("{kind:?}"))),
        }
    }
}

/// A form of the result.
pub trait Exporter {
    /// Writes all of `report` to `out`; a text ends with a newline.
    ///
    /// # Errors
    /// When `out` does not take it.
    fn export(&self, report: &PredictResult, out: &mut dyn Write) -> Result<(), ExportError>;
}
