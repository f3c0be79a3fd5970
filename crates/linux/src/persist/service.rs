//! A service's settings, as its unit and its drop-ins have them.
//!
//! Reads files in systemd's order. Skips folio's own drop-in, because its lines
//! replace each other.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::read_whole;

use super::place::{DROP_IN, ServiceName, UNIT_FOLDERS};

pub(super) const UNIT_BYTES_MAX: u64 = 1 << 20;
const NR_DROP_INS_MAX: usize = 256;

/// Returns the lines of all `[Service]` sections: name and value, in the order in which they apply.
pub(super) fn settings(unit: &ServiceName, root: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for file in files_of(unit, root) {
        let text = read_whole(&file, UNIT_BYTES_MAX).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
        let mut is_service = false;
        for line in joined.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_service) else { continue };
            all.push((key.trim_end().to_owned(), value.trim_start().to_owned()));
        }
    }
    all
}

/// Returns the unit, then its drop-ins by name. A file in an earlier folder hides files of the same
/// name. A template's drop-ins apply to its instances.
fn files_of(unit: &ServiceName, root: &Path) -> Vec<PathBuf> {
    let names: Vec<String> = unit.names().collect();
    let folders = || UNIT_FOLDERS.iter().map(|folder| root.join(folder));
    let units = names.iter().flat_map(|name| folders().map(move |folder| folder.join(name)));
    let mut files: Vec<PathBuf> = units.filter(|file| file.is_file()).take(1).collect();
    let mut drop_ins: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for name in &names {
        for folder in folders() {
            let Ok(entries) = fs::read_dir(folder.join(format!("{name}.d"))) else { continue };
            for entry in entries.flatten().take(NR_DROP_INS_MAX) {
                let path = entry.path();
                let is_ours = entry.file_name() == DROP_IN;
                if path.extension() == Some(OsStr::new("conf")) && !is_ours {
                    drop_ins.entry(entry.file_name()).or_insert(path);
                }
            }
        }
    }
    files.extend(drop_ins.into_values());
    files
}
