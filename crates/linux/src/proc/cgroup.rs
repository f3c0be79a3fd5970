//! Memory limits of control groups, version 2.

use std::path::Path;

use super::number;
use crate::system::System;

/// Where version 2 is mounted, alone or beside version 1.
pub(crate) const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Bytes that this process may still take before a limit of its group or of one above; `None`
/// without a limit.
pub(crate) fn room_bytes(system: &dyn System) -> Option<u64> {
    let own = system.text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let path = own.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::/"))?;
    let path = std::str::from_utf8(path).ok()?;
    let rooms = MOUNTS.iter().flat_map(|mount| {
        let group = Path::new(mount).join(path);
        let above: Vec<_> = group.ancestors().map(Path::to_owned).collect();
        above.into_iter().take_while(move |group| group.starts_with(mount))
    });
    rooms.filter_map(|group| room_of(system, &group)).min()
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
    }
}
