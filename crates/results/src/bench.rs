//! What is timed on this kernel and in the model: series of interleaved rounds, as one result.
//!
//! Reading order: `timed` (one round of an operation, here or in the model: `folio bench` and the
//! measured rows of a study share it), `result` (JSON, CSV, text).

mod result;
mod timed;

pub use result::{BenchResult, BenchRow, Scale, rows, short};
pub(crate) use timed::in_model;
pub use timed::{AnonWork, Spare, Timed, beside_the_model, on_gigantic_host, on_host};
