//! Control groups: memory limits of versions 1 and 2, this process's group, and a group's CPU time.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::number;
use crate::system::System;

/// The mount points of version 2, alone or together with version 1.
pub const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The version 1 trees that contain all processes of a service or container.
pub(crate) const TREES_OF_V1: [&str; 2] = ["/sys/fs/cgroup/systemd", MEMORY_OF_V1];
/// The version 1 tree of the memory controller.
pub const MEMORY_OF_V1: &str = "/sys/fs/cgroup/memory";

/// Lists a group's processes; writing a pid moves that process into the group.
const PROCS: &str = "cgroup.procs";

/// The memory to compare with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// Also includes cold cached files, because reclaim takes them first.
    WithColdFiles,
}

struct Names {
    max: &'static str,
    current: &'static str,
    /// A line of `memory.stat`.
    cold_files: &'static str,
}

const V2: Names =
    Names { max: "memory.max", current: "memory.current", cold_files: "inactive_file" };
const V1: Names = Names {
    max: "memory.limit_in_bytes",
    current: "memory.usage_in_bytes",
    cold_files: "total_inactive_file",
};
/// Version 1 shows "no limit" as the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MemoryLimit {
    pub group: String,
    pub max_bytes: u64,
    /// Charged to it and its descendants.
    pub used_bytes: u64,
    /// The part in cached files that were not used recently.
    pub cold_file_bytes: u64,
}

impl MemoryLimit {
    pub(crate) fn room_bytes(&self, room: Room) -> u64 {
        let cold = if room == Room::Free { 0 } else { self.cold_file_bytes };
        self.max_bytes.saturating_sub(self.used_bytes.saturating_sub(cold))
    }
}

/// Returns how much this process can take before a limit of its group or an ancestor.
pub(crate) fn room_bytes(system: &dyn System, room: Room) -> Option<u64> {
    let own = system.text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    limits_of(system, &own).iter().map(|limit| limit.room_bytes(room)).min()
}

/// Returns the lowest limit of this process's group and its ancestors.
pub(crate) fn limit_bytes(system: &dyn System) -> Option<u64> {
    let own = system.text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    limits_of(system, &own).iter().map(|limit| limit.max_bytes).min()
}

/// Returns a process's group and ancestors that have a limit; `own` is its `/proc/PID/cgroup`.
pub(crate) fn limits_of(system: &dyn System, own: &[u8]) -> Vec<MemoryLimit> {
    let v2 = own_path(own).into_iter().flat_map(|path| MOUNTS.map(|mount| (mount, path, &V2)));
    let v1 = memory_path(own).into_iter().map(|path| (MEMORY_OF_V1, path, &V1));
    let limits = v2.chain(v1).flat_map(|(mount, path, names)| {
        let groups = Path::new(path).ancestors();
        groups.filter_map(move |group| limit_of(system, Path::new(mount), group, names))
    });
    limits.collect()
}

fn own_path(own: &[u8]) -> Option<&str> {
    let path = own.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::/"))?;
    str::from_utf8(path).ok()
}

fn memory_path(own: &[u8]) -> Option<&str> {
    let lines = own.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    let mut parts = lines.filter_map(|line| line.split_once(':')?.1.split_once(":/"));
    parts.find_map(|(names, path)| names.split(',').any(|one| one == "memory").then_some(path))
}

/// Returns the directory of this process's group; `None` if version 2 is not mounted.
pub(crate) fn own(system: &dyn System) -> Option<PathBuf> {
    let own = system.text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let path = own_path(&own).filter(|path| !path.split('/').any(|part| part == ".."))?;
    let groups = MOUNTS.iter().map(|mount| Path::new(mount).join(path));
    groups.into_iter().find(|group| system.text(&group.join(PROCS)).is_ok())
}

/// Returns the version 2 group in `own`, a `/proc/PID/cgroup`, and its file `name`.
pub(crate) fn file_of(system: &dyn System, own: &[u8], name: &str) -> Option<(String, PathBuf)> {
    let path = own_path(own).filter(|path| !path.split('/').any(|part| part == ".."))?;
    let files = MOUNTS.iter().map(|mount| Path::new(mount).join(path).join(name));
    let file = files.into_iter().find(|file| system.text(file).is_ok())?;
    Some((format!("/{path}"), file))
}

/// Moves process `pid` to the roots of the trees in which whole groups are killed, because a
/// service that ends or runs out of memory kills its group. If this is refused, the process stays.
pub(crate) fn leave(pid: u32) {
    let [systemd, _] = TREES_OF_V1;
    for tree in MOUNTS.into_iter().chain([systemd]) {
        // Never created: with version 1 trees, the first mount is only a directory.
        let procs = OpenOptions::new().write(true).open(Path::new(tree).join(PROCS));
        let _ = procs.and_then(|mut procs| procs.write_all(pid.to_string().as_bytes()));
    }
}

