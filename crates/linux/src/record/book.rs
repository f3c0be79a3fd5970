//! The recording so far; the QEMU recorder and the live recorder write to it.
//!
//! Owns the counts, the file table, the initial layout and the warnings, and passes events on to
//! the sink. Invariants:
//! - I1: thread ids are dense in the order of [`Book::add_thread`].
//! - I2: every event passed on is valid ([`Event::validate`]). An invalid event comes from a
//!   program's unusual arguments; it is counted and omitted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use largefolio_trace::event::{huge_size_of, mmap_flags};
use largefolio_trace::{
    Event, ExitKind, Image, LayoutEntry, LayoutKind, Op, Run, ThreadId, TraceError,
};

use super::executions::Executions;
use super::files::{Files, LEFT_OUT};
use super::sink::EventSink;

/// An execve reads this much of a script.
const SCRIPT_HEAD_BYTES: u64 = 256;

/// At most this many warnings are kept; the rest are only counted.
const WARNINGS_MAX: usize = 32;

/// Bytes of a warning: enough for the longest path.
const WARNING_BYTES_MAX: usize = 5 << 10;

pub(crate) struct Book<'sink> {
    sink: &'sink mut dyn EventSink,
    pub(crate) files: Files,
    /// The mappings before the first event.
    pub(crate) layout: Vec<LayoutEntry>,
    /// First address of the heap, 0 if unknown.
    pub(crate) brk: u64,
    /// Whether the recorder sees links between loads.
    pub(crate) has_links: bool,
    pub(crate) nr_processes: u32,
    nr_rows: u64,
    pub(crate) executions: Executions,
    /// The scripts that led to the first program.
    pub(crate) scripts: Vec<PathBuf>,
    nr_threads: u32,
    nr_references: u64,
    nr_invalid: u64,
    /// Warnings and how often each one came.
    warnings: BTreeMap<String, u64>,
    nr_warnings_lost: u64,
}

impl<'sink> Book<'sink> {
    pub(crate) fn new(sink: &'sink mut dyn EventSink) -> Self {
        Self {
            sink,
            files: Files::default(),
            layout: Vec::new(),
            brk: 0,
            has_links: false,
            nr_processes: 0,
            nr_rows: 0,
            executions: Executions::default(),
            scripts: Vec::new(),
            nr_threads: 0,
            nr_references: 0,
            nr_invalid: 0,
            warnings: BTreeMap::new(),
            nr_warnings_lost: 0,
        }
    }

    pub(crate) fn add_thread(&mut self) -> ThreadId {
        let id = self.nr_threads;
        self.nr_threads = id.saturating_add(1);
        id
    }

    pub(crate) fn nr_threads(&self) -> u32 {
        self.nr_threads
    }

    pub(crate) fn nr_rows(&self) -> u64 {
        self.nr_rows
    }

    pub(crate) fn nr_references(&self) -> u64 {
        self.nr_references
    }

    pub(crate) fn trace_bytes(&self) -> u64 {
        self.sink.bytes_written()
    }

    pub(crate) fn push_references(&mut self, rows: &[Event]) -> Result<(), TraceError> {
        self.nr_references += rows.iter().map(|row| row.len).sum::<u64>();
        self.nr_rows += rows.len() as u64;
        self.sink.push_rows(rows)
    }

    pub(crate) fn push_runs(&mut self, thread: ThreadId, runs: &[Run]) -> Result<(), TraceError> {
        self.nr_references += runs.iter().map(|run| run.count()).sum::<u64>();
        self.nr_rows += runs.len() as u64;
        self.sink.push_runs(thread, runs)
    }

    /// Records the reads of scripts that an execve makes, by the first program's first thread.
    pub(crate) fn push_scripts(&mut self, thread: ThreadId) -> Result<(), TraceError> {
        for script in std::mem::take(&mut self.scripts) {
            let Some(file) = self.files.add_path(&script) else { continue };
            let len = self.files.size_bytes(file).min(SCRIPT_HEAD_BYTES);
            let (aux, file) = (u64::MAX, Some(file));
            self.push(Event { len, aux, file, ..Event::new(thread, Op::Pread) })?;
        }
        Ok(())
    }

    /// Records that the kernel stored to these pages for a thread.
    pub(crate) fn push_stores(
        &mut self,
        thread: ThreadId,
        pages: &[u64],
    ) -> Result<(), TraceError> {
        let runs: Vec<Run> =
            pages.iter().filter_map(|&page| Run::new(Op::Write, page, 1, 0)).collect();
        self.push_runs(thread, &runs)
    }

    pub(crate) fn push(&mut self, event: Event) -> Result<(), TraceError> {
        if event.validate().is_err() {
            self.nr_invalid += 1;
            return Ok(());
        }
        self.nr_rows += 1;
        self.sink.push_rows(&[event])
    }

    pub(crate) fn push_mmap(
        &mut self,
        event: Event,
        prot: u32,
        map: u32,
    ) -> Result<(), TraceError> {
        self.push(Event { flags: mmap_flags(prot, map), aux: huge_size_of(map), ..event })
    }

    pub(crate) fn push_fork(
        &mut self,
        parent: ThreadId,
        child: ThreadId,
        flags: u32,
    ) -> Result<(), TraceError> {
        self.push(Event { aux: child.into(), flags, ..Event::new(parent, Op::Fork) })
    }

    /// Records that a process became `image`; returns false if the trace is full.
    pub(crate) fn push_execve(
        &mut self,
        thread: ThreadId,
        command: Vec<String>,
        image: Image,
    ) -> Result<bool, TraceError> {
        let program = image.layout.iter().find(|entry| entry.kind == LayoutKind::Program);
        let file = program.and_then(|entry| entry.file);
        let Some(row) = self.executions.add(command, image) else { return Ok(false) };
        self.push(Event { aux: row.into(), file, ..Event::new(thread, Op::Execve) })?;
        Ok(true)
    }

    pub(crate) fn push_exit(
        &mut self,
        thread: ThreadId,
        kind: ExitKind,
        status: u64,
    ) -> Result<(), TraceError> {
        self.push(Event { pos: status, flags: kind as u32, ..Event::new(thread, Op::Exit) })
    }

    /// Adds a warning. A repeated sentence is only counted.
    pub(crate) fn warn(&mut self, sentence: impl Into<String>) {
        self.warn_times(sentence, 1);
    }

    pub(crate) fn warn_times(&mut self, sentence: impl Into<String>, nr: u64) {
        let is_full = self.warnings.len() >= WARNINGS_MAX;
        let mut sentence = sentence.into();
        sentence.truncate(sentence.floor_char_boundary(WARNING_BYTES_MAX));
        if is_full && !self.warnings.contains_key(&sentence) {
            self.nr_warnings_lost = self.nr_warnings_lost.saturating_add(nr);
        } else if nr > 0 {
            let times = self.warnings.entry(sentence).or_insert(0);
            *times = times.saturating_add(nr);
        }
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        if self.nr_invalid > 0 {
            let nr = self.nr_invalid;
            self.warn(format!(
                "{nr} system calls were omitted because a trace cannot represent their arguments."
            ));
        }
        self.warn_times(LEFT_OUT, self.files.nr_left_out());
        let warnings = std::mem::take(&mut self.warnings);
        let nr_lost = std::mem::take(&mut self.nr_warnings_lost);
        let lost = (nr_lost > 0).then(|| format!("{nr_lost} more warnings are not shown."));
        let sentence = |(text, nr): (String, u64)| {
            if nr > 1 { format!("{text} ({nr} times)") } else { text }
        };
        warnings.into_iter().map(sentence).chain(lost).collect()
    }
}
