//! Operations of the memory manager that a benchmark times, each with its set-up apart.
//!
//! Nothing here looks at a clock: the caller times the call.

mod anon;

pub use anon::{AnonBench, AnonBenchError};
