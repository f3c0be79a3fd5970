//! Processes that have a file mapped.
//!
//! A caller with many files reads the mappings once. Only root sees other users' processes. A
//! process that ends while the mappings are read is skipped.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::proc::maps::Vma;
use crate::proc::{self, Task};
use crate::system::System;

pub(super) const NR_USERS_MAX: usize = 16;

#[derive(Debug)]
pub struct Users {
    /// By inode number, the only reliable match between a file and its mappings.
    by_inode: BTreeMap<u64, Vec<(u32, Vma)>>,
}

impl Users {
    #[must_use]
    pub fn read(system: &dyn System) -> Self {
        let own = std::process::id();
        let mut by_inode: BTreeMap<u64, Vec<(u32, Vma)>> = BTreeMap::new();
        for pid in proc::pids(system).unwrap_or_default().into_iter().filter(|pid| *pid != own) {
            let maps = Task::of(system, pid).maps().unwrap_or_default();
            for vma in maps.vmas.into_iter().filter(Vma::has_file) {
                let all = by_inode.entry(vma.inode).or_default();
                // Segments of one file are adjacent.
                let is_known = |(of, one): &(u32, Vma)| {
                    (*of, one.device) == (pid, vma.device) && one.path == vma.path
                };
                if !all.last().is_some_and(is_known) {
                    all.push((pid, vma));
                }
            }
        }
        Self { by_inode }
    }

    pub(super) fn of(&self, path: &Path, metadata: &Metadata) -> Vec<u32> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let all = self.by_inode.get(&metadata.ino()).into_iter().flatten();
        let mut pids: Vec<u32> =
            all.filter(|(_, vma)| is_of(vma, &path, metadata)).map(|(pid, _)| *pid).collect();
        pids.dedup();
        pids.truncate(NR_USERS_MAX);
        pids
    }
}

/// Returns whether a mapping is of the file. Its device can differ from stat(2)'s (btrfs,
/// overlayfs), so the name counts too.
fn is_of(vma: &Vma, path: &Path, metadata: &Metadata) -> bool {
    let (major, minor) = vma.device;
    let is_named = vma.path == path && !vma.is_deleted;
    vma.inode == metadata.ino() && (is_named || rustix::fs::makedev(major, minor) == metadata.dev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::MemSystem;

    #[test]
    fn a_user_is_told_by_inode_and_device_or_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let (dev, ino) = (metadata.dev(), metadata.ino());
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let line = |device: &str, inode: u64, name: &str| {
            format!("1000-2000 r-xp 00000000 {device} {inode}    {name}\n")
        };
        let (own, path) = (format!("{major:02x}:{minor:02x}"), file.path().display());
        let dir = tempfile::tempdir().unwrap();
        for (pid, text) in [
            ("40", line(&own, ino, "/moved")),
            ("41", line(&own, ino + 1, &path.to_string())),
            ("42", line("ff:ff", ino, &path.to_string())),
            ("43", line("ff:ff", ino, &format!("{path} (deleted)"))),
            ("44", "1000-2000 rw-p 00000000 00:00 0 [heap]\n".to_owned()),
            ("x45", line(&own, ino, "/moved")),
        ] {
            fs::create_dir(dir.path().join(pid)).unwrap();
            fs::write(dir.path().join(pid).join("maps"), text).unwrap();
        }
        let users = Users::read(&MemSystem::from_dir(dir.path()));
        assert_eq!(users.of(file.path(), &metadata), [40, 42]);
    }
}
