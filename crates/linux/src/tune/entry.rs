//! What is written down of settings and files before they change.

use serde::{Deserialize, Serialize};

use crate::persist::Place;

/// Old values on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) schema_version: u32,
    /// A reboot puts every setting back that no file makes again.
    pub(super) boot_id: String,
    pub(super) changes: Vec<Entry>,
    #[serde(default)]
    pub(super) files: Vec<FileEntry>,
}

/// One setting: what it was, and what it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name in the catalogue.
    pub name: String,
    /// Before the first plan.
    pub old: String,
    /// What each plan gave it, or was about to when it ended.
    pub given: Vec<String>,
    /// Whether a file makes it again at every boot.
    #[serde(default)]
    pub is_persisted: bool,
}

/// A file, and what folio wrote to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Where.
    pub place: Place,
    /// What it may have in it: the last text, and the one before if that was being replaced.
    pub(super) texts: Vec<String>,
    /// Directories that were made for it.
    pub(super) nr_folders: usize,
}
