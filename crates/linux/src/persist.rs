//! Files that make a change survive a reboot: what systemd and udev read.
//!
//! | place | file | what is in it |
//! |---|---|---|
//! | [`Place::Tmpfiles`] | `/etc/tmpfiles.d/largefolio.conf` | settings below `/sys` that exist from boot on |
//! | [`Place::Udev`] | `/etc/udev/rules.d/60-largefolio.rules` | readahead of disks, which appear later |
//! | [`Place::DropIn`] | `/etc/systemd/system/UNIT.d/50-largefolio.conf` | variables of a service |
//! | [`Place::Unit`] | `/etc/systemd/system/largefolio-warm-NAME.{service,path}` | `folio warm`, again after an upgrade |
//! | [`Place::Wanted`] | `multi-user.target.wants/` of that directory | a link: the unit starts at boot |
//!
//! Owns where these files are ([`place`]), what is in them ([`boot`], [`mod@unit`], [`mod@warm`]) and how they
//! are read and written (`folder`). Does not own the record of what was written, which decides what
//! may be replaced and removed: [`crate::tune`].
//!
//! Invariants:
//! - P1: a place is a word of a fixed list, or has a checked name in it: neither an argument nor a
//!   record leads to another file.
//! - P2: a text is rendered from checked values: none can end its line, or be expanded by systemd or
//!   udev.
//! - P3: no directory on the way to a file is a link, or belongs to anybody but root and the user, or
//!   can be written to by everybody.
//! - P4: under its name a file is complete; it is replaced and removed only if the record has its text.

pub mod boot;
pub(crate) mod folder;
pub mod manager;
pub mod place;
pub mod unit;
pub mod variables;
pub mod warm;

use std::path::PathBuf;

use serde::Serialize;

pub use place::Place;

/// Begins every file.
const HEADER: &str = "# Written by folio; `folio tune --undo` takes it back.\n";

/// What is to be in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub place: Place,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Lines that join those of earlier calls.
    Lines { section: &'static str, lines: Vec<Line> },
    /// All of the file, or where a link leads.
    Whole(String),
}

/// One line, and what it begins with: an earlier line that begins so is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) key: String,
    pub(crate) rest: String,
}

/// A file with all its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Where.
    pub place: Place,
    /// That place below the root.
    pub path: PathBuf,
    /// What will be in it; of a link, where it leads.
    pub text: String,
    /// What is in it now, if it is there; by the record it is ours.
    pub(crate) found: Option<String>,
    /// Directories on the way that are missing.
    pub(crate) nr_folders: usize,
}

/// A file that is there, or should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// That file.
    pub path: PathBuf,
    /// Whose it is.
    pub state: State,
}

/// What a file is to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is as folio wrote it.
    Persisted,
    /// Somebody has changed it since.
    Changed,
    /// Somebody has removed it.
    Missing,
    /// It has a name of ours, and this record does not list it.
    Unrecorded,
}

impl Planned {
    /// Whether it is there already, as it will be.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.found.as_ref() == Some(&self.text)
    }
}

impl Piece {
    /// The file's text, if it is `found` now.
    pub(crate) fn text(&self, found: Option<&str>) -> String {
        let (section, lines) = match &self.body {
            Body::Whole(text) => return text.clone(),
            Body::Lines { section, lines } => (section, lines),
        };
        let is_old = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
        let mut all: Vec<String> =
            found.unwrap_or_default().lines().filter(is_old).map(str::to_owned).collect();
        for line in lines {
            let text = format!("{}{}", line.key, line.rest);
            match all.iter_mut().find(|old| old.starts_with(&line.key)) {
                Some(old) => *old = text,
                None => all.push(text),
            }
        }
        format!("{HEADER}{section}{}\n", all.join("\n"))
    }
}

#[cfg(test)]
mod tests;
