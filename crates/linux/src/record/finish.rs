//! Builds the footer and the outcome of a recording.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use largefolio_trace::{FileInfo, LayoutEntry, Meta, Writer};

use super::book::Book;
use super::error::RecordError;
use super::executions::Executions;
use super::outcome::{RecordEnd, RecordOutcome, RecorderKind};
use super::plan::Recording;
use crate::proc::{Processor, host};
use crate::system::Live;

/// Builds the footer, as far as it is known before the program starts.
pub(crate) fn meta(plan: &Recording, recorder: RecorderKind) -> Meta {
    let command = plan.command.iter().map(|word| word.to_string_lossy().into_owned());
    let (runs, arch) = (plan.runs.clone(), plan.program.arch.in_trace().to_owned());
    Meta { runs, arch, ..meta_of(command.collect(), recorder) }
}

pub(crate) fn meta_of(command: Vec<String>, recorder: RecorderKind) -> Meta {
    Meta {
        command,
        recorder: recorder.name().to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: host::kernel_release(&Live),
        machine: Processor::of(&Live).name,
        page_bytes: 4096,
        recorded: recorder.recorded().iter().map(ToString::to_string).collect(),
        ..Meta::default()
    }
}

pub(crate) fn ended_of(status: ExitStatus) -> RecordEnd {
    // Exit codes have 8 bits and signals 7: both fit.
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.code(), status.signal()) {
        (Some(code), _) => RecordEnd::Code(byte(code)),
        (None, Some(signal)) => RecordEnd::Signal(byte(signal)),
        (None, None) => RecordEnd::Code(0),
    }
}

pub(crate) struct Finish {
    files: Vec<FileInfo>,
    layout: Vec<LayoutEntry>,
    brk: u64,
    links: bool,
    executions: Executions,
    ended: String,
    warnings: Vec<String>,
    nr_threads: u32,
    nr_processes: u32,
}

impl Finish {
    /// Takes them out of the book; `warnings` come first.
    pub(crate) fn of_book(book: &mut Book<'_>, ended: String, mut warnings: Vec<String>) -> Self {
        warnings.extend(book.take_warnings());
        Self {
            files: std::mem::take(&mut book.files).into_table(),
            layout: std::mem::take(&mut book.layout),
            brk: book.brk,
            links: book.has_links,
            executions: std::mem::take(&mut book.executions),
            ended,
            warnings,
            nr_threads: book.nr_threads(),
            nr_processes: book.nr_processes,
        }
    }

    pub(crate) fn complete(
        self,
        mut writer: Writer,
        ended: RecordEnd,
        recorder: RecorderKind,
        started: Instant,
    ) -> Result<RecordOutcome, RecordError> {
        let meta = writer.meta_mut();
        meta.files = self.files;
        meta.layout = self.layout;
        meta.brk = self.brk;
        meta.links = self.links;
        meta.execs = self.executions.execs;
        meta.images = self.executions.images;
        meta.ended = self.ended;
        meta.warnings.clone_from(&self.warnings);
        let summary = writer.finish()?;
        Ok(RecordOutcome {
            path: summary.path,
            ended,
            stopped: None,
            nr_references: summary.nr_references,
            nr_rows: summary.nr_rows,
            trace_bytes: summary.file_bytes,
            nr_threads: self.nr_threads,
            nr_processes: self.nr_processes,
            nr_executions: self.executions.nr,
            elapsed: started.elapsed(),
            recorder,
            attached: None,
            hot: None,
            warnings: self.warnings,
        })
    }
}
