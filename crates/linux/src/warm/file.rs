//! A file to warm, and the result.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use largefolio_trace::disk::{open_quietly, other_kind};
use largefolio_trace::shown;

use super::refusal::WarmRefusal;
use crate::geometry::Geometry;

/// Bytes filled per call. Signals are handled between calls.
pub(super) const FILL_BYTES: u64 = 256 << 20;
pub(super) const SPARE_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    #[default]
    Whole,
    /// The blocks that contain these bytes.
    Bytes(Range<u64>),
}

#[derive(Debug)]
pub struct Warm {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) file_bytes: u64,
    pub(super) part: Part,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warmed {
    pub path: PathBuf,
    pub file_bytes: u64,
    pub filesystem: String,
    /// Smallest folio that counts: a worthwhile one. For a shorter file, a contpte block.
    pub folio_bytes: u64,
    /// Bytes of whole blocks of that size in the requested part, the maximum for such folios.
    pub possible_bytes: u64,
    /// Bytes in such folios before, `None` if the kernel does not report them.
    pub before_bytes: Option<u64>,
    pub after_bytes: Option<u64>,
    pub elapsed: Duration,
    pub refusal: Option<WarmRefusal>,
}

impl Warmed {
    #[must_use]
    pub fn is_enlarged(&self) -> bool {
        self.after_bytes.unwrap_or(0) > self.before_bytes.unwrap_or(0)
    }

    /// Returns whether the file is shorter than the folios that are worthwhile, so smaller ones
    /// count.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.folio_bytes < Geometry::running().block_bytes()
    }

    #[must_use]
    pub fn is_unseen(&self) -> bool {
        let is_done = self.elapsed > Duration::ZERO;
        is_done && matches!(self.refusal, Some(WarmRefusal::Unseen { .. }))
    }

    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.possible_bytes > 0 && self.after_bytes == Some(self.possible_bytes)
    }
}

fn right_to_read(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; warming needs read permission",
        _ => "",
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    #[error("cannot read {}: {source}{}", shown(path), right_to_read(source))]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a regular file", shown(.0))]
    NotAFile(PathBuf),
    #[error("{}: cannot {action}: {source}", shown(path))]
    Call { path: PathBuf, action: &'static str, source: io::Error },
}

impl Warm {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// If it is not a regular file or cannot be read.
    pub fn new(path: &Path, part: Part) -> Result<Self, WarmError> {
        let open = |source: io::Error| {
            let path = path.to_owned();
            let is_other = other_kind(&source).is_some();
            if is_other { WarmError::NotAFile(path) } else { WarmError::Open { path, source } }
        };
        let file = open_quietly(path).map_err(open)?;
        let file_bytes = file.metadata().map_err(open)?.len();
        Ok(Self { path: path.to_owned(), file, file_bytes, part })
    }

    #[must_use]
    pub fn is_short(&self) -> bool {
        self.file_bytes < Geometry::running().block_bytes()
    }

    /// Returns whether smaps does not show its large folios, because no PMD entry maps them.
    pub(super) fn is_by_size(&self) -> bool {
        self.is_short() || !Geometry::running().is_block_pmd()
    }

    pub(super) fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> WarmError {
        move |source| WarmError::Call { path: self.path.clone(), action, source }
    }
}

pub(super) fn wanted(part: &Part, block_bytes: u64, nr_whole: u64) -> Range<u64> {
    match part {
        Part::Whole => 0..nr_whole,
        Part::Bytes(bytes) => {
            let end = bytes.end.div_ceil(block_bytes).min(nr_whole);
            (bytes.start / block_bytes).min(end)..end
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_widened_to_blocks_and_kept_inside_the_file() {
        let part = |start, end| Part::Bytes(start..end);
        assert_eq!(wanted(&Part::Whole, 10, 3), 0..3);
        assert_eq!(wanted(&part(5, 15), 10, 3), 0..2);
        assert_eq!(wanted(&part(10, 20), 10, 3), 1..2);
        assert_eq!(wanted(&part(25, 99), 10, 3), 2..3);
        assert!(wanted(&part(35, 99), 10, 3).is_empty());
    }
}
