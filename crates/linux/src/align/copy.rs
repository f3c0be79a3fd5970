//! The copy on disk: written beside its place, checked, and put there whole.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use largefolio_trace::disk::{Whole, open_regular};
use object::ReadCache;

use super::error::AlignError;
use super::layout::Layout;
use super::validate;
use crate::trust;

/// A copy that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Length of the original.
    pub file_bytes: u64,
    /// Length of the copy, with its holes.
    pub copy_bytes: u64,
    /// Storage the copy takes.
    pub stored_bytes: u64,
    /// Bytes of text in whole blocks.
    pub text_bytes: u64,
    /// Segments and sections that were compared and are equal.
    pub nr_compared: usize,
    /// What the copy does not have of the original, in words.
    pub lost: Vec<&'static str>,
}

/// Writes a copy of `path` to `copy`, laid out for `align`, a power of two from 4 KiB on.
///
/// # Errors
/// When the file is refused, or something cannot be written; `copy` is as it was then.
pub fn copy(path: &Path, copy: &Path, align: u64) -> Result<Copied, AlignError> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| AlignError::Io { action, path, source }
    };
    crate::elf::ElfFile::read(path)?;
    let mut original = open_regular(path).map_err(failed("read", path))?;
    let found = original.metadata().map_err(failed("read", path))?;
    let is_same = |other: &fs::Metadata| (other.dev(), other.ino()) == (found.dev(), found.ino());
    if fs::metadata(copy).as_ref().is_ok_and(is_same) {
        return Err(AlignError::Same(copy.to_owned()));
    }
    if rustix::fs::getxattr(path, "security.ima", &mut [0_u8; 4096][..]).is_ok() {
        return Err(AlignError::Signed(path.to_owned()));
    }
    let reading = original.try_clone().map_err(failed("read", path))?;
    let layout = Layout::of(path, &ReadCache::new(reading), align)?;
    let mut written = Whole::create_regular(copy).map_err(failed("write", copy))?;
    let mut file = written.file();
    layout.write(&mut original, &mut file).map_err(failed("write", copy))?;
    file.set_len(layout.copy_bytes).map_err(failed("write", copy))?;
    let nr_compared = validate::compare(path, &original, file, align)?;
    // Only then its blocks are known.
    file.sync_all().map_err(failed("write", copy))?;
    let stored_bytes = file.metadata().map_err(failed("read", copy))?.blocks() * 512;
    let mut lost = Vec::new();
    if trust::is_set_id(&found) {
        lost.push("the set-user-id or set-group-id bit");
    }
    if trust::has_capabilities(path) {
        lost.push("the file capabilities");
    }
    written.set_mode(found.mode());
    written.commit().map_err(failed("write", copy))?;
    let Layout { copy_bytes, text_bytes, .. } = layout;
    Ok(Copied { file_bytes: found.len(), copy_bytes, stored_bytes, text_bytes, nr_compared, lost })
}