/// Returns the user and kernel CPU time of a group's processes, including those that ended.
pub(crate) fn cpu(system: &dyn System, group: &Path) -> Option<[Duration; 2]> {
    let text = system.text(&group.join("cpu.stat")).ok()?;
    let of = |name| entry(&text, name).map(Duration::from_micros);
    Some([of("user_usec")?, of("system_usec")?])
}

fn limit_of(system: &dyn System, mount: &Path, group: &Path, names: &Names) -> Option<MemoryLimit> {
    let dir = mount.join(group);
    let max_bytes = number(system, &dir.join(names.max)).filter(|&max| max < NO_LIMIT)?;
    let used_bytes = number(system, &dir.join(names.current))?;
    let stat = system.text(&dir.join("memory.stat")).unwrap_or_default();
    let cold_file_bytes = entry(&stat, names.cold_files).unwrap_or(0);
    let group = format!("/{}", group.display());
    Some(MemoryLimit { group, max_bytes, used_bytes, cold_file_bytes })
}

/// Returns the number after a name in a file of such lines.
fn entry(text: &[u8], name: &str) -> Option<u64> {
    let mut lines = str::from_utf8(text).ok()?.lines().filter_map(|line| line.split_once(' '));
    lines.find_map(|(key, value)| (key == name).then(|| value.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::MemSystem;

    #[test]
    fn the_least_room_of_all_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        let mount = dir.path().join("sys/fs/cgroup");
        let inner = mount.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(dir.path().join("self")).unwrap();
        let put = |group: &Path, max: &str, current: &str| {
            fs::write(group.join("memory.max"), max).unwrap();
            fs::write(group.join("memory.current"), current).unwrap();
        };
        let room_bytes = |system: &MemSystem| room_bytes(system, Room::Free);
        assert_eq!(room_bytes(&system), None);
        fs::write(dir.path().join("self/cgroup"), "1:cpu:/x\n0::/a/b\n").unwrap();
        put(&inner, "max\n", "7\n");
        assert_eq!(room_bytes(&system), None);
        put(&mount.join("a"), "1000\n", "400\n");
        assert_eq!(room_bytes(&system), Some(600));
        put(&inner, "100\n", "400\n");
        assert_eq!(room_bytes(&system), Some(0));
        fs::write(dir.path().join("self/cgroup"), "0::/../../..\n").unwrap();
        assert_eq!(room_bytes(&system), None);
        assert_eq!(own(&system), None);
    }

    #[test]
    fn groups_of_version_1_have_limits_too_and_cold_files_are_room() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        let group = dir.path().join("sys/fs/cgroup/memory/a");
        fs::create_dir_all(&group).unwrap();
        fs::create_dir(dir.path().join("self")).unwrap();
        let own = "9:name=systemd:/\n4:cpu,memory:/a\n0::/\n";
        fs::write(dir.path().join("self/cgroup"), own).unwrap();
        let put = |name: &str, text: &str| fs::write(group.join(name), text).unwrap();
        put("memory.usage_in_bytes", "700\n");
        put("memory.stat", "cache 1\ntotal_inactive_file 300\n");
        put("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(room_bytes(&system, Room::Free), None);
        put("memory.limit_in_bytes", "1000\n");
        let rooms = [Room::Free, Room::WithColdFiles].map(|room| room_bytes(&system, room));
        assert_eq!(rooms, [Some(300), Some(600)]);
        put("memory.stat", "total_inactive_file -3\n");
        assert_eq!(room_bytes(&system, Room::WithColdFiles), Some(300));
    }

    #[test]
    fn cpu_time_of_a_group_is_read_and_nonsense_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        let group = dir.path().join("sys/fs/cgroup/a");
        fs::create_dir_all(&group).unwrap();
        fs::create_dir(dir.path().join("self")).unwrap();
        fs::write(dir.path().join("self/cgroup"), "0::/a\n").unwrap();
        assert_eq!(own(&system), None);
        fs::write(group.join("cgroup.procs"), "").unwrap();
        let own = own(&system).unwrap();
        assert_eq!(own, Path::new("/sys/fs/cgroup/a"));
        assert_eq!(cpu(&system, &own), None);
        fs::write(group.join("cpu.stat"), "usage_usec 9\nuser_usec 7\nsystem_usec 2\n").unwrap();
        let [user, system_time] = cpu(&system, &own).unwrap();
        assert_eq!((user.as_micros(), system_time.as_micros()), (7, 2));
        fs::write(group.join("cpu.stat"), "user_usec x\nsystem_usec -2\n").unwrap();
        assert_eq!(cpu(&system, &own), None);
    }
}
