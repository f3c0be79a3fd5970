//! The running kernel: recording of real programs and of what the kernel does, benchmarks, settings
//! changed for a while, and the programs on disk.
//!
//! Reading order: [`elf`] (segments of a file), [`record`] (a program's memory references into a
//! trace file), [`crosscheck`] (small workloads under tracefs, for a comparison with the model),
//! [`setting`], [`measure`], [`mod@bench`] (the series' micro-benchmarks), [`system`] and [`census`]
//! (folio sizes of the running system).

pub mod bench;
pub mod census;
pub mod crosscheck;
pub mod elf;
pub mod measure;
pub mod record;
pub mod setting;
pub mod system;
pub mod watch;

mod signals;
mod thp;
