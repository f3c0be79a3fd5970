//! Which processes have a file mapped.
//!
//! Owns the search through `/proc`. Processes of other users are seen by root alone; a process that
//! ends meanwhile is passed over.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Processes named in a report at most.
const NR_USERS_MAX: usize = 16;

/// Ids of processes that map the file, this one not among them.
pub(super) fn of(path: &Path, found: &Metadata) -> Vec<u32> {
    let own = std::process::id();
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut pids: Vec<u32> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let maps = fs::read(entry.path().join("maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        if pid != own && maps.lines().any(|line| is_of(line, &path, found)) {
            pids.push(pid);
        }
    }
    pids.sort_unstable();
    pids.truncate(NR_USERS_MAX);
    pids
}

/// Whether a line of `maps` is of the file. The device in it is not always that of stat(2) (btrfs,
/// overlayfs), so the name counts too.
fn is_of(line: &str, path: &Path, found: &Metadata) -> bool {
    let mut words = line.split_ascii_whitespace();
    let inode = words.nth(4).and_then(|inode| inode.parse::<u64>().ok());
    let name = line.find('/').map(|at| Path::new(&line[at..]));
    inode == Some(found.ino()) && (name == Some(path) || device_of(line) == Some(found.dev()))
}

fn device_of(line: &str) -> Option<u64> {
    let (major, minor) = line.split_ascii_whitespace().nth(3)?.split_once(':')?;
    let hex = |word| u32::from_str_radix(word, 16).ok();
    Some(rustix::fs::makedev(hex(major)?, hex(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_by_inode_and_device_or_name() {
        let found = fs::metadata("/proc/self/exe").unwrap();
        let (dev, ino) = (found.dev(), found.ino());
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let line = |inode: u64, name: &str| {
            format!("1000-2000 r-xp 00000000 {major:02x}:{minor:02x} {inode}    {name}")
        };
        let path = Path::new("/opt/a program");
        assert!(is_of(&line(ino, "/moved"), path, &found));
        assert!(!is_of(&line(ino + 1, "/opt/a program"), path, &found));
        let other = format!("1000-2000 r-xp 00000000 ff:ff {ino} /opt/a program");
        assert!(is_of(&other, path, &found));
        assert!(!is_of("1000-2000 rw-p 00000000 00:00 0 [heap]", path, &found));
    }
}
