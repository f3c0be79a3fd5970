//! The best remedies for a process that runs: those of `folio maps`, one for each mapping, those that
//! do the same together.
//!
//! Owns the choice among remedies. What one gains was checked with the verb that executes it
//! (`largefolio_linux::census::remedy`); which share of a run that is cannot be known without a recording.

use std::fmt::Write as _;

use largefolio_linux::census::remedy::{Remedy, Restart};
use largefolio_linux::census::why::Finding;
use largefolio_report::ExportError;
use largefolio_report::cells::Cells;
use largefolio_report::figures::{self, printable};
use largefolio_trace::shown;
use serde::Serialize;

use crate::maps::{Look, MapsRequest, Whom};
use crate::{Error, Forms, Remark, running};

/// Version of the JSON's layout.
const SCHEMA_VERSION: u32 = 1;
/// Mappings that are judged: those with most memory.
const NR_JUDGED: usize = 2_000;
/// Mappings that a line names.
const NR_NAMED: usize = 3;
/// A gain that is too small to be worth a command.
const GAIN_BYTES_MIN: u64 = 1 << 20;

/// One command, and what it does for which mappings.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The remedy, with the gain of all mappings.
    #[serde(flatten)]
    pub remedy: Remedy,
    /// The mappings, most memory first.
    pub mappings: Vec<String>,
}

/// What to do for processes that run.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessAdvice {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    /// Names and ids of the processes.
    pub processes: Vec<(String, u32)>,
    /// What to do, the largest gain first.
    pub lines: Vec<Line>,
    #[serde(skip)]
    remarks: Vec<Remark>,
}

impl ProcessAdvice {
    /// Of the processes that `whom` means.
    ///
    /// # Errors
    /// What of `/proc` cannot be read at all; a process that is gone is a remark.
    pub fn of(whom: Whom, command_line: Vec<String>) -> Result<Self, Error> {
        let request = MapsRequest {
            whom,
            files: Vec::new(),
            page_cache: None,
            nr_judged: NR_JUDGED,
            command_line: command_line.clone(),
        };
        let look = request.look()?;
        let census = look.census();
        let names = census.iter().flat_map(|census| &census.processes);
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: running::release(),
            processes: names.map(|one| (one.name.clone(), one.pid)).collect(),
            lines: lines(&look),
            remarks: request.remarks(&look),
        })
    }

    /// What is missing in it.
    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// Whether there is something to do.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !self.lines.is_empty()
    }
}

fn lines(look: &Look) -> Vec<Line> {
    let Some(census) = look.census() else { return Vec::new() };
    let mut lines: Vec<Line> = Vec::new();
    for finding in look.findings() {
        let Some(best) = best(finding) else { continue };
        let mapping = &census.processes[finding.process].mappings[finding.mapping];
        let path = mapping.vma.path.to_string_lossy();
        let name = if path.is_empty() { "[anonymous]".into() } else { path };
        match lines.iter_mut().find(|line| line.remedy.is_like(best)) {
            Some(line) => {
                line.remedy.gain_bytes = line.remedy.gain_bytes.saturating_add(best.gain_bytes);
                line.remedy.extra_bytes = line.remedy.extra_bytes.saturating_add(best.extra_bytes);
                if !line.mappings.iter().any(|one| *one == name) {
                    line.mappings.push(name.into_owned());
                }
            }
            None => lines.push(Line { remedy: best.clone(), mappings: vec![name.into_owned()] }),
        }
    }
    lines.retain(|line| line.remedy.gain_bytes >= GAIN_BYTES_MIN);
    lines.sort_by_key(|line| std::cmp::Reverse(line.remedy.gain_bytes));
    lines
}

/// The remedy that gains most; of those that gain alike the one without a restart.
fn best(finding: &Finding) -> Option<&Remedy> {
    let known = finding.remedies.iter().filter(|remedy| remedy.is_some());
    known.max_by_key(|remedy| (remedy.gain_bytes, remedy.restart == Restart::None))
}

impl Forms for ProcessAdvice {
    fn text(&self) -> String {
        let mut out = String::new();
        let names: Vec<String> =
            self.processes.iter().map(|(name, pid)| format!("{} ({pid})", shown(name))).collect();
        // A String takes everything.
        let _ = writeln!(out, "{}: what gives it larger folios", names.join(", "));
        if self.lines.is_empty() {
            let _ = writeln!(out, "\nNothing gains a MiB; folio maps says why for each mapping.");
        }
        for (nr, line) in self.lines.iter().enumerate() {
            let _ = writeln!(out, "\n  {}. {}", nr + 1, printable(&line.remedy.to_string()));
            let first: Vec<String> =
                line.mappings.iter().take(NR_NAMED).map(|name| shown(name).to_string()).collect();
            let more = match line.mappings.len().saturating_sub(NR_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let mut gain = format!(
                "gains {} in {}{more}",
                figures::bytes(line.remedy.gain_bytes),
                first.join(", ")
            );
            if line.remedy.extra_bytes > 0 {
                let _ = write!(
                    gain,
                    ", takes up to {} more memory",
                    figures::bytes(line.remedy.extra_bytes)
                );
            }
            let _ = writeln!(out, "     {gain}");
            for (what, text) in
                [("costs", &line.remedy.cost), ("to take it back", &line.remedy.undo)]
            {
                if !text.is_empty() {
                    let _ = writeln!(out, "     {what}: {}", printable(text));
                }
            }
        }
        let _ = writeln!(
            out,
            "\n- Which share of a run this is, only a recording can tell: folio advise -- CMD. folio verify \
             --server proves it for a service."
        );
        out
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut out = Vec::new();
        let mut cells = Cells::new(&mut out);
        cells.record([
            "command",
            "start",
            "restart",
            "gain_bytes",
            "extra_bytes",
            "undo",
            "cost",
            "mappings",
        ])?;
        for line in &self.lines {
            let remedy = &line.remedy;
            let restart = match remedy.restart {
                Restart::None => "none",
                Restart::After => "after",
                Restart::Around => "around",
            };
            cells.record([
                remedy.command.as_str(),
                &remedy.start,
                restart,
                &remedy.gain_bytes.to_string(),
                &remedy.extra_bytes.to_string(),
                &remedy.undo,
                &remedy.cost,
                &line.mappings.join(" "),
            ])?;
        }
        cells.flush()?;
        drop(cells);
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}
