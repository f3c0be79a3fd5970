//! Copies a program's files to a cold filesystem, mounted over the originals.
//!
//! Invariant S1: only the calling thread and its children see the mounts, which are removed when
//! the value is dropped.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::open_regular;

use super::super::error::CrosscheckError;
use super::super::facts::Facts;
use super::super::mkfs;
use super::super::workloads::Filesystem;
use super::ProgramPlan;
use super::disk::{BlockDevice, Mount};
use super::kept::Kept;

/// Space in addition to the files; XFS needs at least 300 MiB.
const ROOM_BYTES: u64 = 512 << 20;

#[derive(Debug)]
pub(super) struct Stage {
    // In the order in which they must end.
    binds: Vec<Mount>,
    mount: Option<Mount>,
    pub(super) block: BlockDevice,
    pub(super) files: PathBuf,
    filesystem: Filesystem,
    /// Copy and original.
    copies: Vec<(PathBuf, PathBuf)>,
    _kept: Kept,
}

impl Stage {
    pub(super) fn new(
        plan: &ProgramPlan,
        facts: &Facts,
        files: &[PathBuf],
        kept: Kept,
    ) -> Result<Self, CrosscheckError> {
        let filesystem = plan.filesystem;
        let tool = facts.formatter(filesystem);
        let tool = tool.ok_or_else(|| CrosscheckError::NoFilesystem(mkfs::missing(filesystem)))?;
        let sizes = files.iter().filter_map(|file| file.metadata().ok()).map(|meta| meta.len());
        let bytes = (sizes.sum::<u64>() * 2 + ROOM_BYTES).next_multiple_of(1 << 20);
        let block = BlockDevice::new(&kept, bytes)?;
        mkfs::make(filesystem, &block.path(), tool)?;
        let at = kept.files.clone();
        let mount = Some(Mount::device(&block, filesystem, &at)?);
        let mut copies = Vec::new();
        for (nr, file) in files.iter().enumerate() {
            let copy = at.join(nr.to_string());
            copy_file(file, &copy)?;
            copies.push((copy, file.clone()));
        }
        let (binds, files) = (Vec::new(), at);
        Ok(Self { binds, mount, block, files, filesystem, copies, _kept: kept })
    }

    /// Remounts the filesystem, which empties its page cache, and mounts the copies over the files.
    pub(super) fn remount(&mut self, window_kb: u64) -> Result<(), CrosscheckError> {
        self.binds.clear();
        self.mount = None;
        self.block.set_window_kb(window_kb)?;
        self.mount = Some(Mount::device(&self.block, self.filesystem, &self.files)?);
        for (copy, file) in &self.copies {
            self.binds.push(Mount::bind(copy, file)?);
        }
        Ok(())
    }
}

/// Copies content, mode and modification time: Python compares the time with its caches.
fn copy_file(from: &Path, to: &Path) -> Result<(), CrosscheckError> {
    let mut original = open_regular(from).map_err(CrosscheckError::file(from))?;
    let metadata = original.metadata().map_err(CrosscheckError::file(from))?;
    let mut file = File::create_new(to).map_err(CrosscheckError::file(to))?;
    io::copy(&mut original, &mut file).map_err(CrosscheckError::file(from))?;
    file.set_permissions(metadata.permissions()).map_err(CrosscheckError::file(to))?;
    let time = metadata.modified().map_err(CrosscheckError::file(from))?;
    file.set_times(fs::FileTimes::new().set_modified(time)).map_err(CrosscheckError::file(to))?;
    file.sync_all().map_err(CrosscheckError::file(to))
}
