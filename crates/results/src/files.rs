//! Rows for system files that folio wrote, would write, or has removed.

use std::fmt::Write as _;

use crate::figures::printable;
use largefolio_linux::persist::{Listed, Planned, State};
use largefolio_linux::shell::as_root;
use largefolio_linux::tune::files::{Removal, Taken};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct FileRow {
    pub(crate) file: String,
    pub(crate) result: &'static str,
    pub(crate) note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip)]
    is_shown: bool,
}

impl FileRow {
    pub(crate) fn planned(file: &Planned) -> Self {
        Self { is_shown: true, ..Self::of(file, "planned") }
    }

    pub(crate) fn written(file: &Planned) -> Self {
        Self::of(file, "written")
    }

    fn of(file: &Planned, result: &'static str) -> Self {
        let (result, note) = if file.is_unchanged() { ("stays", "") } else { (result, "") };
        let text = Some(file.text.clone());
        Self { text, ..Self::plain(&file.path, result, note) }
    }

    pub(crate) fn listed(file: &Listed) -> Self {
        let root_note =
            || format!("not in this user's record; {} shows root's", as_root("folio tune"));
        let (result, note) = match file.state {
            State::Persisted => ("persisted", String::new()),
            State::Changed => ("changed", "it was changed after folio wrote it".to_owned()),
            State::Missing => ("missing", "it was removed after folio wrote it".to_owned()),
            State::Unrecorded => ("not recorded", root_note()),
        };
        Self::plain(&file.path, result, &note)
    }

    pub(crate) fn taken(file: &Taken) -> Self {
        match &file.outcome {
            Removal::Removed => Self::plain(&file.path, "removed", ""),
            Removal::WasGone => Self::plain(&file.path, "was gone", ""),
            Removal::ChangedSince => {
                let note = "it was changed later; --force removes it";
                Self::plain(&file.path, "left", note)
            }
            Removal::Refused(reason) => Self::plain(&file.path, "refused", reason),
        }
    }

    fn plain(path: &std::path::Path, result: &'static str, note: &str) -> Self {
        let (file, note) = (path.to_string_lossy().into_owned(), note.to_owned());
        Self { file, result, note, text: None, is_shown: false }
    }
}

pub(crate) fn text(rows: &[FileRow]) -> String {
    let mut text = String::new();
    let width = rows.iter().map(|row| printable(&row.file).chars().count()).max().unwrap_or(0);
    for row in rows {
        let line = format!("  {:width$}  {}  {}", printable(&row.file), row.result, row.note);
        let _ = writeln!(text, "{}", line.trim_end());
        let lines = row.text.as_deref().filter(|_| row.is_shown).unwrap_or_default();
        for line in lines.lines() {
            let _ = writeln!(text, "{}", format!("      {}", printable(line)).trim_end());
        }
    }
    text
}
