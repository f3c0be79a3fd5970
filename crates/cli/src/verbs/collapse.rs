//! `folio collapse`.

use std::fmt::Write as _;
use std::io;

use anyhow::Result;
use clap::{Args, ValueEnum};
use largefolio_linux::collapse::{self, CollapseKind, Outcome, Request};
use largefolio_report::cells::Cells;
use largefolio_report::figures;
use largefolio_report::json;
use rustix::io::Errno;
use serde::Serialize;

use super::values::{self, Form, FormArgs};
use crate::console::Console;
use crate::errors::Exit;
use crate::verbs::running;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// Collapse the memory of a running process into PMD folios
///
/// Every whole block of 2M in an area that has memory is copied into one folio, in place: addresses
/// and content stay. Works for anonymous memory, memfd and tmpfs; for files from Linux 7.2 on, on
/// ext4, XFS and btrfs. Holes of a block become memory: the resident size may grow and is reported.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio collapse 4242
  sudo folio collapse 4242 --kind anon --min-size 64M
  sudo folio collapse $(pidof postgres | cut -d' ' -f1) --json

Needs CAP_SYS_NICE and the right to trace the process: root.

Exit status: 0 something is in PMD folios now that was not, 1 nothing is, 2 error.")]
pub(crate) struct CollapseArgs {
    /// The process
    #[arg(value_name = "PID")]
    pid: u32,
    /// Kinds of memory
    #[arg(long, value_enum, value_delimiter = ',', default_value = "anon,shmem,file")]
    kind: Vec<KindName>,
    /// Leave smaller areas alone
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = values::size)]
    min_size: u64,
    #[command(flatten)]
    form: FormArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindName {
    /// Private memory without a file
    Anon,
    /// memfd, tmpfs, shared anonymous memory
    Shmem,
    /// Files: text and libraries
    File,
}

/// A collapse that is to be done.
pub(crate) struct CollapsePlan {
    request: Request,
    form: Form,
    command_line: Vec<String>,
}

impl CollapseArgs {
    /// Takes what was typed.
    pub(crate) fn plan(self, command_line: Vec<String>) -> CollapsePlan {
        let kinds = self.kind.iter().map(|kind| match kind {
            KindName::Anon => CollapseKind::Anon,
            KindName::Shmem => CollapseKind::Shmem,
            KindName::File => CollapseKind::File,
        });
        let request = Request { pid: self.pid, kinds: kinds.collect(), min_bytes: self.min_size };
        CollapsePlan { request, form: self.form.form(), command_line }
    }
}

impl CollapsePlan {
    /// Collapses and reports.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
        let outcome = collapse::run(&self.request, &self.command_line.join(" "))?;
        let report = Report::new(&self, &outcome);
        let text = match self.form {
            Form::Json => json::pretty(&report)?,
            Form::Csv => report.csv()?,
            Form::Text => report.text(),
        };
        console.deliver(text.as_bytes(), None)?;
        let is_more = outcome.kinds.values().any(|told| told.after_bytes > told.before_bytes);
        Ok(if is_more { Exit::Done } else { Exit::No })
    }
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    tool_version: &'static str,
    kernel: String,
    command_line: &'a [String],
    pid: u32,
    block_bytes: u64,
    elapsed_ms: f64,
    resident_before_bytes: u64,
    resident_after_bytes: u64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    kind: &'static str,
    nr_areas: u64,
    nr_blocks: u64,
    before_bytes: u64,
    after_bytes: u64,
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    errno: i32,
    nr_blocks: u64,
    reason: String,
}

impl<'a> Report<'a> {
    fn new(plan: &'a CollapsePlan, outcome: &Outcome) -> Self {
        let row = |(&kind, told): (&CollapseKind, &collapse::Collapsed)| Row {
            kind: kind.name(),
            nr_areas: told.nr_areas,
            nr_blocks: told.nr_blocks,
            before_bytes: told.before_bytes,
            after_bytes: told.after_bytes,
            refused: told
                .refused
                .iter()
                .map(|(&errno, &nr_blocks)| Refused {
                    errno,
                    nr_blocks,
                    reason: reason(kind, errno),
                })
                .collect(),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            kernel: running::release(),
            command_line: &plan.command_line,
            pid: plan.request.pid,
            block_bytes: outcome.block_bytes,
            elapsed_ms: outcome.elapsed.as_secs_f64() * 1e3,
            resident_before_bytes: outcome.resident_bytes.0,
            resident_after_bytes: outcome.resident_bytes.1,
            rows: outcome.kinds.iter().map(row).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let size = figures::size(self.block_bytes);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{:6} {:>6} {:>7}  mapped by {size} before -> after",
            "kind", "areas", "blocks"
        );
        for row in &self.rows {
            let (before, after) =
                (figures::bytes(row.before_bytes), figures::bytes(row.after_bytes));
            let Row { kind, nr_areas, nr_blocks, .. } = row;
            let _ = writeln!(text, "{kind:6} {nr_areas:>6} {nr_blocks:>7}  {before} -> {after}");
            for refused in &row.refused {
                let _ = writeln!(text, "       {} blocks: {}", refused.nr_blocks, refused.reason);
            }
        }
        let (before, after) = (self.resident_before_bytes, self.resident_after_bytes);
        let (before, after) = (figures::bytes(before), figures::bytes(after));
        let _ = writeln!(text, "resident {before} -> {after}; {:.1} ms", self.elapsed_ms);
        text
    }

    fn csv(&self) -> Result<String> {
        let mut writer = Cells::text();
        writer.record([
            "pid",
            "kind",
            "areas",
            "blocks",
            "before_bytes",
            "after_bytes",
            "refused",
        ])?;
        for row in &self.rows {
            let refused: u64 = row.refused.iter().map(|refused| refused.nr_blocks).sum();
            let numbers = [row.nr_areas, row.nr_blocks, row.before_bytes, row.after_bytes, refused];
            let mut fields = vec![self.pid.to_string(), row.kind.to_owned()];
            fields.extend(numbers.map(|number| number.to_string()));
            writer.record(fields)?;
        }
        Ok(writer.into_text()?)
    }
}

/// What an error number of the kernel means for a kind of memory.
fn reason(kind: CollapseKind, errno: i32) -> String {
    let said = io::Error::from_raw_os_error(errno);
    let why = match (kind, Errno::from_raw_os_error(errno)) {
        (CollapseKind::File, Errno::INVAL) => {
            "files of this filesystem are not collapsed by this kernel; start the program with \
             folio run --text large"
        }
        (_, Errno::INVAL) => "nothing to collapse: empty, not aligned or not eligible",
        (_, Errno::AGAIN) => "pages were busy, pinned or shared with the kernel; try again",
        (_, Errno::BUSY) => "the memory control group is at its limit",
        (_, Errno::NOMEM) => {
            "no free folio: compact memory (echo 1 | sudo tee /proc/sys/vm/compact_memory), try again"
        }
        _ => "refused",
    };
    format!("{said}: {why}")
}
