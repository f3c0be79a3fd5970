//! The interface that every output format implements.

use std::io::{self, Write};

use parquet::errors::ParquetError;

use crate::PredictResult;
use crate::table::TableError;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot write the result: {0}")]
    Io(#[from] io::Error),
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Table(#[from] TableError),
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

pub trait Exporter {
    /// Writes all of `report` to `out`. Text output ends with a newline.
    ///
    /// # Errors
    /// If `out` fails.
    fn export(&self, report: &PredictResult, out: &mut dyn Write) -> Result<(), ExportError>;
}
