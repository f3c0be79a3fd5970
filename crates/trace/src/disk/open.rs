//! Opens input files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::path_handle::{NotRegular, PathHandle};

/// Maximum attempts to open a lock file that another process keeps removing.
const ATTEMPTS_MAX: usize = 100;

/// Opens a regular file for reading and refuses anything else. Never blocks, and neither do later
/// reads of a file such as `/proc/kmsg`, which fail with [`io::ErrorKind::WouldBlock`].
///
/// ```
/// use largefolio_trace::disk::open_regular;
/// let refused = open_regular("/dev/null".as_ref()).unwrap_err();
/// assert_eq!(refused.to_string(), "it is a character device, not a regular file");
/// ```
///
/// # Errors
/// System errors, or [`NotRegular`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    PathHandle::of(path)?.open_regular()
}

/// Like [`open_regular`], but keeps the access time if this user owns the file or is root.
///
/// # Errors
/// As [`open_regular`].
pub fn open_quietly(path: &Path) -> io::Result<File> {
    let found = PathHandle::of(path)?;
    found.refuse_others()?;
    found.open(OFlags::NOATIME).or_else(|_| found.open(OFlags::RDONLY))
}

/// Like [`open_regular`], but refuses symbolic links. For files that only this user writes.
///
/// # Errors
/// As [`open_regular`].
pub fn open_own(path: &Path) -> io::Result<File> {
    PathHandle::itself(path)?.open_regular()
}

/// Returns the kind of file, if the error is about a file that is not regular.
#[must_use]
pub fn other_kind(error: &io::Error) -> Option<&'static str> {
    error.get_ref()?.downcast_ref::<NotRegular>().map(|other| other.0)
}

/// Returns whether the error is about the file (another kind, or too long), not the system.
#[must_use]
pub fn is_foreign(error: &io::Error) -> bool {
    other_kind(error).is_some() || error.kind() == io::ErrorKind::FileTooLarge
}

/// Reads a regular file of at most `bytes_max`.
///
/// # Errors
/// As [`open_regular`]; [`io::ErrorKind::FileTooLarge`] for a longer one.
pub fn read_whole(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_from(open_regular(path)?, bytes_max)
}

/// Reads a regular text file of at most `bytes_max`.
///
/// # Errors
/// As [`read_whole`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let bytes = read_whole(path, bytes_max)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

/// Reads an open file of at most `bytes_max`.
///
/// # Errors
/// System errors; [`io::ErrorKind::FileTooLarge`].
pub fn read_from(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Files in /proc have no length, and any file can grow in the meantime.
    let mut nr_bytes = file.metadata()?.len();
    if nr_bytes <= bytes_max {
        nr_bytes = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)? as u64;
    }
    if nr_bytes > bytes_max {
        let what = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Opens a regular file for locking and creates it with `mode` if it is missing. Refuses symbolic
/// links.
///
/// # Errors
/// As [`open_regular`].
pub fn open_lock(path: &Path, mode: u32) -> io::Result<File> {
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS_MAX {
        match PathHandle::itself(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => {
                let found = found?;
                found.refuse_others()?;
                return found.open(OFlags::WRONLY | OFlags::APPEND);
            }
        }
        match rustix::fs::open(path, new, Mode::from(mode)) {
            Err(Errno::EXIST) => {}
            created => return Ok(created?.into()),
        }
    }
    Err(io::Error::other("another process keeps creating and removing it"))
}
