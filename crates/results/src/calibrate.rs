//! This machine's costs as a machine file, and a check of that file.
//!
//! Reading order: [`counters`] (map-count updates from threads), `machine` (turns figures into a
//! machine), `result` (the output), `check` (compares predictions with measurements), [`programs`](ProgramsRequest) (the same
//! for whole programs).

mod check;
pub mod counters;
mod machine;
mod programs;
mod result;

pub use check::{CheckRequest, CheckResult};
pub use machine::{CalibratedMachine, machine};
pub use programs::{BankProgress, ProgramsRequest, ProgramsResult};
pub use result::CalibrationResult;
