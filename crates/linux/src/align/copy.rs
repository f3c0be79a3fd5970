//! The copy on disk: written beside its place, checked, and put there whole.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use object::ReadCache;
use tempfile::NamedTempFile;

use super::validate;
use super::{AlignError, Layout};

/// Bits of the mode that a copy gets: not set-id and sticky, which are somebody's decision.
const MODE: u32 = 0o777;
const SET_ID: u32 = 0o6000;

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
    // Refuses what is no regular file before it is opened.
    crate::elf::ElfFile::read(path)?;
    let mut original = File::open(path).map_err(failed("read", path))?;
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
    let folder = folder_of(copy);
    let mut written = NamedTempFile::with_prefix_in(".folio-", &folder)
        .map_err(failed("make a file in", &folder))?;
    layout.write(&mut original, written.as_file_mut()).map_err(failed("write", copy))?;
    let file = written.as_file();
    file.set_len(layout.copy_bytes).map_err(failed("write", copy))?;
    let nr_compared = validate::compare(path, &original, file, align)?;
    let mode = Permissions::from_mode(found.mode() & MODE);
    file.set_permissions(mode).map_err(failed("set the mode of", copy))?;
    file.sync_all().map_err(failed("write", copy))?;
    let stored_bytes = file.metadata().map_err(failed("read", copy))?.blocks() * 512;
    let (mut lost, mode) = (Vec::new(), found.mode());
    if mode & SET_ID != 0 {
        lost.push("the set-user-id or set-group-id bit");
    }
    if rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok() {
        lost.push("the file capabilities");
    }
    written.persist(copy).map_err(|error| failed("write", copy)(error.error))?;
    let Layout { copy_bytes, text_bytes, .. } = layout;
    Ok(Copied { file_bytes: found.len(), copy_bytes, stored_bytes, text_bytes, nr_compared, lost })
}

fn folder_of(copy: &Path) -> PathBuf {
    let folder = copy.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
