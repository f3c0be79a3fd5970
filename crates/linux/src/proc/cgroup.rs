//! Control groups, version 2: memory limits, the group of this process, CPU time of a group.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::number;
use crate::system::System;

/// Where version 2 is mounted, alone or beside version 1.
pub(crate) const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Trees of version 1 that have all processes of a service or container.
pub(crate) const TREES_OF_V1: [&str; 2] = ["/sys/fs/cgroup/systemd", MEMORY_OF_V1];
/// The one with memory groups.
pub(crate) const MEMORY_OF_V1: &str = "/sys/fs/cgroup/memory";

/// Bytes that this process may still take before a limit of its group or of one above; `None`
/// without a limit.
pub(crate) fn room_bytes(system: &dyn System) -> Option<u64> {
    let path = own_path(system)?;
    let rooms = MOUNTS.iter().flat_map(|mount| {
        let group = Path::new(mount).join(&path);
        let above: Vec<_> = group.ancestors().map(Path::to_owned).collect();
        above.into_iter().take_while(move |group| group.starts_with(mount))
    });
    rooms.filter_map(|group| room_of(system, &group)).min()
}

/// The group of this process, below the mount.
fn own_path(system: &dyn System) -> Option<String> {
    let own = system.text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let path = own.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::/"))?;
    Some(std::str::from_utf8(path).ok()?.to_owned())
}

/// Directory of the group of this process; `None` where version 2 is not mounted.
pub(crate) fn own(system: &dyn System) -> Option<PathBuf> {
    let path = own_path(system).filter(|path| !path.split('/').any(|part| part == ".."))?;
    let groups = MOUNTS.iter().map(|mount| Path::new(mount).join(&path));
    groups.into_iter().find(|group| system.text(&group.join("cgroup.procs")).is_ok())
}

/// CPU time of the processes of a group, those that ended too: in user mode and in the kernel.
pub(crate) fn cpu(system: &dyn System, group: &Path) -> Option<[Duration; 2]> {
    let text = system.text(&group.join("cpu.stat")).ok()?;
    let lines = std::str::from_utf8(&text).ok()?.lines();
    let of = |name| {
        let mut values = lines.clone().filter_map(|line| line.split_once(' '));
        values.find_map(|(key, value)| (key == name).then(|| value.parse().ok())?)
    };
    Some([Duration::from_micros(of("user_usec")?), Duration::from_micros(of("system_usec")?)])
}

/// Without a limit the file says `max`.
fn room_of(system: &dyn System, group: &Path) -> Option<u64> {
    let max = number(system, &group.join("memory.max"))?;
    Some(max.saturating_sub(number(system, &group.join("memory.current"))?))
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
