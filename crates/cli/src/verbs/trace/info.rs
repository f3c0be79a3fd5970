//! `folio trace info`.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_results::figures;
use largefolio_results::json;
use largefolio_trace::{Info, Op, Reader};

use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::confined;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// The text lists at most this many files; the JSON lists them all.
const NR_FILES_SHOWN: usize = 40;

/// Summarize a trace: its program, size, files and rows by operation
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

pub(crate) struct InfoPlan {
    path: PathBuf,
    reader: Reader,
    is_json: bool,
}

impl VerbArgs for InfoArgs {
    type Plan = InfoPlan;

    fn plan(self, _invocation: &Invocation<'_>) -> Result<Self::Plan> {
        confined::to(std::slice::from_ref(&self.trace), []);
        let reader = Reader::open(&self.trace)?;
        Ok(InfoPlan { path: self.trace, reader, is_json: self.json })
    }
}

impl VerbPlan for InfoPlan {
    fn run(mut self, console: &mut Console) -> Result<Exit> {
        let info = self.read()?;
        let text = if self.is_json { json::pretty(&info)? } else { text(&info) };
        console.deliver(text.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}

impl InfoPlan {
    fn read(&mut self) -> Result<Info> {
        let bar = console::bar(self.reader.meta().nr_rows, "reading");
        let info = Info::read(&self.path, &mut self.reader, &mut |nr_read| {
            bar.set_position(nr_read);
            ControlFlow::Continue(())
        });
        bar.finish_and_clear();
        info?.context("reading was interrupted")
    }
}

fn text(info: &Info) -> String {
    let mut text = String::new();
    for (name, value) in facts(info) {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<9} {}", figures::printable(&value));
        }
    }
    add_ops(info, &mut text);
    add_files(info, &mut text);
    for warning in &info.meta.warnings {
        let _ = writeln!(text, "\nwarning: {}", figures::printable(warning));
    }
    text
}

fn facts(info: &Info) -> Vec<(&'static str, String)> {
    let meta = &info.meta;
    let (references, rows) = (meta.nr_references, meta.nr_rows);
    let (what, one) = unit_names(info);
    let mut host = meta.kernel.clone();
    if !meta.machine.is_empty() {
        host = format!("Linux {host}, {}", meta.machine);
    }
    let mapped: u64 = meta.layout.iter().map(|entry| entry.len).fold(0, u64::saturating_add);
    vec![
        ("trace", info.path.clone()),
        ("command", meta.command.join(" ")),
        ("recorder", format!("{}, folio {}", meta.recorder, meta.tool_version)),
        (
            "program",
            if meta.arch.is_empty() { String::new() } else { format!("for {}", meta.arch) },
        ),
        ("host", host),
        ("seed", meta.seed.map(|seed| seed.to_string()).unwrap_or_default()),
        ("ended", meta.ended.clone()),
        (
            "size",
            format!(
                "{} {what} in {} rows ({:.1} per row), {} ({:.3} bytes per {one})",
                figures::count(references),
                figures::count(rows),
                figures::ratio(references, rows),
                figures::bytes(info.file_bytes),
                figures::ratio(info.file_bytes, references),
            ),
        ),
        (
            "recorded",
            meta.attached.map(|of| figures::recorded(references, &of)).unwrap_or_default(),
        ),
        ("threads", threads(info)),
        ("programs", programs(info)),
        (
            "links",
            format!("between loads: {}", if meta.links { "recorded" } else { "not recorded" }),
        ),
        ("layout", format!("{} mappings, {}", meta.layout.len(), figures::bytes(mapped))),
    ]
}

/// The noun for a row: plural and singular.
const fn unit_names(info: &Info) -> (&'static str, &'static str) {
    let is_of_faults = info.meta.faults_only && info.meta.attached.is_none();
    if is_of_faults { ("faults", "fault") } else { ("references", "reference") }
}

fn threads(info: &Info) -> String {
    match (info.nr_threads, info.nr_processes) {
        (threads, 1) => threads.to_string(),
        (threads, processes) => format!("{threads} in {processes} processes"),
    }
}

fn programs(info: &Info) -> String {
    let mut programs: Vec<_> = info.programs.iter().collect();
    if info.programs.values().sum::<u64>() < 2 {
        return String::new();
    }
    programs.sort_by_key(|&(path, nr)| (std::cmp::Reverse(nr), path));
    let named = programs.iter().take(NR_FILES_SHOWN).map(|(path, nr)| format!("{path} x{nr}"));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if programs.len() > NR_FILES_SHOWN {
        let _ = write!(text, ", and {} more", programs.len() - NR_FILES_SHOWN);
    }
    text
}

fn add_ops(info: &Info, text: &mut String) {
    let _ = writeln!(text, "\n{:<12} {:>14} {:>18}", "operation", "rows", unit_names(info).0);
    for op in Op::ALL {
        let Some(count) = info.ops.get(op.name()) else { continue };
        let rows = figures::grouped(count.nr_rows);
        let references = match count.nr_references {
            0 => String::new(),
            nr => figures::grouped(nr),
        };
        let line = format!("{:<12} {rows:>14} {references:>18}", op.name());
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn add_files(info: &Info, text: &mut String) {
    let files = &info.meta.files;
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
