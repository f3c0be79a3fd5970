//! What this machine costs, as a machine file; and how good that is.
//!
//! Reading order: `machine` (figures become a machine), `result` (what is printed), `check`
//! (predicted beside measured).

mod check;
mod machine;
mod result;

pub use check::{CheckRequest, CheckResult};
pub use machine::{Made, machine};
pub use result::CalibrationResult;
