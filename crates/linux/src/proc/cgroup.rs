//! Room for copies in the memory cgroup.
//!
//! A copy is charged to the cgroup of the process that makes it; past the limit the kernel kills.
//! Owns the reading of cgroup v2 limits, once, in the launcher: its children start in its cgroup.

use std::fs;
use std::path::Path;

/// Where cgroup v2 is mounted, alone or beside v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Part of the room that stays free for the programs: one half.
const PART: u64 = 2;

/// Bytes one copy may take: half the least room in this process's cgroup and those above it; the
/// largest number without a limit.
pub(super) fn cgroup_headroom() -> u64 {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let Some(path) = path else { return u64::MAX };
    MOUNTS.iter().map(|mount| headroom(Path::new(mount), path)).min().unwrap_or(u64::MAX)
}

fn headroom(mount: &Path, path: &str) -> u64 {
    let group = mount.join(path);
    let above = group.ancestors().take_while(|group| group.starts_with(mount));
    above.map(room).min().unwrap_or(u64::MAX)
}

fn room(group: &Path) -> u64 {
    let read = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // Without a limit the file says `max`.
    match (read("memory.max"), read("memory.current")) {
        (Some(max), Some(current)) => max.saturating_sub(current) / PART,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_room_of_all_groups_above_counts() {
        let mount = tempfile::tempdir().unwrap();
        let inner = mount.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let put = |group: &Path, max: &str, current: &str| {
            fs::write(group.join("memory.max"), max).unwrap();
            fs::write(group.join("memory.current"), current).unwrap();
        };
        put(&inner, "max\n", "7\n");
        assert_eq!(headroom(mount.path(), "a/b"), u64::MAX);
        put(&mount.path().join("a"), "1000\n", "400\n");
        assert_eq!(headroom(mount.path(), "a/b"), 300);
        put(&inner, "100\n", "400\n");
        assert_eq!(headroom(mount.path(), "a/b"), 0);
    }
}
