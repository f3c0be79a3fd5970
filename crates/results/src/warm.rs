//! The results for each file, as a table, JSON or CSV.

use std::fmt::Write as _;
use std::path::Path;

use largefolio_linux::persist::Planned;
use largefolio_linux::shell::quoted;
use largefolio_linux::warm::{WarmRefusal, Warmed};
use largefolio_report::ExportError;
use largefolio_report::cells::Cells;
use largefolio_report::figures::{self, printable};
use largefolio_trace::shown;
use serde::Serialize;

use crate::files::{self, FileRow};
use crate::{Forms, Remark, running};

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 2;

#[derive(Debug, Serialize)]
struct WarmRow {
    path: String,
    filesystem: String,
    file_bytes: u64,
    /// Smallest folios that count.
    folio_bytes: u64,
    possible_bytes: u64,
    /// In such folios; absent where the kernel does not tell.
    before_bytes: Option<u64>,
    after_bytes: Option<u64>,
    elapsed_ms: f64,
    refusal: Option<&'static str>,
    reason: Option<String>,
    remedy: Option<String>,
    #[serde(skip)]
    is_large: bool,
    #[serde(skip)]
    is_short: bool,
}

impl WarmRow {
    fn of(warmed: &Warmed) -> Self {
        let refusal = warmed.refusal.as_ref();
        Self {
            path: warmed.path.to_string_lossy().into_owned(),
            filesystem: warmed.filesystem.clone(),
            file_bytes: warmed.file_bytes,
            folio_bytes: warmed.folio_bytes,
            possible_bytes: warmed.possible_bytes,
            before_bytes: warmed.before_bytes,
            after_bytes: warmed.after_bytes,
            elapsed_ms: warmed.elapsed.as_secs_f64() * 1e3,
            refusal: refusal.map(WarmRefusal::name),
            reason: refusal.map(ToString::to_string),
            remedy: refusal.map(|refusal| refusal.remedy().replace("FILE", &quoted(&warmed.path))),
            is_large: warmed.is_complete() || warmed.is_enlarged() || warmed.is_unseen(),
            is_short: warmed.is_short(),
        }
    }

    /// Whether a run could make more of it large.
    fn could_grow(&self) -> bool {
        let hopeless = [
            "too_small",
            "not_cached",
            "no_thp",
            "old_kernel",
            "low_memory",
            "low_group",
            "in_use",
        ];
        !self.refusal.is_some_and(|refusal| hopeless.contains(&refusal))
    }
}

/// What of each file is in large folios now, and what is in the way of more.
#[derive(Debug, Serialize)]
pub struct WarmResult {
    schema_version: u32,
    tool_version: &'static str,
    kernel: String,
    command_line: Vec<String>,
    is_check: bool,
    rows: Vec<WarmRow>,
    /// Files that could not be examined, with the reason.
    failed: Vec<(String, String)>,
    /// Units that were written, so that the files are warmed again.
    units: Vec<FileRow>,
}

impl WarmResult {
    /// Of no file yet.
    #[must_use]
    pub fn new(command_line: Vec<String>, is_check: bool) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            kernel: running::release(),
            command_line,
            is_check,
            rows: Vec::new(),
            failed: Vec::new(),
            units: Vec::new(),
        }
    }

    /// What became of a file.
    pub fn add(&mut self, warmed: &Warmed) {
        self.rows.push(WarmRow::of(warmed));
    }

    /// Units that were written.
    pub fn wrote(&mut self, units: &[Planned]) {
        self.units.extend(units.iter().map(FileRow::written));
    }

    /// The files that could not be examined.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        self.failed.iter().map(|(_, told)| Remark::Missing(told.clone())).collect()
    }

    /// A file that could not be examined.
    pub fn fail(&mut self, path: &Path, reason: String) {
        let name = shown(path).to_string();
        let path = path.to_string_lossy().into_owned();
        let reason = if reason.contains(&name) { reason } else { format!("{name}: {reason}") };
        self.failed.push((path, reason));
    }

    /// Whether something is in large folios, or could be where only that was asked.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        let is_yes = |row: &WarmRow| {
            row.is_large || (self.is_check && row.could_grow() && row.possible_bytes > 0)
        };
        self.rows.iter().any(is_yes)
    }
}

impl Forms for WarmResult {
    fn text(&self) -> String {
        let units = files::text(&self.units);
        if self.rows.is_empty() {
            return units;
        }
        let mut text = String::new();
        let head = if self.is_check { "large now" } else { "large before -> after" };
        // Writing to a string cannot fail, here and below.
        let _ =
            writeln!(text, "{:>11}  {:>8}  {head:>24}  {:>9}  file", "bytes", "large is", "time");
        for row in &self.rows {
            let large = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), figures::bytes);
            let before = large(row.before_bytes);
            let state = if row.possible_bytes == 0 {
                format!("shorter than {}", figures::size(row.folio_bytes))
            } else if self.is_check {
                before
            } else {
                format!("{before} -> {}", large(row.after_bytes))
            };
            let time = format!("{:.1} ms", row.elapsed_ms);
            let (bytes, path) = (figures::bytes(row.file_bytes), printable(&row.path));
            let size = figures::size(row.folio_bytes) + if row.is_short { "+" } else { "" };
            let _ = writeln!(text, "{bytes:>11}  {size:>8}  {state:>24}  {time:>9}  {path}");
            let told = row.reason.as_ref().zip(row.remedy.as_ref());
            if let Some((reason, remedy)) = told.filter(|_| row.possible_bytes > 0) {
                let _ = writeln!(text, "{:>13}{reason}; {remedy}", "");
            }
        }
        if !units.is_empty() {
            let _ = write!(
                text,
                "\nunits that warm the files again, at boot and after an upgrade\n{units}"
            );
        }
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut writer = Cells::text();
        writer.record([
            "path",
            "filesystem",
            "file_bytes",
            "possible_bytes",
            "before_bytes",
            "after_bytes",
            "elapsed_ms",
            "refusal",
            "folio_bytes",
        ])?;
        for row in &self.rows {
            let number = |bytes: Option<u64>| bytes.map_or_else(String::new, |b| b.to_string());
            writer.record([
                row.path.as_str(),
                &row.filesystem,
                &row.file_bytes.to_string(),
                &row.possible_bytes.to_string(),
                &number(row.before_bytes),
                &number(row.after_bytes),
                &format!("{:.3}", row.elapsed_ms),
                row.refusal.unwrap_or_default(),
                &row.folio_bytes.to_string(),
            ])?;
        }
        writer.into_text()
    }
}
