//! The running kernel: recording of real programs and of what the kernel does, benchmarks, settings
//! changed for a while, and the programs on disk.
//!
//! Reading order: [`elf`] (segments of a file), [`record`] (a program's memory references into a
//! trace file), [`crosscheck`] (small workloads under tracefs, for a comparison with the model),
//! [`remap`] (a program's text on shared large folios), [`setting`], [`measure`], [`mod@bench`] (the series' micro-benchmarks).

pub mod bench;
pub mod crosscheck;
pub mod elf;
pub mod measure;
pub mod record;
pub mod remap;
pub mod setting;

mod library;
mod signals;
mod thp;
