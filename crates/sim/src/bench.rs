//! Operations of the memory manager that a benchmark times, each with its set-up apart, or that a
//! study counts.
//!
//! Nothing here looks at a clock: the caller times the call.

mod anon;
mod count;

pub use anon::{AnonBench, AnonBenchError};
pub use count::{AnonOperation, Counted};
