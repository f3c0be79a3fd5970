//! Opens input files.

use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// A file of another kind than was asked for, inside an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is {0}, not a regular file")]
pub struct NotRegular(pub &'static str);

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
    // Before it is opened: to open a device can have effects (a tape rewinds).
    refuse_others(fs::metadata(path)?.file_type())?;
    open(path, OFlags::empty())
}

/// [`open_regular`] for a look that changes nothing: the access time stays, if the file is ours or
/// root asks.
///
/// # Errors
/// As [`open_regular`].
pub fn open_quietly(path: &Path) -> io::Result<File> {
    refuse_others(fs::metadata(path)?.file_type())?;
    open(path, OFlags::NOATIME).or_else(|_| open(path, OFlags::empty()))
}

/// [`open_regular`] for a file that is ours alone: a symbolic link is refused.
///
/// # Errors
/// As [`open_regular`].
pub fn open_own(path: &Path) -> io::Result<File> {
    refuse_others(fs::symlink_metadata(path)?.file_type())?;
    open(path, OFlags::NOFOLLOW)
}

fn open(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | more).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // It may be another one than was examined.
    refuse_others(file.metadata()?.file_type())?;
    Ok(file)
}

fn refuse_others(kind: FileType) -> io::Result<()> {
    if kind.is_file() { Ok(()) } else { Err(not_regular(kind)) }
}

/// The error that names `kind`.
pub(super) fn not_regular(kind: FileType) -> io::Error {
    let (error, what) = match kind {
        kind if kind.is_dir() => (io::ErrorKind::IsADirectory, "a directory"),
        kind if kind.is_fifo() => (io::ErrorKind::InvalidInput, "a FIFO"),
        kind if kind.is_socket() => (io::ErrorKind::InvalidInput, "a socket"),
        kind if kind.is_char_device() => (io::ErrorKind::InvalidInput, "a character device"),
        kind if kind.is_block_device() => (io::ErrorKind::InvalidInput, "a block device"),
        kind if kind.is_symlink() => (io::ErrorKind::InvalidInput, "a symbolic link"),
        _ => (io::ErrorKind::InvalidInput, "something else"),
    };
    io::Error::new(error, NotRegular(what))
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
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits().cast_signed();
    let mut options = File::options();
    options.append(true).create(true).mode(mode).custom_flags(flags);
    let file = match options.open(path) {
        Ok(file) => file,
        // The system's words for a FIFO without a reader (ENXIO) and a link (ELOOP) do not say so.
        Err(error) => {
            fs::symlink_metadata(path).map_or(Ok(()), |found| refuse_others(found.file_type()))?;
            return Err(error);
        }
    };
    refuse_others(file.metadata()?.file_type())?;
    Ok(file)
}
