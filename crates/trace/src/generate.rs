//! Synthetic workloads as traces: the micro-benchmarks of the series, and mixes for studies.
//!
//! Owns the workloads as [`Event`]s. Invariants:
//! - I1: the same options and seed produce the same events on every machine: it uses only integers
//!   and its own pseudo-random generator.
//! - I2: memory does not grow with the number of events. A random page order takes one number per
//!   page.
//! - I3: options are checked before the first event, so nothing overflows later.

mod fork;
mod library;
mod mix;
mod reads;
mod ret_stubs;
mod rng;
mod server;

use std::ops::ControlFlow;
use std::path::Path;

use thiserror::Error;

use crate::event::Event;
use crate::file::{Summary, TraceError, Writer};
use crate::meta::{FileInfo, Meta};
use crate::validate::REFERENCE_PAGE_BYTES;

pub use fork::Snapshots;
pub use library::{Library, LinkedFor};
pub use mix::ZipfMix;
pub use reads::{RandomReads, ReadWay, SequentialReads};
pub use ret_stubs::{Advice, RetStubs, SweepOrder};
pub use rng::Rng;
pub use server::Server;

/// It has large folios from 6.16 on and is the default of most distributions.
pub const FILESYSTEM: &str = "ext4";

/// Address of the first mapping: 256 GiB. Aligned for the largest modelled leaf (512 MiB, the PMD
/// of 64 KiB base pages) and below the end of every 39-bit address space.
pub const BASE: u64 = 1 << 38;

/// Maximum size of a file or region: 1 TiB. Four of them fit above [`BASE`] in 47 bits.
pub const REGION_BYTES_MAX: u64 = 1 << 40;

/// An error while generating a trace.
#[derive(Debug, Error)]
pub enum GenerateError {
    /// An option is out of range.
    #[error("{option} is {value}: {rule}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The rejected value.
        value: u64,
        /// The legal values.
        rule: &'static str,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The progress callback stopped it.
    #[error("stopped")]
    Stopped,
}

/// Rows between two progress reports: a few milliseconds.
const NR_ROWS_UNHEARD: u64 = 1 << 16;

/// Receives the events of a workload one by one.
pub type Sink<'a> = dyn FnMut(Event) -> Result<(), GenerateError> + 'a;

/// A workload that can be written as a trace.
pub trait Workload {
    /// Checks the options.
    ///
    /// # Errors
    /// [`GenerateError::Option`] names the first option that is out of range.
    fn validate(&self) -> Result<(), GenerateError>;

    /// Returns the footer: files, seed, and the workload's name and options.
    fn meta(&self) -> Meta;

    /// Passes every event to `sink`, in program order.
    ///
    /// # Errors
    /// The errors of [`Workload::validate`] and of `sink`.
    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError>;

    /// Appends the workload to `writer` and sets its metadata.
    ///
    /// # Errors
    /// [`GenerateError::Option`], or the writer's [`GenerateError::Trace`].
    fn generate(&self, writer: &mut Writer) -> Result<(), GenerateError> {
        self.validate()?;
        *writer.meta_mut() = self.meta();
        self.emit(&mut |event| Ok(writer.push(event)?))
    }

    /// Writes the workload as the trace `path`.
    ///
    /// # Errors
    /// As [`Workload::generate`].
    fn write(&self, path: &Path) -> Result<Summary, GenerateError> {
        self.write_while(path, &mut |_| ControlFlow::Continue(()))
    }

    /// Like [`Workload::write`], but calls `hears` with the rows so far from time to time. If it
    /// returns `Break`, no file is left.
    ///
    /// # Errors
    /// As [`Workload::generate`], or [`GenerateError::Stopped`].
    fn write_while(
        &self,
        path: &Path,
        hears: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Summary, GenerateError> {
        self.validate()?;
        let mut writer = Writer::create(path, self.meta())?;
        let mut nr_rows = 0;
        self.emit(&mut |event| {
            if nr_rows % NR_ROWS_UNHEARD == 0 && hears(nr_rows).is_break() {
                return Err(GenerateError::Stopped);
            }
            nr_rows += 1;
            Ok(writer.push(event)?)
        })?;
        Ok(writer.finish()?)
    }

    /// Returns all events, for tests and short replays.
    ///
    /// # Errors
    /// [`GenerateError::Option`].
    fn events(&self) -> Result<Vec<Event>, GenerateError> {
        let mut events = Vec::new();
        self.emit(&mut |event| {
            events.push(event);
            Ok(())
        })?;
        Ok(events)
    }
}

fn command_of(verb: &str, options: &[(&str, String)], filesystem: &str) -> Vec<String> {
    let mut command: Vec<_> = ["folio", "trace", "gen", verb].map(str::to_owned).into();
    let filesystem = [("fs", filesystem.to_owned())];
    let is_other = filesystem[0].1 != FILESYSTEM;
    for (option, value) in options.iter().chain(filesystem.iter().filter(|_| is_other)) {
        command.push(format!("--{option}"));
        command.extend((!value.is_empty()).then(|| value.clone()));
    }
    command
}

fn meta_of(name: &str, command: Vec<String>, seed: u64, files: Vec<FileInfo>) -> Meta {
    Meta {
        command,
        recorder: format!("generator {name}"),
        page_bytes: REFERENCE_PAGE_BYTES,
        seed: Some(seed),
        files,
        ended: "exit 0".to_owned(),
        ..Meta::default()
    }
}

fn file_of(name: &str, bytes: u64, filesystem: &str) -> FileInfo {
    FileInfo {
        path: format!("[{name}]"),
        size_bytes: bytes,
        filesystem: filesystem.to_owned(),
        ..FileInfo::default()
    }
}

fn require(
    is_legal: impl Into<bool>,
    option: &'static str,
    value: u64,
    rule: &'static str,
) -> Result<(), GenerateError> {
    if is_legal.into() { Ok(()) } else { Err(GenerateError::Option { option, value, rule }) }
}

/// Requires whole pages, at least one, and at most [`REGION_BYTES_MAX`].
fn require_region(option: &'static str, bytes: u64) -> Result<(), GenerateError> {
    let is_legal =
        (1..=REGION_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(REFERENCE_PAGE_BYTES);
    require(is_legal, option, bytes, "it must be a multiple of 4096 from 4096 to 1 TiB")
}

/// Maps a rank to a page so that neighbouring ranks are far apart. The step is a prime larger than
/// any number of pages, so every page has exactly one rank.
const fn scattered(rank: u64, nr_pages: u64) -> u64 {
    rank * 0x9e37_79b1 % nr_pages
}
