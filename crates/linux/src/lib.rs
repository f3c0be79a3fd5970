//! The running kernel: recording of real programs, and of what the kernel does.
//!
//! Reading order: [`record`] (a program's memory references into a trace file), [`crosscheck`]
//! (small workloads under tracefs, for a comparison with the model).

pub mod crosscheck;
pub mod record;

mod signals;
