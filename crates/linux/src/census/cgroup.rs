//! Control groups: the processes in one, and the group of a unit, a container or a process.
//!
//! ```text
//!   /sys/fs/cgroup                        version 2; version 1 has one tree per controller below it
//!     system.slice/db.service             unit db.service
//!     system.slice/docker-ID.scope        container ID: 64 hexadecimal digits, with any prefix
//!     kubepods.slice/../cri-containerd-ID.scope
//! ```
//!
//! Owns the directory walk. Versions 1 and 2 both list processes in `cgroup.procs`.
//!
//! Invariants:
//! - G1: at most `GROUPS_MAX` groups are visited, however deep the nesting.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::proc::Task;
pub use crate::proc::cgroup::MemoryLimit;
use crate::proc::cgroup::{self, MOUNTS, TREES_OF_V1};
use crate::system::System;

pub(super) const LIST: &str = "cgroup.procs";
/// Groups visited: no one builds deeper or wider trees by hand.
const GROUPS_MAX: usize = 1 << 16;
/// The suffix of units that contain other units.
const SLICE: &str = ".slice";
/// Digits in a container id; tools show the first twelve.
const ID_LEN: usize = 64;
const SHORT_ID_LEN: usize = 12;
/// Names of similar units listed for a missing one.
const NR_LIKE_MAX: usize = 5;

/// Lists the processes of `dir` and the groups below it, ascending.
///
/// # Errors
/// If its list cannot be read, with the file's path. Descendant groups that disappear are skipped.
pub(crate) fn pids(system: &dyn System, dir: &Path) -> Result<Vec<u32>, (PathBuf, io::Error)> {
    let dir = find_dir(system, dir);
    let mut pids = BTreeSet::new();
    let path = dir.join(LIST);
    pids.extend(numbers(&system.text(&path).map_err(|error| (path, error))?));
    each_below(system, &dir, &mut |group| {
        pids.extend(numbers(&system.text(&group.join(LIST)).unwrap_or_default()));
    });
    Ok(pids.into_iter().collect())
}

/// Returns the directory as given, or below a cgroup root.
fn find_dir(system: &dyn System, dir: &Path) -> PathBuf {
    // `/proc/PID/cgroup` writes it as `/system.slice/db.service`.
    let inside = dir.strip_prefix("/").unwrap_or(dir);
    let roots = MOUNTS.iter().chain(&TREES_OF_V1).map(|root| Path::new(root).join(inside));
    let mut groups = std::iter::once(dir.to_owned()).chain(roots);
    groups.find(|group| system.text(&group.join(LIST)).is_ok()).unwrap_or_else(|| dir.to_owned())
}

/// Parses the list. 0 is a process in another PID namespace.
fn numbers(text: &[u8]) -> Vec<u32> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    lines.filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

fn each_below(system: &dyn System, dir: &Path, each: &mut dyn FnMut(&Path)) {
    let below = |dir: &Path| -> Vec<PathBuf> {
        let names = system.folders(dir).unwrap_or_default();
        names.into_iter().map(|name| dir.join(name)).collect()
    };
    let mut dirs = below(dir);
    let mut nr = 0;
    while let Some(dir) = dirs.pop().filter(|_| nr < GROUPS_MAX) {
        nr += 1;
        each(&dir);
        dirs.extend(below(&dir));
    }
}

/// Returns a unit's groups in every tree, or the names of similar units.
pub(super) fn of_unit(system: &dyn System, unit: &str) -> Result<Vec<PathBuf>, Vec<String>> {
    let name = if is_unit(unit) { unit.to_owned() } else { format!("{unit}.service") };
    // The processes of `postgresql` are in postgresql@15-main.service.
    let stem = unit.split(['.', '@']).next().unwrap_or(unit);
    let (mut groups, mut like) = (Vec::new(), BTreeSet::new());
    each_below(system, Path::new(MOUNTS[0]), &mut |group| {
        let Some(own) = group.file_name().and_then(|own| own.to_str()) else { return };
        if own == name {
            groups.push(group.to_owned());
        } else if like.len() < NR_LIKE_MAX && is_unit(own) && own.contains(stem) {
            like.insert(own.to_owned());
        }
    });
    if groups.is_empty() { Err(like.into_iter().collect()) } else { Ok(groups) }
}

/// Returns whether this names a unit with processes. The processes of a slice are in its units.
fn is_unit(name: &str) -> bool {
    is_inner(name) || name.ends_with(SLICE)
}

fn is_inner(name: &str) -> bool {
    [".service", ".scope"].iter().any(|kind| name.ends_with(kind))
}

/// Returns the groups of containers with an id that starts with `id`, and those ids.
pub(super) fn of_container(system: &dyn System, id: &str) -> Vec<(String, PathBuf)> {
    let mut groups = Vec::new();
    each_below(system, Path::new(MOUNTS[0]), &mut |group| {
        let own = group.file_name().and_then(|own| container_id(own.to_str()?));
        if let Some(own) = own.filter(|own| own.starts_with(id)) {
            groups.push((own.to_owned(), group.to_owned()));
        }
    });
    groups
}

