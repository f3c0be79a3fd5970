//! `folio trace info`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use largefolio_report::figures;
use largefolio_trace::{Batch, Meta, Op, Reader, ThreadId};
use serde::Serialize;

use crate::console::{self, Console};
use crate::errors::Exit;

/// Version of the JSON of this verb.
const SCHEMA_VERSION: u32 = 1;
/// Files listed in the text; the JSON has all.
const NR_FILES_SHOWN: usize = 40;

/// Show what a trace holds: program, size, files, rows by operation
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio trace info cc1.folio
  folio trace info cc1.folio --json | jq '.meta.files[].path'")]
pub(crate) struct InfoArgs {
    /// Trace
    trace: PathBuf,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// A trace that was opened.
pub(crate) struct InfoPlan {
    path: PathBuf,
    reader: Reader,
    is_json: bool,
}

impl InfoArgs {
    /// Opens the trace.
    pub(crate) fn plan(self) -> Result<InfoPlan> {
        let reader = Reader::open(&self.trace)?;
        Ok(InfoPlan { path: self.trace, reader, is_json: self.json })
    }
}

/// Rows of one operation.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct OpCount {
    nr_rows: u64,
    nr_references: u64,
}

/// What there is to say.
#[derive(Serialize)]
struct Info {
    schema_version: u32,
    tool_version: &'static str,
    path: String,
    file_bytes: u64,
    nr_threads: usize,
    ops: BTreeMap<&'static str, OpCount>,
    meta: Meta,
}

impl InfoPlan {
    /// Reads the trace and writes what it holds.
    pub(crate) fn run(mut self, console: &mut Console) -> Result<Exit> {
        let info = self.read()?;
        let text =
            if self.is_json { serde_json::to_string_pretty(&info)? + "\n" } else { info.text() };
        console.deliver(text.as_bytes(), None)?;
        Ok(Exit::Done)
    }

    fn read(&mut self) -> Result<Info> {
        let bar = console::bar(self.reader.meta().nr_rows, "reading");
        let (mut counts, mut threads) = ([OpCount::default(); Op::ALL.len()], BTreeSet::new());
        let (mut batch, mut last) = (Batch::default(), None);
        while self.reader.next_batch(&mut batch)? {
            count(&batch, &mut counts, &mut threads, &mut last);
            bar.set_position(self.reader.nr_read());
        }
        bar.finish_and_clear();
        let ops = Op::ALL.into_iter().zip(counts).filter(|(_, count)| count.nr_rows > 0);
        Ok(Info {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            path: self.path.to_string_lossy().into_owned(),
            file_bytes: self.reader.file_bytes(),
            nr_threads: threads.len(),
            ops: ops.map(|(op, count)| (op.name(), count)).collect(),
            meta: self.reader.meta().clone(),
        })
    }
}

/// Counts a batch; `last` spares the set of threads most of its work.
fn count(
    batch: &Batch,
    counts: &mut [OpCount; Op::ALL.len()],
    threads: &mut BTreeSet<ThreadId>,
    last: &mut Option<ThreadId>,
) {
    for ((&op, &len), &thread) in batch.ops().iter().zip(batch.lens()).zip(batch.threads()) {
        let count = &mut counts[usize::from(op)];
        count.nr_rows += 1;
        if Op::from_number(op).is_some_and(Op::is_reference) {
            count.nr_references += len;
        }
        if *last != Some(thread) {
            threads.insert(thread);
            *last = Some(thread);
        }
    }
}

impl Info {
    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.facts() {
            if !value.is_empty() {
                let _ = writeln!(text, "{name:<9} {}", figures::printable(&value));
            }
        }
        self.add_ops(&mut text);
        self.add_files(&mut text);
        for warning in &self.meta.warnings {
            let _ = writeln!(text, "\nwarning: {}", figures::printable(warning));
        }
        text
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let meta = &self.meta;
        let (references, rows) = (meta.nr_references, meta.nr_rows);
        let mut host = meta.kernel.clone();
        if !meta.machine.is_empty() {
            host = format!("Linux {host}, {}", meta.machine);
        }
        let mapped: u64 = meta.layout.iter().map(|entry| entry.len).fold(0, u64::saturating_add);
        vec![
            ("trace", self.path.clone()),
            ("command", meta.command.join(" ")),
            ("recorder", format!("{}, folio {}", meta.recorder, meta.tool_version)),
            ("host", host),
            ("seed", meta.seed.map(|seed| seed.to_string()).unwrap_or_default()),
            ("ended", meta.ended.clone()),
            (
                "size",
                format!(
                    "{} references in {} rows ({:.1} a row), {} ({:.3} bytes a reference)",
                    figures::count(references),
                    figures::count(rows),
                    figures::ratio(references, rows),
                    figures::bytes(self.file_bytes),
                    figures::ratio(self.file_bytes, references),
                ),
            ),
            ("threads", self.nr_threads.to_string()),
            ("layout", format!("{} mappings, {}", meta.layout.len(), figures::bytes(mapped))),
        ]
    }

    fn add_ops(&self, text: &mut String) {
        let _ = writeln!(text, "\n{:<12} {:>14} {:>18}", "operation", "rows", "references");
        for op in Op::ALL {
            let Some(count) = self.ops.get(op.name()) else { continue };
            let rows = figures::grouped(count.nr_rows);
            let references = match count.nr_references {
                0 => String::new(),
                nr => figures::grouped(nr),
            };
            let line = format!("{:<12} {rows:>14} {references:>18}", op.name());
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }

    fn add_files(&self, text: &mut String) {
        let files = &self.meta.files;
        if files.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{:>4} {:>12} {:<10} path", "file", "size", "filesystem");
        for (id, file) in files.iter().enumerate().take(NR_FILES_SHOWN) {
            let size = figures::bytes(file.size_bytes);
            let (filesystem, path) =
                (figures::printable(&file.filesystem), figures::printable(&file.path));
            let _ = writeln!(text, "{id:>4} {size:>12} {filesystem:<10} {path}");
        }
        if files.len() > NR_FILES_SHOWN {
            let nr_more = files.len() - NR_FILES_SHOWN;
            let _ = writeln!(text, "     and {nr_more} more; --json lists them");
        }
    }
}
