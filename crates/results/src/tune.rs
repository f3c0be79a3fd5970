//! A plan, a change or an undo by `folio tune`, as text, CSV and JSON.

mod affected;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::ExportError;
use crate::cells::Cells;
use crate::figures::{bytes, counted, printable};
use crate::json;
use largefolio_linux::census::Census;
use largefolio_linux::persist::{Listed, Planned};
use largefolio_linux::tune::entry::Entry;
use largefolio_linux::tune::files::Taken;
use largefolio_linux::tune::plan::{ChangeSet, Missing};
use largefolio_linux::tune::record::Undone;
use largefolio_linux::tune::warnings::Warning;
use serde::Serialize;

use crate::files::{self, FileRow};
use crate::running;

pub use self::affected::needs_census;
use self::affected::{Affected, Effect};

const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct TuneRow {
    setting: String,
    now: String,
    /// The value after the command, or the planned one; empty if unchanged.
    then: String,
    result: &'static str,
    note: String,
}

#[derive(Debug, Serialize)]
pub struct TuneResult {
    title: String,
    rows: Vec<TuneRow>,
    missing: Vec<Missing>,
    /// Values that hurt many programs; this command does not change them.
    warnings: Vec<Warning>,
    /// Running programs that changes for all programs affect.
    affected: Vec<Affected>,
    files: Vec<FileRow>,
    hint: String,
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool_version: &'static str,
    kernel: String,
    command: &'a [String],
    #[serde(flatten)]
    view: &'a TuneResult,
}

#[must_use]
pub fn planned(
    plan: &ChangeSet,
    recorded: &[Entry],
    files: &[Planned],
    command: &str,
    undo: &str,
) -> TuneResult {
    let mut hints = Vec::new();
    if !plan.changes.is_empty() || !files.is_empty() {
        hints.push(format!("nothing was changed; to apply it: {command}"));
    }
    if !recorded.is_empty() {
        let names: Vec<_> = recorded.iter().map(|entry| entry.name.as_str()).collect();
        hints.push(format!(
            "changed earlier and not restored: {}; to restore: {undo}",
            names.join(", ")
        ));
    }
    let mut result = TuneResult {
        title: title(plan),
        rows: rows(plan, "planned"),
        missing: plan.missing.clone(),
        warnings: remaining_warnings(plan),
        affected: Vec::new(),
        files: files.iter().map(FileRow::planned).collect(),
        hint: hints.join("\n"),
    };
    if !files.is_empty() {
        result.add_title(format!("{} would be written", counted(files.len() as u64, "file")));
    }
    result
}

#[must_use]
pub fn applied(plan: &ChangeSet) -> TuneResult {
    let (rows, missing) = (rows(plan, "changed"), plan.missing.clone());
    let (title, warnings) = (title(plan), remaining_warnings(plan));
    let (affected, files) = (Vec::new(), Vec::new());
    TuneResult { title, rows, missing, warnings, affected, files, hint: String::new() }
}

fn remaining_warnings(plan: &ChangeSet) -> Vec<Warning> {
    let is_changed = |name: &str| plan.changes.iter().any(|change| change.name == name);
    plan.warnings.iter().filter(|warning| !is_changed(&warning.name)).cloned().collect()
}

fn title(plan: &ChangeSet) -> String {
    match plan.changes.len() {
        0 if plan.has_none() => "none of these settings exists on this system".to_owned(),
        0 if plan.kept.is_empty() => String::new(),
        0 if !plan.missing.is_empty() => "every setting that exists is already right".to_owned(),
        0 => "every setting is already right".to_owned(),
        1 => "1 setting changes".to_owned(),
        nr => format!("{nr} settings change"),
    }
}

fn rows(plan: &ChangeSet, result: &'static str) -> Vec<TuneRow> {
    let changes = plan.changes.iter().map(|change| TuneRow {
        setting: change.name.clone(),
        now: change.now.clone(),
        then: change.planned.clone(),
        result,
        note: change.why.clone(),
    });
    let kept = plan.kept.iter().map(|kept| TuneRow {
        setting: kept.name.clone(),
        now: kept.now.clone(),
        then: String::new(),
        result: "stays",
        note: String::new(),
    });
    changes.chain(kept).collect()
}

#[must_use]
pub fn undone(all: &[Undone]) -> TuneResult {
    let title = match all.len() {
        0 => "there is nothing to undo: no setting is recorded as changed".to_owned(),
        1 => "1 setting was recorded".to_owned(),
        nr => format!("{nr} settings were recorded"),
    };
    let row = |entry: &Entry, result, note: String| TuneRow {
        setting: entry.name.clone(),
        now: entry.given.last().cloned().unwrap_or_default(),
        then: entry.old.clone(),
        result,
        note,
    };
    let of = |one: &Undone| match one {
        Undone::Restored { entry } => row(entry, "put back", String::new()),
        Undone::WasBack { entry } => row(entry, "was back", String::new()),
        Undone::ChangedSince { entry, now } => {
            row(entry, "left", format!("it was changed to {now} later; --force overwrites it"))
        }
        Undone::Refused { entry, reason } => row(entry, "refused", reason.clone()),
    };
    TuneResult {
        title,
        rows: all.iter().map(of).collect(),
        missing: Vec::new(),
        warnings: Vec::new(),
        affected: Vec::new(),
        files: Vec::new(),
        hint: String::new(),
    }
}

