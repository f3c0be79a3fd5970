//! The running kernel: recording of real programs and of what the kernel does, benchmarks, settings
//! changed for a while, and the programs on disk.
//!
//! Reading order: [`elf`] (segments of a file), [`record`] (a program's memory references into a
//! trace file), [`crosscheck`] (small workloads under tracefs, for a comparison with the model);
//! [`setting`] (for a while) and [`tune`] (until it is undone), [`remap`] (a program's text on shared
//! large folios); [`measure`], [`mod@bench`] (the series' micro-benchmarks), [`calibrate`] (what this
//! machine costs), [`verify`] (a command with and without a change); [`signals`] (Ctrl-C).

pub mod bench;
pub mod calibrate;
pub mod crosscheck;
pub mod elf;
pub mod measure;
pub mod record;
pub mod remap;
pub mod setting;
pub mod signals;
pub mod tune;
pub mod verify;

mod library;
mod thp;
