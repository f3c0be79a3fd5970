//! The object that a name refers to, held open so that nothing can replace it.
//!
//! In a directory that others can write to, a name can change between two lookups. So a name is
//! looked up once, with an `O_PATH` descriptor that opens nothing: no FIFO blocks, and no device is
//! touched. The object is checked, then opened through the descriptor's name in `/proc`.

use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

/// The wrong kind of file, inside an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is {0}, not a regular file")]
pub struct NotRegular(pub &'static str);

/// An object of any kind, looked up but not opened.
///
/// ```
/// use largefolio_trace::disk::PathHandle;
/// use std::os::unix::fs::FileTypeExt as _;
/// let null = PathHandle::of("/dev/null".as_ref())?;
/// assert!(null.metadata().file_type().is_char_device());
/// assert!(null.open_regular().is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PathHandle {
    descriptor: File,
    metadata: Metadata,
}

impl PathHandle {
    /// Looks up `path` and follows links.
    ///
    /// # Errors
    /// System errors.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path, OFlags::empty())
    }

    /// Looks up `path` without following a final link.
    ///
    /// # Errors
    /// System errors.
    pub fn itself(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path, OFlags::NOFOLLOW)
    }

    pub(super) fn at(folder: impl AsFd, name: &Path, more: OFlags) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | more;
        let descriptor = File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
        let metadata = descriptor.metadata()?;
        Ok(Self { descriptor, metadata })
    }

    /// Returns the metadata from the time of the lookup.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(super) fn kind(&self) -> FileType {
        self.metadata.file_type()
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`NotRegular`], or a system error.
    pub fn open_regular(&self) -> io::Result<File> {
        self.refuse_others()?;
        self.open(OFlags::RDONLY)
    }

    /// Opens an object of any kind, whose metadata the caller has checked. Neither this call nor
    /// later reads block.
    ///
    /// # Errors
    /// System errors, or a missing `/proc`.
    pub fn open(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(self.handle(), flags, Mode::empty());
        Ok(opened.map_err(by_handle)?.into())
    }

    /// Checks write permission without opening the object.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        let may = rustix::fs::accessat(CWD, self.handle(), Access::WRITE_OK, AtFlags::EACCESS);
        may.map_err(by_handle)
    }

    /// Returns the descriptor's name in `/proc`. It is valid as long as `self`.
    #[must_use]
    pub fn handle(&self) -> PathBuf {
        handle(&self.descriptor)
    }

    pub(super) fn refuse_others(&self) -> io::Result<()> {
        if self.kind().is_file() { Ok(()) } else { Err(not_regular(self.kind())) }
    }
}

impl AsFd for PathHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

pub(super) fn handle(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn by_handle(error: Errno) -> io::Error {
    // These names work even for removed files, so this error means that `/proc` is missing.
    if !matches!(error, Errno::NOENT | Errno::NOTDIR) {
        return error.into();
    }
    let why = "/proc is not mounted, and folio opens files through /proc/self/fd so that nothing can \
               replace them; mount it: mount -t proc proc /proc";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

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
