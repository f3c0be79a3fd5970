//! Timings of this kernel and of the model in interleaved rounds, as one result.
//!
//! Each operation sets itself up, times its measured part and cleans up. Reading order: [`timed`]
//! (one round of an operation here or in the model, for `folio-lab bench` and the measured rows of
//! a study), [`anon_cow`] (copy-on-write by several processes), [`fault`] (demand faults), [`near`]
//! (data left in the cache after a folio was cleared), [`gaps`] (how long other tasks wait),
//! `result` (JSON, CSV, text).

pub mod anon_cow;
pub mod fault;
pub mod gaps;
pub mod near;
mod result;
pub mod timed;

pub use result::{BenchResult, BenchRow, Scale, rows, short};
