//! The running kernel: recording of real programs and of what the kernel does, benchmarks, settings
//! changed for a while, and the programs on disk.
//!
//! Reading order: [`elf`] (segments of a file), [`record`] (a program's memory references into a
//! trace file), [`crosscheck`] (small workloads under tracefs, for a comparison with the model),
//! [`mod@warm`], [`run`], [`mod@align`] and [`mod@collapse`] (large folios put into effect), [`setting`], [`measure`], [`mod@bench`] (the series' micro-benchmarks).

pub mod align;
pub mod bench;
pub mod collapse;
pub mod crosscheck;
pub mod elf;
pub mod measure;
pub mod record;
pub mod run;
pub mod setting;
pub mod warm;

mod filesystem;
mod residency;
mod signals;
mod smaps;
mod thp;
