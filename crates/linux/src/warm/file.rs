//! One file, and what became of it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use largefolio_trace::disk::{open_quietly, other_kind};
use largefolio_trace::shown;

use super::refusal::WarmRefusal;
use crate::geometry::Geometry;

/// Bytes filled with one call: a signal is answered between two.
pub(super) const FILL_BYTES: u64 = 256 << 20;
/// Memory left to others when the cache is filled.
pub(super) const SPARE_BYTES: u64 = 64 << 20;

/// Which part of a file is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// The blocks in which these bytes lie.
    Bytes(Range<u64>),
}

/// A file that can be warmed: examined, nothing done.
#[derive(Debug)]
pub struct Warm {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) file_bytes: u64,
    pub(super) part: Part,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub file_bytes: u64,
    /// Its filesystem.
    pub filesystem: String,
    /// Smallest folios that count: those that pay; of a file shorter than one, contpte blocks.
    pub folio_bytes: u64,
    /// Bytes of whole blocks of that size in the part that is wanted: more cannot be in such folios.
    pub possible_bytes: u64,
    /// Bytes in such folios before; `None` where the kernel does not tell.
    pub before_bytes: Option<u64>,
    /// Bytes in such folios now.
    pub after_bytes: Option<u64>,
    /// What it took.
    pub elapsed: Duration,
    /// Why it is not all; of several causes the first.
    pub refusal: Option<WarmRefusal>,
}

impl Warmed {
    /// Whether more of it is in such folios than before.
    #[must_use]
    pub fn is_enlarged(&self) -> bool {
        self.after_bytes.unwrap_or(0) > self.before_bytes.unwrap_or(0)
    }

    /// Whether the file is shorter than the folios that pay, so that smaller ones count.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.folio_bytes < Geometry::running().block_bytes()
    }

    /// Whether it was refilled, and the kernel does not tell with what.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        let is_done = self.elapsed > Duration::ZERO;
        is_done && matches!(self.refusal, Some(WarmRefusal::Unseen { .. }))
    }

    /// Whether all of it is that can be.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.possible_bytes > 0 && self.after_bytes == Some(self.possible_bytes)
    }
}

/// What helps against an error of opening.
fn right_to_read(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; warming needs the right to read",
        _ => "",
    }
}

/// Why a file could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// It cannot be opened.
    #[error("cannot read {}: {source}{}", shown(path), right_to_read(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("{} is not a regular file", shown(.0))]
    NotAFile(PathBuf),
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", shown(path))]
    Call {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Warm {
    /// Opens `path` to be read.
    ///
    /// # Errors
    /// When it is no regular file or cannot be read.
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

    /// Whether it is shorter than the folios that pay.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.file_bytes < Geometry::running().block_bytes()
    }

    /// Whether what is large does not show in smaps: no PMD entry maps it.
    pub(super) fn is_by_size(&self) -> bool {
        self.is_short() || !Geometry::running().is_block_pmd()
    }

    pub(super) fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> WarmError {
        move |source| WarmError::Call { path: self.path.clone(), action, source }
    }
}

/// Whole blocks of a file in which the part lies.
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
