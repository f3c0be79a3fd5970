//! The results per file, as a table, JSON or CSV.

use std::fmt::Write as _;
use std::path::Path;

use crate::ExportError;
use crate::cells::Cells;
use crate::figures::{self, printable};
use largefolio_linux::persist::Planned;
use largefolio_linux::warm::{WarmRefusal, Warmed};
use largefolio_trace::shown;
use serde::Serialize;

use crate::files::{self, FileRow};
use crate::{Forms, Remark, running};

const SCHEMA_VERSION: u32 = 2;

#[derive(Debug, Serialize)]
struct WarmRow {
    path: String,
    filesystem: String,
    file_bytes: u64,
    /// The smallest folio size that counts, in bytes.
    folio_bytes: u64,
    possible_bytes: u64,
    /// Bytes in folios of at least that size; `None` if the kernel does not report it.
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
            remedy: refusal.map(|refusal| refusal.remedy(&warmed.path)),
            is_large: warmed.is_complete() || warmed.is_enlarged() || warmed.is_unseen(),
            is_short: warmed.is_short(),
        }
    }

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

fn sum(rows: &[WarmRow], of: impl Fn(&WarmRow) -> Option<u64>) -> Option<u64> {
    rows.iter().try_fold(0, |sum: u64, row| Some(sum.saturating_add(of(row)?)))
}

fn headline(rows: &[WarmRow], is_check: bool) -> String {
    let possible = sum(rows, |row| Some(row.possible_bytes)).unwrap_or_default();
    if possible == 0 {
        return "No file is long enough for a large folio.".to_owned();
    }
    let all = figures::bytes(possible);
    let before = sum(rows, |row| row.before_bytes);
    let known = if is_check { before } else { sum(rows, |row| row.after_bytes) };
    let now = if is_check { "" } else { " now" };
    let mut text = match known {
        None => format!("The kernel does not report how much of {all} is in large folios{now}"),
        Some(0) => format!("None of {all} is in large folios{now}"),
        Some(large) if large == possible => format!("All of {all} is in large folios{now}"),
        Some(large) => format!("{} of {all} is in large folios{now}", figures::bytes(large)),
    };
    if !is_check {
        match before {
            None => {}
            Some(0) => text += "; none was before",
            Some(before) => text.extend(["; ", &figures::bytes(before), " was before"]),
        }
    } else if known.is_some_and(|known| known < possible) {
        let more = |row: &WarmRow| match row.before_bytes {
            Some(before) if row.could_grow() => row.possible_bytes.saturating_sub(before),
            _ => 0,
        };
        match sum(rows, |row| Some(more(row))).unwrap_or_default() {
            0 => text += "; warming cannot add more at present",
            more => text.extend(["; warming could add ", &figures::bytes(more)]),
        }
    }
    text + "."
}

/// How much of each file is in large folios now, and what prevents more.
#[derive(Debug, Serialize)]
pub struct WarmResult {
    schema_version: u32,
    tool_version: &'static str,
    kernel: String,
    command_line: Vec<String>,
    is_check: bool,
    rows: Vec<WarmRow>,
    failed: Vec<(String, String)>,
    units: Vec<FileRow>,
}

impl WarmResult {
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

    pub fn add(&mut self, warmed: &Warmed) {
        self.rows.push(WarmRow::of(warmed));
    }

    pub fn wrote(&mut self, units: &[Planned]) {
        self.units.extend(units.iter().map(FileRow::written));
    }

    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        self.failed.iter().map(|(_, reason)| Remark::Missing(reason.clone())).collect()
    }

    pub fn fail(&mut self, path: &Path, reason: String) {
        let name = shown(path).to_string();
        let path = path.to_string_lossy().into_owned();
        let reason = if reason.contains(&name) { reason } else { format!("{name}: {reason}") };
        self.failed.push((path, reason));
    }

    /// Returns whether something is in large folios, or with `--check`, could be.
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
        let mut text = headline(&self.rows, self.is_check) + "\n\n";
        let head = if self.is_check { "large now" } else { "large before -> after" };
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
            let advice = row.reason.as_ref().zip(row.remedy.as_ref());
            if let Some((reason, remedy)) = advice.filter(|_| row.possible_bytes > 0) {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(possible: u64, before: Option<u64>, after: Option<u64>, is_used: bool) -> WarmRow {
        let refusal = is_used.then_some(WarmRefusal::InUse { bytes: possible, pids: vec![1] });
        WarmRow::of(&Warmed {
            path: "f".into(),
            file_bytes: possible,
            filesystem: "ext4".to_owned(),
            folio_bytes: 2 << 20,
            possible_bytes: possible << 20,
            before_bytes: before.map(|mib| mib << 20),
            after_bytes: after.map(|mib| mib << 20),
            elapsed: Duration::ZERO,
            refusal,
        })
    }

    #[test]
    fn the_headline_reports_large_and_possible_bytes() {
        let check = |rows: &[WarmRow]| headline(rows, true);
        assert_eq!(
            check(&[row(0, None, None, false)]),
            "No file is long enough for a large folio."
        );
        let free = || row(8, Some(2), Some(2), false);
        let used = || row(8, Some(2), Some(2), true);
        let whole = || row(8, Some(8), Some(8), false);
        assert_eq!(
            check(&[free(), used(), whole()]),
            "12 MiB of 24 MiB is in large folios; warming could add 6 MiB."
        );
        assert_eq!(
            check(&[used(), whole()]),
            "10 MiB of 16 MiB is in large folios; warming cannot add more at present."
        );
        assert_eq!(check(&[whole()]), "All of 8 MiB is in large folios.");
        let unseen = "The kernel does not report how much of 16 MiB is in large folios.";
        assert_eq!(check(&[whole(), row(8, None, None, false)]), unseen);
    }

    #[test]
    fn the_headline_reports_the_outcome() {
        let warmed = |rows: &[WarmRow]| headline(rows, false);
        let filled = row(8, Some(0), Some(8), false);
        assert_eq!(warmed(&[filled]), "All of 8 MiB is in large folios now; none was before.");
        let part = row(8, Some(2), Some(4), true);
        let text = "4 MiB of 8 MiB is in large folios now; 2 MiB was before.";
        assert_eq!(warmed(&[part]), text);
        let foreign = row(8, None, Some(0), false);
        assert_eq!(warmed(&[foreign]), "None of 8 MiB is in large folios now.");
    }
}
