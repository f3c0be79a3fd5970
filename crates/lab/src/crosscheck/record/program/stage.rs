//! Copies a program's files to a cold filesystem, mounted over the originals.
//!
//! Invariant S1: only the calling thread and its children see the mounts, which are removed when
//! the value is dropped.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use largefolio_trace::disk::open_regular;

use super::super::error::CrosscheckError;
use super::super::facts::Facts;
use super::super::mkfs;
use super::super::workloads::Filesystem;
use super::disk::{BlockDevice, Mount};
use super::kept::Kept;

/// Space in addition to the files; XFS needs at least 300 MiB.
const ROOM_BYTES: u64 = 512 << 20;
/// Attempts to mount a filesystem that is still in use, and the pause between them.
const NR_MOUNTS: usize = 60;
const MOUNT_PAUSE: Duration = Duration::from_millis(50);

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
    /// Other files that stay.
    programs: Vec<PathBuf>,
    _kept: Kept,
}

impl Stage {
    pub(super) fn new(
        filesystem: Filesystem,
        facts: &Facts,
        files: &[PathBuf],
        kept: Kept,
    ) -> Result<Self, CrosscheckError> {
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
        let (binds, files, programs) = (Vec::new(), at, Vec::new());
        Ok(Self { binds, mount, block, files, filesystem, copies, programs, _kept: kept })
    }

    /// Waits for the last processes of a recording, which use the filesystem a little longer.
    fn mounted_again(&self) -> Result<Mount, CrosscheckError> {
        let mut nr_left = NR_MOUNTS;
        loop {
            match Mount::device(&self.block, self.filesystem, &self.files) {
                Err(CrosscheckError::Mount { source, .. })
                    if source.kind() == io::ErrorKind::ResourceBusy && nr_left > 0 =>
                {
                    nr_left -= 1;
                    std::thread::sleep(MOUNT_PAUSE);
                    // Unmounts everything that is still mounted.
                    drop(Mount { at: self.files.clone() });
                }
                mounted => return mounted,
            }
        }
    }

    /// Keeps a file of the filesystem when it is cleaned.
    pub(super) fn keep(&mut self, path: &Path) {
        self.programs.push(path.to_owned());
    }

    /// Returns the file that a copy is mounted over.
    pub(super) fn original_of(&self, path: &Path) -> Option<&Path> {
        let copy = self.copies.iter().find(|(copy, _)| copy == path);
        copy.map(|(_, original)| original.as_path())
    }

    /// Removes all files but copies and programs.
    pub(super) fn clean(&self) -> Result<(), CrosscheckError> {
        let failed = || CrosscheckError::file(&self.files);
        for entry in fs::read_dir(&self.files).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            let stays = self.programs.contains(&path) || self.original_of(&path).is_some();
            let is_own = path.is_file() || path.is_symlink();
            if is_own && !stays {
                fs::remove_file(&path).map_err(CrosscheckError::file(&path))?;
            }
        }
        Ok(())
    }

    /// Remounts the filesystem, which empties its page cache, and mounts the copies over the files.
    pub(super) fn remount(&mut self, window_kb: u64) -> Result<(), CrosscheckError> {
        self.binds.clear();
        self.mount = None;
        self.block.set_window_kb(window_kb)?;
        self.mount = Some(self.mounted_again()?);
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