impl TuneResult {
    #[must_use]
    pub fn wrote(mut self, all: &[Planned]) -> Self {
        let nr = all.iter().filter(|file| !file.is_unchanged()).count();
        if !all.is_empty() {
            self.add_title(match nr {
                0 => "no file changes".to_owned(),
                nr => format!("{} written", counted(nr as u64, "file")),
            });
        }
        self.files.extend(all.iter().map(FileRow::written));
        self
    }

    #[must_use]
    pub fn lists(mut self, all: &[Listed], undo: &str) -> Self {
        if !all.is_empty() {
            self.add_title(format!("{} written earlier", counted(all.len() as u64, "file")));
            if !self.hint.contains("--undo") {
                self.hint =
                    format!("{}\nto remove the files: {undo}", self.hint).trim_start().into();
            }
        }
        self.files.extend(all.iter().map(FileRow::listed));
        self
    }

    #[must_use]
    pub fn took(mut self, all: &[Taken]) -> Self {
        if !all.is_empty() {
            if self.rows.is_empty() {
                self.title.clear();
            }
            let were = if all.len() == 1 { "was" } else { "were" };
            self.add_title(format!("{} {were} recorded", counted(all.len() as u64, "file")));
        }
        self.files.extend(all.iter().map(FileRow::taken));
        self
    }

    /// Adds the running programs that the plan's changes affect; `settings` are the current values by
    /// name.
    #[must_use]
    pub fn affects(
        mut self,
        plan: &ChangeSet,
        settings: &BTreeMap<String, String>,
        census: &Census,
    ) -> Self {
        self.affected = affected::all(plan, settings, census);
        self
    }

    fn write_affected(&self, text: &mut String) {
        for Affected { setting, effect, programs, nr_more } in &self.affected {
            let what = match effect {
                Effect::Loses => "new memory gets smaller folios",
                Effect::MayGrow => "new memory gets larger folios, and may take more memory",
            };
            let names: Vec<String> = programs
                .iter()
                .map(|one| format!("{} ({})", printable(&one.name), bytes(one.bytes)))
                .collect();
            let more = if *nr_more > 0 { format!(" and {nr_more} more") } else { String::new() };
            let _ = writeln!(text, "\n{setting} affects {}{more}: {what}", names.join(", "));
        }
        let of = |wanted| self.affected.iter().any(|one| one.effect == wanted);
        if of(Effect::Loses) {
            text.push_str(
                "  -> for one program instead: folio run --thp off -- CMD; for one service: folio \
                 tune --unit NAME --thp off\n",
            );
        }
        if of(Effect::MayGrow) {
            text.push_str("  -> for one program instead: folio advise PID names its own option\n");
        }
    }

    fn add_title(&mut self, part: String) {
        self.title = if self.title.is_empty() { part } else { format!("{}; {part}", self.title) };
    }

    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let width = |of: fn(&TuneRow) -> &str| self.rows.iter().map(|row| of(row).len()).max();
        let setting = width(|row| &row.setting).unwrap_or(0);
        let now = width(|row| &row.now).unwrap_or(0);
        let then = width(|row| &row.then).unwrap_or(0);
        if !self.rows.is_empty() {
            text.push('\n');
        }
        for row in &self.rows {
            let arrow = if row.then.is_empty() { "  " } else { "->" };
            let line = format!(
                "  {:setting$}  {:>now$} {arrow} {:then$}  {:8}  {}",
                row.setting, row.now, row.then, row.result, row.note
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for missing in &self.missing {
            let _ = writeln!(text, "\nleft out: {}", missing.reason);
        }
        for Warning { name, now, reason, command } in &self.warnings {
            let _ = writeln!(text, "\nwarning: {name} is {now:?}: {reason}");
            if !command.is_empty() {
                let _ = writeln!(text, "  -> {command}");
            }
        }
        self.write_affected(&mut text);
        if !self.files.is_empty() {
            let _ = write!(text, "\n{}", files::text(&self.files));
        }
        if !self.hint.is_empty() {
            let _ = writeln!(text, "\n{}", self.hint);
        }
        text
    }

    /// Returns one row per setting, including missing ones, and one per file.
    ///
    /// # Errors
    /// Never in practice: writing to memory does not fail.
    pub fn csv(&self) -> Result<String, ExportError> {
        let mut writer = Cells::text();
        let has_rows = !self.rows.is_empty() || !self.missing.is_empty();
        if has_rows || !self.warnings.is_empty() || !self.files.is_empty() {
            writer.record(["setting", "now", "then", "result", "note"])?;
        }
        for TuneRow { setting, now, then, result, note } in &self.rows {
            writer.record([setting, now, then, *result, note])?;
        }
        for Missing { name, reason } in &self.missing {
            writer.record([name, "", "", "missing", reason])?;
        }
        for Warning { name, now, reason, .. } in &self.warnings {
            writer.record([name, now, "", "warning", reason])?;
        }
        for FileRow { file, result, note, .. } in &self.files {
            writer.record([file, "", "", *result, note])?;
        }
        writer.into_text()
    }

    /// # Errors
    /// Never in practice: names and values.
    pub fn json(&self, command: &[String]) -> Result<String, ExportError> {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            kernel: running::release(),
            command,
            view: self,
        };
        Ok(json::pretty(&document)?)
    }
}
