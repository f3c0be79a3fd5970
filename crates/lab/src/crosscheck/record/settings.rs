//! Large folio settings, read before and after a run, because another process may change them.
//!
//! Owns the list and the comparison. A change that is undone between two readings is missed;
//! therefore, a program whose result differs runs again.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::facts::fault_around_bytes;
use largefolio_linux::proc::thp::THP;
use largefolio_linux::setting::Setting;

/// Files in a settings folder that are counters or descriptions.
const NOT_SETTINGS: [&str; 3] = ["full_scans", "pages_collapsed", "hpage_pmd_size"];
/// Subfolders with counters.
const COUNTERS: &str = "stats";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<PathBuf, String>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SettingChange {
    pub setting: String,
    /// The earlier or expected value.
    pub from: String,
    pub to: String,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, from, to } = self;
        write!(f, "{setting} changed from {from} to {to}")
    }
}

impl Settings {
    /// Reads all settings that affect the folios of memory and files.
    #[must_use]
    pub fn now() -> Self {
        let mut settings = Self::below(Path::new(THP));
        if let Some(bytes) = fault_around_bytes() {
            settings.0.insert(PathBuf::from("fault_around_bytes"), bytes.to_string());
        }
        settings
    }

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

    pub(super) fn set(&mut self, path: PathBuf, value: &str) {
        self.0.insert(path, value.to_owned());
    }

    pub(super) fn others(&self, name: &str, values: &[&str]) -> Option<(&Path, &str)> {
        let named = self.0.iter().filter(|(path, _)| path.ends_with(name));
        let mut others = named.filter(|(_, value)| !values.contains(&value.as_str()));
        others.next().map(|(path, value)| (path.as_path(), value.as_str()))
    }

    #[must_use]
    pub fn changes(&self, later: &Self) -> Vec<SettingChange> {
        let change = |(path, from): (&PathBuf, &String)| {
            let to = later.0.get(path).filter(|to| *to != from)?;
            let setting = path.display().to_string();
            Some(SettingChange { setting, from: from.clone(), to: to.clone() })
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
