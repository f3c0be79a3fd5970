//! The running kernel: recording of real programs.
//!
//! Reading order: [`record`] (a program's memory references into a trace file).

pub mod crosscheck;
pub mod record;
