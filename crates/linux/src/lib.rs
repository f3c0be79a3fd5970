//! The running kernel: recording of programs and kernel behaviour, benchmarks, temporary settings,
//! and programs on disk.
//!
//! Reading order: [`elf`] (segments of a file) and [`alignment`] (which folios can map them),
//! [`record`] (a program's memory references into a trace file); [`mod@warm`], [`run`],
//! [`mod@align`], [`mod@collapse`] and [`remap`] (applying large folios), [`setting`] (temporary
//! settings),
//! [`tune`] (settings until they are undone) and [`persist`] (settings that survive a reboot);
//! [`measure`], [`calibrate`] (this machine's costs), [`verify`] (a command with and without a
//! change); [`program`] (how programs start) and [`timed_run`] (one timed run); [`system`],
//! [`kernel_facts`] (the kernel's settings) and [`census`] (folio sizes of the running system),
//! [`reasons`] and [`remedies`] (why folios are small), [`stalls`] (waits for memory); [`signals`] (Ctrl-C), [`mod@shell`]
//! (quoting), [`stack`] and [`confine`] (for folio itself).

pub mod align;
pub mod alignment;
pub mod bpf;
pub mod calibrate;
pub mod census;
pub mod collapse;
pub mod confine;
pub mod elf;
pub mod environment;
pub mod geometry;
pub mod helpers;
pub mod kernel_facts;
pub mod measure;
pub mod persist;
pub mod proc;
pub mod program;
pub mod reasons;
pub mod record;
pub mod remap;
pub mod remedies;
pub mod run;
pub mod setting;
pub mod shell;
pub mod signals;
pub mod stack;
pub mod stalls;
pub mod system;
pub mod timed_run;
pub mod tune;
pub mod verify;
pub mod warm;
pub mod watch;

pub mod fault_probe;
mod filesystem;

mod keeper;
mod library;
pub mod mount;
mod residency;
pub mod tracefs;
mod trust;
