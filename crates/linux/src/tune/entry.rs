//! The recorded settings and files.

use serde::{Deserialize, Serialize};

use crate::persist::FilePlace;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) schema_version: u32,
    /// A reboot reverts every setting that no file makes again.
    pub(super) boot_id: String,
    pub(super) changes: Vec<Entry>,
    #[serde(default)]
    pub(super) files: Vec<FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub old: String,
    /// The values that plans wrote, or were about to write.
    pub given: Vec<String>,
    #[serde(default)]
    pub is_persisted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub place: FilePlace,
    /// Texts the file can contain: the last one, and the previous one if a replacement was
    /// interrupted.
    pub(super) texts: Vec<String>,
    pub(super) nr_folders: usize,
}
