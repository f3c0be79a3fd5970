//! The last rows of a process that could not send them.
//!
//! Owns the reading of tail files. Invariant I1: a tail is read only after its process ended,
//! executed a program or left, and then removed.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::wire::{self, ROW_BYTES, TAIL_ROWS, TAIL_ROWS_OFFSET, WINDOW, tail_offset};

/// A tail in memory.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Thread, by the kernel's number.
    pub(crate) tid: u32,
    /// Sequence number its rows would have had.
    pub(crate) seq: u64,
    /// Grace periods its thread gave up waiting for.
    pub(crate) nr_grace_expired: u32,
    bytes: Vec<u8>,
    rows: Range<usize>,
}

impl Tail {
    /// Bytes of the rows that were not sent.
    pub(crate) fn rows(&self) -> &[u8] {
        self.bytes.get(self.rows.clone()).unwrap_or_default()
    }

    fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        if wire::u64_at(&bytes, tail_offset::MAGIC)? != wire::TAIL_MAGIC {
            return None;
        }
        let end = wire::u32_at(&bytes, tail_offset::END)? as usize;
        let end = end.clamp(WINDOW, WINDOW + TAIL_ROWS);
        Some(Self {
            tid: wire::u32_at(&bytes, tail_offset::TID)?,
            seq: wire::u64_at(&bytes, tail_offset::SEQ)?,
            nr_grace_expired: wire::u32_at(&bytes, tail_offset::NR_GRACE_EXPIRED)?,
            rows: TAIL_ROWS_OFFSET + WINDOW * ROW_BYTES..TAIL_ROWS_OFFSET + end * ROW_BYTES,
            bytes,
        })
    }
}

/// Takes the tails that process `pid` has as the program of `generation` out of `directory`, in the
/// order of thread numbers.
pub(crate) fn take(directory: &Path, pid: u32, generation: u32) -> Vec<Tail> {
    let prefix = wire::tail_prefix(pid, generation);
    let paths: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect();
    let mut tails: Vec<Tail> = paths.iter().filter_map(|path| Tail::read(path)).collect();
    for path in paths {
        // The directory goes away at the end in any case.
        let _ = fs::remove_file(path);
    }
    tails.sort_by_key(|tail| (tail.tid, tail.seq));
    tails
}
