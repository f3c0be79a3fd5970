//! The last rows of a process, which it could not send itself.
//!
//! Owns reading tail files. Invariant I1: a tail is read only after its process ended, executed a
//! program or left, and is then removed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::disk;

use super::wire::{self, ROW_BYTES, TAIL_BYTES, TAIL_ROWS, TAIL_ROWS_OFFSET, WINDOW, tail_offset};

#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) tid: u32,
    /// The sequence number its rows would have had.
    pub(crate) seq: u64,
    /// Grace periods that its thread stopped waiting for.
    pub(crate) nr_grace_expired: u32,
    rows: Vec<u8>,
}

impl Tail {
    pub(crate) fn rows(&self) -> &[u8] {
        &self.rows
    }

    /// Reads a tail. A recorded program can write anything there; other users' files are ignored.
    fn read(path: &Path, users: &BTreeSet<u32>) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = disk::open_own(path).ok()?;
        if !users.contains(&file.metadata().ok()?.uid()) {
            return None;
        }
        file.take(TAIL_BYTES as u64).read_to_end(&mut bytes).ok()?;
        if wire::u64_at(&bytes, tail_offset::MAGIC)? != wire::TAIL_MAGIC {
            return None;
        }
        let end = wire::u32_at(&bytes, tail_offset::END)? as usize;
        let end = end.clamp(WINDOW, WINDOW + TAIL_ROWS);
        let rows = TAIL_ROWS_OFFSET + WINDOW * ROW_BYTES..TAIL_ROWS_OFFSET + end * ROW_BYTES;
        Some(Self {
            tid: wire::u32_at(&bytes, tail_offset::TID)?,
            seq: wire::u64_at(&bytes, tail_offset::SEQ)?,
            nr_grace_expired: wire::u32_at(&bytes, tail_offset::NR_GRACE_EXPIRED)?,
            rows: bytes.get(rows).unwrap_or_default().to_vec(),
        })
    }
}

/// Removes and returns the tails of `pid` as the program of `generation`, in thread order.
pub(crate) fn take(
    directory: &Path,
    pid: u32,
    generation: u32,
    users: &BTreeSet<u32>,
) -> Vec<Tail> {
    let prefix = wire::tail_prefix(pid, generation);
    let paths: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect();
    let taken = |path: PathBuf| {
        let tail = Tail::read(&path, users);
        // The directory is removed at the end anyway.
        let _ = fs::remove_file(path);
        tail
    };
    let mut tails: Vec<Tail> = paths.into_iter().filter_map(taken).collect();
    tails.sort_by_key(|tail| (tail.tid, tail.seq));
    tails
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode};
    use tempfile::TempDir;

    use super::*;

    /// A recorded program left other files: they are not read, never block, and are removed.
    #[test]
    fn only_tails_of_a_sane_size_are_read() {
        let directory = TempDir::new().expect("a directory");
        let path = |name: &str| directory.path().join(format!("{}{name}", wire::tail_prefix(7, 0)));
        rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RUSR, 0).expect("a FIFO");
        symlink("/dev/zero", path("zero")).expect("a link");
        let mut bytes = wire::TAIL_MAGIC.to_le_bytes().to_vec();
        bytes.resize(TAIL_BYTES + 4096, 0xff);
        bytes[tail_offset::TID..tail_offset::TID + 4].copy_from_slice(&9_u32.to_le_bytes());
        fs::write(path("1"), &bytes).expect("a file");
        let own = BTreeSet::from([rustix::process::geteuid().as_raw()]);
        let others = own.iter().map(|user| user + 1).collect();
        fs::write(path("2"), &bytes).expect("a file");
        let tails = take(directory.path(), 7, 0, &others);
        assert!(tails.is_empty(), "another user put them there");
        fs::write(path("1"), &bytes).expect("a file");
        let tails = take(directory.path(), 7, 0, &own);
        let lengths: Vec<_> = tails.iter().map(|tail| (tail.tid, tail.rows().len())).collect();
        assert_eq!(lengths, [(9, TAIL_ROWS * ROW_BYTES)]);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}
