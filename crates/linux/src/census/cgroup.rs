//! The processes of a control group and of all groups below it.
//!
//! Owns the walk of directories; versions 1 and 2 both list processes in `cgroup.procs`.

use std::fs;
use std::path::{Path, PathBuf};

use super::CensusError;
use crate::proc::cgroup::MOUNTS;

/// The processes of a group, one a line.
const LIST: &str = "cgroup.procs";
/// Groups visited: deeper or wider trees are not made by people.
const GROUPS_MAX: usize = 1 << 16;

/// Processes of the group `dir`, ascending.
///
/// # Errors
/// When its list cannot be read. Groups below that vanish are passed over.
pub fn pids(dir: &Path) -> Result<Vec<u32>, CensusError> {
    let read = |dir: &Path| {
        let path = dir.join(LIST);
        fs::read_to_string(&path).map_err(|source| CensusError::Cgroup { path, source })
    };
    let dir = &found(dir);
    let mut pids: Vec<u32> = numbers(&read(dir)?);
    let mut dirs = below(dir);
    let mut nr = 0;
    while let Some(dir) = dirs.pop().filter(|_| nr < GROUPS_MAX) {
        nr += 1;
        pids.extend(read(&dir).map_or_else(|_| Vec::new(), |text| numbers(&text)));
        dirs.extend(below(&dir));
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// The directory as it was named, or below the root of the groups, where a relative one is not here.
fn found(dir: &Path) -> PathBuf {
    let roots = MOUNTS.iter().map(|root| Path::new(root).join(dir));
    let mut groups = std::iter::once(dir.to_owned()).chain(roots);
    groups.find(|group| group.join(LIST).exists()).unwrap_or_else(|| dir.to_owned())
}

/// 0 stands for processes of other PID namespaces.
fn numbers(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).map(|entries| entries.flatten().collect::<Vec<_>>());
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries
        .unwrap_or_default()
        .iter()
        .filter(|entry| is_dir(entry))
        .map(fs::DirEntry::path)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_group_is_found_below_the_root_of_the_groups() {
        let root = MOUNTS.iter().map(Path::new).find(|root| root.join(LIST).exists());
        let Some(root) = root else { return };
        let own = fs::read_dir(root).unwrap().flatten().find(|one| one.path().join(LIST).exists());
        let Some(group) = own.map(|one| one.path()) else { return };
        let name = Path::new(group.file_name().unwrap());
        assert_eq!(found(name), group);
        assert_eq!(found(Path::new("no/such")), Path::new("no/such"));
    }

    #[test]
    fn groups_below_count_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.procs"), "7\n0\n").unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/cgroup.procs"), "3\n7\n").unwrap();
        assert_eq!(pids(dir.path()).unwrap(), [3, 7]);
        let error = pids(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none/cgroup.procs") && error.contains("control group"), "{error}");
    }
}
