//! `folio record`: writes the memory references of an unmodified program into a trace file.
//!
//! Owns the checks ([`Recording`]), the choice of recorder, the run, and its report
//! ([`RecordOutcome`], [`Progress`]). Does not own the file format (`largefolio_trace`) or the code
//! inside the recorded process (`largefolio-recorder`, a QEMU plugin).
//!
//! ```text
//!   Recording::new: program -- tools -- output      checks everything, changes nothing
//!        |
//!   Recording::time: plain runs, on request
//!        |
//!   Recording::run
//!        `-- qemu/      sockets -> packets -> book (threads, files, order) -> EventSink
//! ```
//!
//! Files in reading order: [`program`], `root`, [`tools`], `plan`, `plain`, `book/`, `layout`,
//! `qemu/`.
//!
//! Invariants:
//! - R1: the program sees its own arguments, environment, standard streams and exit code.
//! - R2: however the program ends, and on SIGINT, SIGTERM and SIGHUP, the trace is complete up to
//!   that point.
//! - R3: [`RecordOutcome::warnings`] and the trace report everything the recorder missed.

pub mod program;
pub mod tools;

mod book;
mod child;
mod elf;
mod error;
mod executions;
mod files;
mod finish;
mod layout;
pub mod live;
mod outcome;
mod plain;
mod plan;
mod qemu;
mod root;
mod sink;
mod store;

pub use error::RecordError;
pub use outcome::{
    Awaited, HotPages, Progress, RecordEnd, RecordOutcome, RecorderKind, Standstill, Unrecorded,
};
pub use plan::{RecordRequest, Recording};
#[cfg(fuzzing)]
pub use qemu::recorded_from;
