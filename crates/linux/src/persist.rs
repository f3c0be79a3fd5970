//! Files through which a change survives a reboot: systemd and udev read them.
//!
//! | place | file | contents |
//! |---|---|---|
//! | [`FilePlace::Tmpfiles`] | `/etc/tmpfiles.d/largefolio.conf` | settings below `/sys` that exist from boot on |
//! | [`FilePlace::Udev`] | `/etc/udev/rules.d/60-largefolio.rules` | readahead of disks, which appear later |
//! | [`FilePlace::DropIn`] | `/etc/systemd/system/UNIT.d/50-largefolio.conf` | a service's variables and THP |
//! | [`FilePlace::InstanceDropIn`] | `/etc/systemd/system/NAME@X.service.d/51-largefolio.conf` | the same for one instance of a template |
//! | [`FilePlace::Unit`] | `/etc/systemd/system/largefolio-warm-NAME.{service,path}` | `folio warm`, again after an upgrade |
//! | [`FilePlace::Wanted`] | `multi-user.target.wants/` of that directory | a link: the unit starts at boot |
//!
//! [`crate::tune`] owns the record of written files, which determines what may be replaced and
//! removed.
//!
//! Invariants:
//! - P1: a place comes from a fixed list or contains a checked name, so neither an argument nor a
//!   record can lead to another file.
//! - P2: a text is rendered from checked values. None can end its line or be expanded by systemd or
//!   udev.
//! - P3: no directory on the way to a file is a link, belongs to a user other than root and this
//!   one, or is world-writable.
//! - P4: a file appears under its name only when it is complete. It is replaced and removed only if
//!   the record contains its text.

pub mod boot;
pub(crate) mod folder;
pub mod manager;
pub mod place;
mod service;
pub mod thp;
pub mod unit;
pub mod variables;
pub mod warm;

use std::path::PathBuf;

use largefolio_trace::shown;
use serde::Serialize;

pub use place::FilePlace;

#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("{name}: cannot be {value:?}; expected {expected}")]
    Value { name: String, value: String, expected: String },
    #[error("{what}: {message}")]
    Given { what: String, message: String },
    #[error("{}: {message}", shown(path))]
    File { path: PathBuf, message: String },
}

const HEADER: &str = "# Written by folio; `folio tune --undo` takes it back.\n";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePiece {
    pub place: FilePlace,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Lines {
        section: &'static str,
        /// Earlier lines with these prefixes go.
        replaced: Vec<&'static str>,
        lines: Vec<FileLine>,
    },
    Whole(String),
}

/// One line and its prefix. It replaces an earlier line with the same prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileLine {
    pub(crate) key: String,
    pub(crate) rest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub place: FilePlace,
    pub path: PathBuf,
    pub text: String,
    /// The current contents if it exists. According to the record it is ours.
    pub(crate) found: Option<String>,
    pub(crate) nr_folders: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub path: PathBuf,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Persisted,
    Changed,
    Missing,
    /// It has one of our names but is not in this record.
    Unrecorded,
}

impl Planned {
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.found.as_ref() == Some(&self.text)
    }
}

impl FilePiece {
    /// Adds the lines of another piece of the same file.
    pub fn add(&mut self, other: Self) {
        let (Body::Lines { replaced, lines, .. }, Body::Lines { replaced: more, lines: new, .. }) =
            (&mut self.body, other.body)
        else {
            return;
        };
        replaced.extend(more);
        lines.extend(new);
    }

    /// Whether a line of this or another drop-in sets the same.
    pub(crate) fn sets(&self, line: &str) -> bool {
        match &self.body {
            Body::Whole(_) => false,
            Body::Lines { replaced, lines, .. } => {
                replaced.iter().any(|prefix| line.starts_with(prefix))
                    || lines.iter().any(|own| line.starts_with(&own.key))
            }
        }
    }

    /// Returns the file's new text, if it contains `old` now.
    pub(crate) fn text(&self, old: Option<&str>) -> String {
        let (section, replaced, lines) = match &self.body {
            Body::Whole(text) => return text.clone(),
            Body::Lines { section, replaced, lines } => (section, replaced, lines),
        };
        let is_old = |line: &&str| {
            let is_replaced = replaced.iter().any(|prefix| line.starts_with(prefix));
            !line.is_empty() && !line.starts_with(['#', '[']) && !is_replaced
        };
        let mut all: Vec<String> =
            old.unwrap_or_default().lines().filter(is_old).map(str::to_owned).collect();
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
