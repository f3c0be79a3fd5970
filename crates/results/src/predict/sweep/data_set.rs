//! The data set on disk: a directory of parts, each of which is complete or absent.
//!
//! ```text
//!   DIR/part-HASH.parquet   rows of one task, or of many; HASH = BLAKE3 of the file, 32 digits
//!   DIR/_manifest.json      the requests and their results
//!   DIR/_part-HASH.parquet.broken   damaged, set aside
//!   DIR/_part-HASH.parquet.merging  replaces parts that are being removed ([`super::merge`])
//!   DIR/.lock               held by the one sweep that writes
//! ```
//!
//! Owns the parts and the lock. Does not own the manifest ([`super::manifest`]).
//!
//! Invariants:
//! - D1: only the cells in the parts' `cell` columns are done.
//! - D2: no cell has two rows.
//! - D3: a part appears complete or not at all ([`disk::write_whole`]), and its name proves its
//!   content.
//! - D4: while a [`DataSet`] exists, no other process writes to its directory.
//! - D5: a directory made for the data set is removed if nothing is written to it
//!   ([`DataSet::keep`]).

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, TryLockError};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::disk;
use largefolio_trace::disk::MadeDirs;

use super::error::SweepError;
use super::merge::{self, Merged};
use super::part::Part;
use super::part_file::{
    AddError, PARQUET, SetAside, hash, hash_of, part_name, read_part, set_aside,
};
use super::{IsStopped, go_on};
use largefolio_sim::sweep::CellId;

#[derive(Debug)]
pub(super) struct DataSet {
    dir: PathBuf,
    /// Finished cells (D1).
    done: BTreeSet<CellId>,
    nr_parts: usize,
    small: Vec<String>,
    // Drop order: the lock file is removed while it is held, then the directory.
    lock: Locked,
    made: MadeDirs,
}

/// The lock (D4). It is unlocked explicitly: closing is not enough while a child that another
/// thread forked holds a copy of the descriptor and has not called `exec` yet.
#[derive(Debug)]
struct Locked {
    file: File,
    /// The directory, if it was created and may be removed again (D5).
    made: Option<PathBuf>,
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
        let _ = self.file.unlock();
    }
}

