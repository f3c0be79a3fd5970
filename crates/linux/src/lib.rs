//! The running kernel: recording of real programs, settings changed for a while.
//!
//! Reading order: [`record`] (a program's memory references into a trace file), [`setting`].

pub mod record;
pub mod setting;
