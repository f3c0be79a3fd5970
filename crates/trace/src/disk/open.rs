//! Opens input files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::found::{Found, NotRegular};

/// How often a lock is looked for; past that, another process removes it again and again.
const LOOKS: usize = 100;

/// Opens a regular file to read it. Anything else is refused, and nothing is waited for: neither
/// here nor by a read of a file such as `/proc/kmsg`, which then fails with
/// [`io::ErrorKind::WouldBlock`].
///
/// ```
/// use largefolio_trace::disk::open_regular;
/// let refused = open_regular("/dev/null".as_ref()).unwrap_err();
/// assert_eq!(refused.to_string(), "it is a character device, not a regular file");
/// ```
///
/// # Errors
/// The system's, or [`NotRegular`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    Found::of(path)?.open_regular()
}

/// [`open_regular`] for a look that changes nothing: the access time stays, if the file is ours or
/// root asks.
///
/// # Errors
/// As [`open_regular`].
pub fn open_quietly(path: &Path) -> io::Result<File> {
    let found = Found::of(path)?;
    found.refuse_others()?;
    found.open(OFlags::NOATIME).or_else(|_| found.open(OFlags::RDONLY))
}

/// [`open_regular`] for a file that is ours alone: a symbolic link is refused.
///
/// # Errors
/// As [`open_regular`].
pub fn open_own(path: &Path) -> io::Result<File> {
    Found::itself(path)?.open_regular()
}

/// What a file is that is not the regular one that was asked for.
#[must_use]
pub fn other_kind(error: &io::Error) -> Option<&'static str> {
    error.get_ref()?.downcast_ref::<NotRegular>().map(|other| other.0)
}

/// Whether a file is of another kind, or longer, than the one that was asked for: damage rather than
/// a failure of the system.
#[must_use]
pub fn is_foreign(error: &io::Error) -> bool {
    other_kind(error).is_some() || error.kind() == io::ErrorKind::FileTooLarge
}

/// The bytes of a regular file of at most `bytes_max`.
///
/// # Errors
/// As [`open_regular`]; [`io::ErrorKind::FileTooLarge`] for a longer one.
pub fn read_whole(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_from(open_regular(path)?, bytes_max)
}

/// The text of a regular file of at most `bytes_max`.
///
/// # Errors
/// As [`read_whole`]; [`io::ErrorKind::InvalidData`] for what is no UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let bytes = read_whole(path, bytes_max)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

/// The bytes of an open file of at most `bytes_max`.
///
/// # Errors
/// The system's; [`io::ErrorKind::FileTooLarge`].
pub fn read_from(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // What the system makes as it is read (/proc) has no length, and any file may grow meanwhile.
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

/// A regular file to be locked, made with `mode` if it is missing; a symbolic link is refused.
///
/// # Errors
/// As [`open_regular`].
pub fn open_lock(path: &Path, mode: u32) -> io::Result<File> {
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    for _ in 0..LOOKS {
        match Found::itself(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => {
                let found = found?;
                found.refuse_others()?;
                return found.open(OFlags::WRONLY | OFlags::APPEND);
            }
        }
        match rustix::fs::open(path, new, Mode::from(mode)) {
            // It was made meanwhile.
            Err(Errno::EXIST) => {}
            created => return Ok(created?.into()),
        }
    }
    Err(io::Error::other("another process keeps creating and removing it"))
}
