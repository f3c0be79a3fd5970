//! Timings of this kernel and of the model in interleaved rounds, as one result.
//!
//! Reading order: `timed` (one round of an operation here or in the model, for `folio bench` and
//! the measured rows of a study), `counters` (map-count updates from threads), `result` (JSON, CSV,
//! text).

mod counters;
mod result;
mod timed;

pub use counters::{Call, Counter, Loops, mapcount_costs};
pub use result::{BenchResult, BenchRow, Scale, rows, short};
pub(crate) use timed::in_model;
pub use timed::{AnonWork, Spare, Timed, beside_the_model, on_gigantic_host, on_host};