/// Extracts the id from names such as `docker-ID.scope`, `ID`, `crio-ID`, `x:cri-containerd:ID`.
fn container_id(name: &str) -> Option<&str> {
    // podman and CRI-O run a monitor next to the container.
    if name.contains("conmon") {
        return None;
    }
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit(['-', ':']).next()?;
    (id.len() == ID_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// Returns the memory limits that apply to any of these processes, each group once, by name.
#[must_use]
pub fn limits(system: &dyn System, pids: &[u32]) -> Vec<MemoryLimit> {
    let own = |pid: &u32| Task::of(system, *pid).cgroups().ok();
    let of_processes: BTreeSet<Vec<u8>> = pids.iter().filter_map(own).collect();
    let limits = of_processes.iter().flat_map(|own| cgroup::limits_of(system, own));
    let by_group: BTreeMap<_, _> = limits.map(|limit| (limit.group.clone(), limit)).collect();
    by_group.into_values().collect()
}

/// A process's group as written in `/proc/PID/cgroup`, such as `/system.slice/db.service`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(pub String);

impl Group {
    /// Reads a process's group. It is the root if the process has no other group or has exited.
    #[must_use]
    pub fn of(system: &dyn System, pid: u32) -> Self {
        Self(Task::of(system, pid).cgroup().unwrap_or_else(|| "/".to_owned()))
    }

    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        let mut parts = self.0.rsplit('/');
        parts.find(|part| is_inner(part))
    }

    /// The first digits of the id of the container it is in.
    #[must_use]
    pub fn container(&self) -> Option<&str> {
        self.0.rsplit('/').find_map(container_id).map(|id| &id[..SHORT_ID_LEN])
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::{Live, MemSystem};

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn machine(groups: &[&str]) -> (tempfile::TempDir, MemSystem) {
        let dir = tempfile::tempdir().unwrap();
        for (nr, group) in groups.iter().enumerate() {
            let path = dir.path().join("sys/fs/cgroup").join(group);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(LIST), format!("{}\n0\n", nr + 1)).unwrap();
        }
        let system = MemSystem::from_dir(dir.path());
        (dir, system)
    }

    #[test]
    fn groups_below_count_and_a_missing_one_is_named() {
        let (_dir, system) = machine(&["a", "a/b", "c"]);
        for name in ["a", "/a", "/sys/fs/cgroup/a"] {
            assert_eq!(pids(&system, Path::new(name)).unwrap(), [1, 2], "{name}");
        }
        let (path, _) = pids(&system, Path::new("none")).unwrap_err();
        assert_eq!(path, Path::new("none/cgroup.procs"));
    }

    #[test]
    fn a_relative_group_of_this_machine_is_found() {
        let root = MOUNTS.iter().map(Path::new).find(|root| root.join(LIST).exists());
        let Some(root) = root else { return };
        let own = fs::read_dir(root).unwrap().flatten().find(|one| one.path().join(LIST).exists());
        let Some(group) = own.map(|one| one.path()) else { return };
        assert_eq!(find_dir(&Live, Path::new(group.file_name().unwrap())), group);
    }

    #[test]
    fn a_unit_is_a_group_of_its_name_anywhere() {
        let units = [
            "system.slice/db.service",
            "user.slice/user-1.slice/user@1.service/app.slice/db.service",
            "system.slice/postgresql@15-main.service",
        ];
        let (_dir, system) = machine(&units);
        assert_eq!(of_unit(&system, "db").unwrap().len(), 2);
        assert_eq!(of_unit(&system, "postgresql@15-main.service").unwrap().len(), 1);
        let like = of_unit(&system, "postgresql.service").unwrap_err();
        assert_eq!(like, ["postgresql@15-main.service"]);
    }

    #[test]
    fn a_container_is_found_however_its_group_is_called() {
        let name = |form: &str| form.replace("ID", ID);
        for form in ["docker-ID.scope", "ID", "crio-ID", "kubepods-pod1:cri-containerd:ID"] {
            let (_dir, system) = machine(&[&format!("system.slice/{}", name(form))]);
            assert_eq!(of_container(&system, "0123456789ab").len(), 1, "{form}");
            assert!(of_container(&system, "1123").is_empty(), "{form}");
        }
        for other in [name("libpod-conmon-ID.scope"), "docker-abc.scope".to_owned()] {
            assert_eq!(container_id(&other), None, "{other}");
        }
    }

    #[test]
    fn a_group_knows_its_unit_and_container() {
        let group = Group(format!("/system.slice/docker-{ID}.scope/init"));
        assert_eq!(group.unit(), Some(&*format!("docker-{ID}.scope")));
        assert_eq!(group.container(), Some("0123456789ab"));
        let slice = Group("/user.slice/x.slice".to_owned());
        assert_eq!((slice.unit(), slice.container()), (None, None));
    }
}
