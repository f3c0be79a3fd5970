//! A memory cgroup with a limit, for one workload.
//!
//! Owns the group's lifetime. The probe joins and leaves it by itself (`probe/pressure.h`).
//!
//! Invariant G1: a group is removed when its value is dropped, or by the next process that makes
//! one if this process was killed. The probe ends with its parent, and the group contains no other
//! process.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CrosscheckError;
use largefolio_linux::proc::Task;
use largefolio_linux::proc::cgroup::{MEMORY_OF_V1, MOUNTS};
use largefolio_linux::proc::host;
use largefolio_linux::system::Live;

const PREFIX: &str = "folio-crosscheck-";
const LIMITS: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];
/// Counter updates that can be pending per CPU (`MEMCG_CHARGE_BATCH`).
const NR_WAITING: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    Absent,
    /// Folios and the kernel's own memory.
    OfAllMemory,
    /// Only folios (`cgroup.memory=nokmem`, cgroup version 2).
    OfFolios,
}

#[derive(Debug)]
pub(super) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes a group limited to `bytes`, after removing the groups of processes that have ended.
    pub(super) fn with_limit(bytes: &str) -> Result<Self, CrosscheckError> {
        let tree = tree().ok_or(CrosscheckError::NoMemoryGroups)?;
        remove_stale(&tree);
        let path = tree.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(CrosscheckError::file(&path))?;
        let group = Self(path);
        let limit = LIMITS.iter().map(|name| group.0.join(name)).find(|path| path.exists());
        let limit = limit.ok_or(CrosscheckError::NoMemoryGroups)?;
        fs::write(&limit, bytes).map_err(CrosscheckError::file(&limit))?;
        Ok(group)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Fails only while a process is in the group, but the probe has ended.
        let _ = fs::remove_dir(&self.0);
    }
}

pub(super) fn limits() -> Limits {
    match tree() {
        None => Limits::Absent,
        Some(tree) if host::has_no_kmem(&Live) && !tree.starts_with(MEMORY_OF_V1) => {
            Limits::OfFolios
        }
        Some(_) => Limits::OfAllMemory,
    }
}

/// Returns how many faults flush a group's counters: more than can be pending on all CPUs.
pub(super) fn nr_refresh_faults() -> u64 {
    NR_WAITING * (host::nr_cpus(&Live) + 1) + 2
}

/// Returns the folder for groups with a limit: below the root, because a process can leave to it.
fn tree() -> Option<PathBuf> {
    let has_memory = |mount: &&&str| {
        let given = fs::read_to_string(Path::new(mount).join("cgroup.subtree_control"));
        given.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory"))
    };
    let of_v2 = MOUNTS.iter().find(has_memory).map(PathBuf::from);
    let v1 = Path::new(MEMORY_OF_V1);
    let of_v1 = v1.join(LIMITS[1]).exists().then(|| v1.to_owned());
    of_v2.or(of_v1)
}

fn remove_stale(tree: &Path) {
    for entry in fs::read_dir(tree).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if pid.parse::<u32>().is_ok() && !Task::of(&Live, pid).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{PREFIX, remove_stale};

    #[test]
    fn groups_of_processes_that_are_gone_are_removed() {
        let tree = tempfile::tempdir().unwrap();
        let group = |name: &str| tree.path().join(name);
        // The limit of pids is 4194304, so no process has this one.
        let dead = group(&format!("{PREFIX}4194304"));
        let kept = [group(&format!("{PREFIX}{}", std::process::id())), group("folio-crosscheck-x")];
        for path in kept.iter().chain([&dead]) {
            fs::create_dir(path).unwrap();
        }
        remove_stale(tree.path());
        assert!(!dead.exists());
        assert!(kept.iter().all(|path| path.exists()));
    }
}
