//! Writes the copy next to its final place, checks it, and renames it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use largefolio_trace::disk::Whole;
use object::ReadCache;

use super::error::AlignError;
use super::layout::Layout;
use super::validate;
use crate::elf::{ElfError, ElfFile};
use crate::proc::fd;
use crate::trust;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub file_bytes: u64,
    pub copy_bytes: u64,
    pub stored_bytes: u64,
    /// Bytes of text in whole blocks.
    pub text_bytes: u64,
    pub nr_compared: usize,
    /// Attributes of the original that the copy lacks.
    pub lost: Vec<&'static str>,
}

/// Writes a copy of `path` to `copy`, laid out for `align`, a power of two of at least 4 KiB.
///
/// # Errors
/// If the file is refused or a write fails. `copy` is then unchanged.
pub fn copy(path: &Path, copy: &Path, align: u64) -> Result<Copied, AlignError> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| AlignError::Io { action, path, source }
    };
    // Opened only once, so the same file is checked, compared and copied.
    let mut original = ElfError::open(path)?;
    let again = |file: &File| file.try_clone().map_err(failed("read", path));
    ElfFile::parse(path, &ReadCache::new(again(&original)?))?;
    let own = fd::own(&original);
    let metadata = original.metadata().map_err(failed("read", path))?;
    let is_same =
        |other: &fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    if fs::metadata(copy).as_ref().is_ok_and(is_same) {
        return Err(AlignError::Same(copy.to_owned()));
    }
    if rustix::fs::getxattr(&own, "security.ima", &mut [0_u8; 4096][..]).is_ok() {
        return Err(AlignError::Signed(path.to_owned()));
    }
    let layout = Layout::of(path, &ReadCache::new(again(&original)?), align)?;
    let mut written = Whole::create_regular(copy).map_err(failed("write", copy))?;
    let mut file = written.file();
    layout.write(&mut original, &mut file).map_err(failed("write", copy))?;
    file.set_len(layout.copy_bytes).map_err(failed("write", copy))?;
    let nr_compared = validate::compare(path, &original, file, align)?;
    // The filesystem knows the file's blocks only after this.
    file.sync_all().map_err(failed("write", copy))?;
    let stored_bytes = file.metadata().map_err(failed("read", copy))?.blocks() * 512;
    let mut lost = Vec::new();
    if trust::is_set_id(&metadata) {
        lost.push("the set-user-id or set-group-id bit");
    }
    if trust::has_capabilities(&own) {
        lost.push("the file capabilities");
    }
    let created = file.metadata().map_err(failed("read", copy))?.mode();
    written.set_mode(mode_of_copy(metadata.mode(), created));
    written.commit().map_err(failed("write", copy))?;
    let Layout { copy_bytes, text_bytes, .. } = layout;
    Ok(Copied {
        file_bytes: metadata.len(),
        copy_bytes,
        stored_bytes,
        text_bytes,
        nr_compared,
        lost,
    })
}

/// Returns the mode for the copy of a program with mode `original`. It is `created`, the mode of a
/// new non-executable file under the umask, plus execute bits. The copy gives no user permission to
/// read or execute that the program does not give. Only the owner can write it, because root may
/// have examined the program before the copy.
fn mode_of_copy(original: u32, created: u32) -> u32 {
    // Only for classes that the umask lets read.
    let executable = (created & 0o444) >> 2;
    original & (created | executable) & !0o022 | created & 0o600
}

#[cfg(test)]
mod tests {
    use super::mode_of_copy;

    #[test]
    fn a_copy_can_do_no_more_than_its_original_and_the_umask_allow() {
        for (original, created, expected) in [
            (0o755, 0o644, 0o755),
            (0o777, 0o644, 0o755),
            (0o777, 0o666, 0o755),
            (0o4755, 0o644, 0o755),
            (0o777, 0o600, 0o700),
            (0o775, 0o640, 0o750),
            (0o750, 0o644, 0o750),
            (0o644, 0o644, 0o644),
            (0o555, 0o644, 0o755),
        ] {
            let mode = mode_of_copy(original, created);
            assert_eq!(mode, expected, "{original:o} {created:o} {mode:o}");
        }
    }

    #[test]
    fn no_mode_gives_others_the_right_to_write() {
        for (original, umask) in
            (0..=0o7777).flat_map(|mode| [(mode, 0), (mode, 0o022), (mode, 0o077)])
        {
            let mode = mode_of_copy(original, 0o666 & !umask);
            assert_eq!(mode & 0o022, 0);
            assert_eq!(mode & umask, 0);
            assert_eq!(mode & 0o055 & !original, 0, "{original:o} {mode:o}");
            assert_eq!(mode & 0o7000, 0);
        }
    }
}
