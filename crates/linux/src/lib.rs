//! The running kernel: recording of real programs, benchmarks, settings changed for a while.
//!
//! Reading order: [`record`] (a program's memory references into a trace file), [`setting`],
//! [`measure`], [`bench`] (the series' micro-benchmarks).

pub mod bench;
pub mod measure;
pub mod record;
pub mod setting;
