//! Settings of large folios, read before and after a run: somebody else may change them meanwhile.
//!
//! Owns the list and the comparison. A change that was put back between two readings is not seen;
//! therefore a program that differs is run again.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::facts::fault_around_bytes;
use crate::proc::thp::THP;
use crate::setting::Setting;

/// Files of a folder of settings that count or describe.
const NOT_SETTINGS: [&str; 3] = ["full_scans", "pages_collapsed", "hpage_pmd_size"];
/// Folders below the settings that hold counters.
const COUNTERS: &str = "stats";

/// Values by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<PathBuf, String>);

/// A setting that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Change {
    /// File.
    pub setting: String,
    /// Value it had, or should have had.
    pub from: String,
    /// Value that was found.
    pub to: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, from, to } = self;
        write!(f, "{setting} changed from {from} to {to}")
    }
}

impl Settings {
    /// Those of the running system that decide which folios memory and files get.
    #[must_use]
    pub fn now() -> Self {
        let mut settings = Self::below(Path::new(THP));
        if let Some(bytes) = fault_around_bytes() {
            settings.0.insert(PathBuf::from("fault_around_bytes"), bytes.to_string());
        }
        settings
    }

    /// All files below a folder. What cannot be read is no setting.
    pub(super) fn below(folder: &Path) -> Self {
        let mut settings = Self::default();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() && name != COUNTERS {
                settings.0.extend(Self::below(&path).0);
            } else if !NOT_SETTINGS.contains(&name.as_ref())
                && let Ok(value) = Setting::read(&path)
            {
                settings.0.insert(path, value);
            }
        }
        settings
    }

    /// The same with another value.
    pub(super) fn set(&mut self, path: PathBuf, value: &str) {
        self.0.insert(path, value.to_owned());
    }

    /// Settings with one of these names that have none of these values.
    pub(super) fn others(&self, name: &str, values: &[&str]) -> Option<(&Path, &str)> {
        let named = self.0.iter().filter(|(path, _)| path.ends_with(name));
        let mut others = named.filter(|(_, value)| !values.contains(&value.as_str()));
        others.next().map(|(path, value)| (path.as_path(), value.as_str()))
    }

    /// What is different in `later`.
    #[must_use]
    pub fn changes(&self, later: &Self) -> Vec<Change> {
        let change = |(path, from): (&PathBuf, &String)| {
            let to = later.0.get(path).filter(|to| *to != from)?;
            let setting = path.display().to_string();
            Some(Change { setting, from: from.clone(), to: to.clone() })
        };
        self.0.iter().filter_map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_setting_is_named_with_both_values() {
        let folder = tempfile::tempdir().unwrap();
        let size = folder.path().join("hugepages-64kB");
        fs::create_dir_all(size.join("stats")).unwrap();
        let shmem = folder.path().join("shmem_enabled");
        fs::write(&shmem, "always within_size advise [never] deny force\n").unwrap();
        fs::write(size.join("enabled"), "always inherit [madvise] never\n").unwrap();
        fs::write(size.join("stats/anon_fault_alloc"), "7\n").unwrap();
        fs::write(folder.path().join("hpage_pmd_size"), "2097152\n").unwrap();
        let before = Settings::below(folder.path());
        assert_eq!(before.0.len(), 2);
        assert_eq!(before.changes(&Settings::below(folder.path())), []);
        assert_eq!(before.others("shmem_enabled", &["never", "deny"]), None);
        fs::write(&shmem, "always within_size [advise] never deny force\n").unwrap();
        fs::write(size.join("stats/anon_fault_alloc"), "8\n").unwrap();
        let after = Settings::below(folder.path());
        let changes: Vec<String> = before.changes(&after).iter().map(ToString::to_string).collect();
        assert_eq!(changes, [format!("{} changed from never to advise", shmem.display())]);
        assert_eq!(after.others("shmem_enabled", &["never"]), Some((shmem.as_path(), "advise")));
    }
}
