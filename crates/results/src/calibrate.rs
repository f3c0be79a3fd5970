//! The costs of this machine as a machine file, and a check of that file.
//!
//! Reading order: [`counters`] (map-count updates from threads), `machine` (figures become a machine), `result` (the output), `check` (predictions
//! against measurements).

mod check;
pub mod counters;
mod machine;
mod result;

pub use check::{CheckRequest, CheckResult};
pub use machine::{Made, machine};
pub use result::CalibrationResult;
