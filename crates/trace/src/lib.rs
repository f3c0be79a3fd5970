#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
//! The trace file of largefolio: the memory references and system calls of a program, in program
//! order.
//!
//! Reading order: [`event`] (rows) and [`meta`] (footer), [`validate`] (their rules),
//! [`file`](mod@file) (the Parquet file), [`info`] (the contents of a trace), [`generate`] (seeded
//! synthetic traces). Other crates also use [`disk`]
//! (files that users name) and [`mod@shown`] (safe output of foreign names).
//!
//! ```
//! use largefolio_trace::{Batch, Event, Meta, Op, Reader, Writer};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("two.folio");
//! let mut writer = Writer::create(&path, Meta::default())?;
//! writer.push(Event::references(0, Op::Exec, 0x40_0000, 12))?;
//! writer.push(Event::references(0, Op::Read, 0x60_1000, 3))?;
//! let summary = writer.finish()?;
//! assert_eq!((summary.nr_rows, summary.nr_references), (2, 15));
//!
//! let mut reader = Reader::open(&path)?;
//! assert_eq!(reader.meta().nr_references, 15);
//! let mut batch = Batch::default();
//! assert!(reader.next_batch(&mut batch)?);
//! assert_eq!(batch.addrs(), [0x40_0000, 0x60_1000]);
//! assert!(!reader.next_batch(&mut batch)?);
//! # Ok(()) }
//! ```

pub mod disk;
pub mod event;
pub mod file;
pub mod generate;
pub mod info;
pub mod meta;
mod run;
pub mod shown;
pub mod validate;

pub use event::{Event, ExitKind, FileId, Op, ThreadId};
pub use file::{
    Batch, NO_FILE, OpenTrace, Reader, Summary, TraceError, Writer, digest, digest_until,
};
pub use info::Info;
pub use meta::{
    Attached, Execution, FileInfo, HardwareCounters, Image, LayoutEntry, LayoutKind, Meta,
    PlainRun, recorded,
};
pub use run::Run;
pub use shown::shown;
