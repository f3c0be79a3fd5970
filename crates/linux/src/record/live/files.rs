//! Finds the trace's file for a device and inode.
//!
//! The kernel's record contains the file's name as the process sees it. If the name leads to a
//! different file here (because of a different root, or because the file was deleted or replaced),
//! only the name identifies the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::FileId;

use super::handle;
use super::kernel_event::Mapped;
use crate::proc::{Task, fd};
use crate::record::files::Files;
use crate::record::qemu::wire::{self, WireFile};

/// How often descriptors are searched for one file.
const NR_SEARCHES_MAX: u32 = 3;
/// Names of mapped files kept in addition to the trace's.
const NR_MAPPED_MAX: usize = 1 << 16;
/// Kernel names of shared memory without a file.
const NAMELESS: [&str; 3] = ["/dev/zero", "/SYSV", "/memfd:"];

type Inode = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct Inodes {
    known: BTreeMap<Inode, Option<FileId>>,
    nr_searches: BTreeMap<Inode, u32>,
    /// Files with several names, of which any was taken.
    any_name: BTreeSet<Inode>,
    /// Names of mapped files: a loader reads a library's head first.
    mapped: BTreeMap<Inode, PathBuf>,
}

impl Inodes {
    pub(super) fn note(&mut self, mapped: &Mapped) {
        if self.mapped.len() < NR_MAPPED_MAX {
            let inode = (mapped.device, mapped.inode);
            self.mapped.entry(inode).or_insert_with(|| mapped.path.clone());
        }
    }

    pub(super) fn of_mapping(&mut self, files: &mut Files, mapped: &Mapped) -> Option<FileId> {
        let inode = (mapped.device, mapped.inode);
        if let Some(known) = self.known.get(&inode) {
            if let Some(id) = known.filter(|_| self.any_name.remove(&inode)) {
                files.rename(id, &mapped.path);
            }
            return *known;
        }
        let is_it = |metadata: &Metadata| (metadata.dev(), metadata.ino()) == inode;
        let end = mapped.pos.saturating_add(mapped.len);
        let id = match mapped.path.metadata() {
            Ok(metadata) if is_it(&metadata) => files.add_path(&mapped.path),
            _ => announce(files, inode, end, &mapped.path),
        };
        self.known.insert(inode, id);
        id
    }

    /// Finds a file by its inode, a mapping, or the process's descriptors; `None` if unknown.
    pub(super) fn of_descriptor(
        &mut self,
        files: &mut Files,
        pid: u32,
        inode: Inode,
    ) -> Option<FileId> {
        if let Some(known) = self.known.get(&inode) {
            return *known;
        }
        let is_it = |path: &PathBuf| {
            path.metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == inode)
        };
        if let Some(path) = self.mapped.get(&inode).filter(|path| is_it(path)) {
            let id = files.add_path(path);
            self.known.insert(inode, id);
            return id;
        }
        if let Some(path) = handle::path(inode.0, inode.1) {
            let id = files.add_path(&path);
            self.known.insert(inode, id);
            if path.metadata().is_ok_and(|metadata| metadata.nlink() > 1) {
                self.any_name.insert(inode);
            }
            return id;
        }
        let nr_searches = self.nr_searches.entry(inode).or_default();
        if *nr_searches < NR_SEARCHES_MAX {
            *nr_searches += 1;
            self.search(files, pid);
        }
        self.known.get(&inode).copied().flatten()
    }

    pub(super) fn is_unknown(&self, inode: Inode) -> bool {
        !self.known.contains_key(&inode)
    }

    fn search(&mut self, files: &mut Files, pid: u32) {
        for number in Task::of(&crate::system::Live, pid).descriptors() {
            let Some((metadata, path)) = fd::regular(pid, number) else { continue };
            let inode = (metadata.dev(), metadata.ino());
            if self.known.contains_key(&inode) {
                continue;
            }
            let is_it = path.metadata().is_ok_and(|here| (here.dev(), here.ino()) == inode);
            let id = if is_it {
                files.add_path(&path)
            } else {
                announce(files, inode, metadata.len(), &path)
            };
            self.known.insert(inode, id);
        }
    }
}

/// Adds a file that is no longer at its path.
fn announce(files: &mut Files, inode: Inode, size_bytes: u64, path: &Path) -> Option<FileId> {
    let name = path.to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    let is_nameless = NAMELESS.iter().any(|start| name.starts_with(start));
    let name = if is_nameless && !name.starts_with("/memfd:") {
        format!("/memfd:{}", name.trim_start_matches('/'))
    } else {
        name.to_owned()
    };
    let key = wire::file_key(inode.0, inode.1, 0);
    files.announce(WireFile { key, size_bytes, holes: Vec::new(), path: name.as_bytes() })
}
