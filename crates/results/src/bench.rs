//! What is timed on this kernel and in the model: series of interleaved rounds, as one result.
//!
//! Reading order: `timed` (one round of an operation, here or in the model: `folio bench` and the
//! measured rows of a study share it), `counters` (calls that count mappings, from threads), `result` (JSON, CSV, text).

mod counters;
mod result;
mod timed;

pub use counters::{Call, Counter, Loops, mapcount_costs};
pub use result::{BenchResult, BenchRow, Scale, rows, short};
pub(crate) use timed::in_model;
pub use timed::{AnonWork, Spare, Timed, beside_the_model, on_gigantic_host, on_host};
