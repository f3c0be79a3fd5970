//! The costs of this machine as a machine file, and a check of that file.
//!
//! Reading order: `machine` (figures become a machine), `result` (the output), `check` (predictions
//! against measurements).

mod check;
mod machine;
mod result;

pub use check::{CheckRequest, CheckResult};
pub use machine::{Made, machine};
pub use result::CalibrationResult;