impl DataSet {
    pub(super) fn open(
        dir: &Path,
        is_stopped: IsStopped<'_>,
    ) -> Result<(Self, Vec<SetAside>), SweepError> {
        if dir.is_file() {
            return Err(SweepError::IsFile { path: dir.to_owned() });
        }
        let made = MadeDirs::make(dir).map_err(|error| SweepError::io("create", dir, error))?;
        let lock = lock(dir)?;
        let mut quarantined = merge::finish(dir, &names(dir)?, is_stopped)?;
        let names = names(dir)?;
        let parts = |name: &&String| name.ends_with(PARQUET) && !name.starts_with('.');
        if let Some(foreign) = names.iter().filter(parts).find(|name| hash_of(name).is_none()) {
            let (path, dir) = (dir.join(foreign), dir.to_owned());
            return Err(SweepError::Foreign { path, dir });
        }
        disk::remove_stale(dir).map_err(|error| SweepError::io("list", dir, error))?;
        let mut data = Self {
            dir: dir.to_owned(),
            done: BTreeSet::new(),
            nr_parts: 0,
            small: Vec::new(),
            lock,
            made,
        };
        for name in names.iter().filter(parts) {
            go_on(is_stopped)?;
            if let Err(why) = data.take_in(name)? {
                quarantined.push(set_aside(dir, name, why)?);
            }
        }
        Ok((data, quarantined))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps the directory because something was written (D5).
    pub(super) fn keep(&mut self) {
        self.lock.made = None;
        self.made.keep();
    }

    pub(super) fn has(&self, cell: &CellId) -> bool {
        self.done.contains(cell)
    }

    pub(super) fn nr_cells(&self) -> usize {
        self.done.len()
    }

    pub(super) const fn nr_parts(&self) -> usize {
        self.nr_parts
    }

    /// Adds a part in the directory; returns the reason if it is damaged.
    fn take_in(&mut self, name: &str) -> Result<Result<(), String>, SweepError> {
        let part = match read_part(self.dir.join(name), name)? {
            Ok(part) => part,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(cell) = part.cells().iter().find(|cell| self.done.contains(*cell)) {
            return Ok(Err(format!("it contains cell {cell}, which is also in another part")));
        }
        self.note(name, &part);
        Ok(Ok(()))
    }

    fn note(&mut self, name: &str, part: &Part) {
        self.done.extend(part.cells().iter().cloned());
        self.nr_parts += 1;
        if merge::is_small(part) {
            self.small.push(name.to_owned());
        }
    }

    pub(super) fn merge(&mut self, is_stopped: IsStopped<'_>) -> Result<(), AddError> {
        while self.is_to_merge() {
            let names = &self.small[..merge::NR_PARTS];
            match merge::merge(&self.dir, names, is_stopped)? {
                Merged::Stopped => break,
                Merged::Part(_) => self.nr_parts = self.nr_parts + 1 - names.len(),
                Merged::Refused => {}
            }
            self.small.drain(..merge::NR_PARTS);
        }
        Ok(())
    }

    pub(super) const fn is_to_merge(&self) -> bool {
        self.small.len() >= merge::NR_PARTS
    }

    /// Adds the rows of `part` whose cells are not done (D2), and returns their number. A system
    /// error names the file that could not be written.
    pub(super) fn add(
        &mut self,
        part: &Part,
        is_stopped: IsStopped<'_>,
    ) -> Result<usize, AddError> {
        let is_new = |cell: &CellId| !self.done.contains(cell);
        let nr_new = part.cells().iter().filter(|cell| is_new(cell)).count();
        if nr_new == 0 {
            return Ok(0);
        }
        let bytes = part.without(&|cell| !is_new(cell))?;
        let name = part_name(&hash(&bytes));
        let path = self.dir.join(&name);
        disk::write_whole(&path, &bytes).map_err(|source| AddError::Io { path, source })?;
        self.note(&name, part);
        self.merge(is_stopped)?;
        Ok(nr_new)
    }
}

fn lock(dir: &Path) -> Result<Locked, SweepError> {
    let path = dir.join(".lock");
    let is_new = fs::symlink_metadata(&path).is_err();
    let file =
        disk::open_lock(&path, 0o666).map_err(|error| SweepError::io("open", &path, error))?;
    match file.try_lock() {
        // A lock file that its holder has just removed locks nothing.
        Ok(()) if !is_at(&file, &path) => Err(SweepError::Busy { dir: dir.to_owned() }),
        Ok(()) => Ok(Locked { file, made: is_new.then_some(path) }),
        Err(TryLockError::WouldBlock) => Err(SweepError::Busy { dir: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(SweepError::io("lock", &path, error)),
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let (own, named) = (file.metadata().map(identity), fs::symlink_metadata(path).map(identity));
    own.is_ok_and(|own| named.is_ok_and(|named| own == named))
}

/// Returns the sorted names of the files in `dir`. Names that are not UTF-8 are skipped, except for
/// Parquet files: readers would read them with the parts.
fn names(dir: &Path) -> Result<Vec<String>, SweepError> {
    let io = |error| SweepError::io("list", dir, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if name.to_str().is_some() || name.as_bytes().ends_with(PARQUET.as_bytes()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_another_thread_does_not_keep_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let locked = lock(dir.path()).unwrap();
        // A fork copies the descriptor, and an exec closes the copy.
        let _copy = locked.file.try_clone().unwrap();
        assert!(matches!(lock(dir.path()), Err(SweepError::Busy { .. })));
        drop(locked);
        assert!(lock(dir.path()).is_ok());
    }
}
