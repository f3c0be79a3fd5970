//! An object that a name led to, held so that no other can take its place.
//!
//! In a directory that a user may write to, names can change between two looks. So a name is looked up
//! once, into a descriptor that opens nothing (`O_PATH`): no FIFO waits, and no device notices. This
//! object is judged, and then opened through the descriptor's own name below `/proc`.

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

/// The object that a name led to, of any kind and not opened.
///
/// ```
/// use largefolio_trace::disk::Found;
/// use std::os::unix::fs::FileTypeExt as _;
/// let null = Found::of("/dev/null".as_ref())?;
/// assert!(null.metadata().file_type().is_char_device());
/// assert!(null.open_regular().is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Found {
    descriptor: File,
    metadata: Metadata,
}

impl Found {
    /// The object that `path` leads to; links are followed.
    ///
    /// # Errors
    /// The system's.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path, OFlags::empty())
    }

    /// The object at `path` itself, be it a link.
    ///
    /// # Errors
    /// The system's.
    pub fn itself(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path, OFlags::NOFOLLOW)
    }

    pub(super) fn at(folder: impl AsFd, name: &Path, more: OFlags) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | more;
        let descriptor = File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
        let metadata = descriptor.metadata()?;
        Ok(Self { descriptor, metadata })
    }

    /// Its metadata at the time it was found.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(super) fn kind(&self) -> FileType {
        self.metadata.file_type()
    }

    /// Opens it to be read if it is a regular file.
    ///
    /// # Errors
    /// [`NotRegular`]; the system's.
    pub fn open_regular(&self) -> io::Result<File> {
        self.refuse_others()?;
        self.open(OFlags::RDONLY)
    }

    /// Opens it, whatever it is: the caller has judged its metadata. Nothing is waited for, neither
    /// here nor by a read.
    ///
    /// # Errors
    /// The system's; that `/proc` is missing.
    pub fn open(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(self.handle(), flags, Mode::empty());
        Ok(opened.map_err(by_handle)?.into())
    }

    /// Whether this process may write to it; it is not opened.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        let may = rustix::fs::accessat(CWD, self.handle(), Access::WRITE_OK, AtFlags::EACCESS);
        may.map_err(by_handle)
    }

    /// The name its descriptor has below `/proc`: leads to it as long as this lives.
    #[must_use]
    pub fn handle(&self) -> PathBuf {
        handle(&self.descriptor)
    }

    pub(super) fn refuse_others(&self) -> io::Result<()> {
        if self.kind().is_file() { Ok(()) } else { Err(not_regular(self.kind())) }
    }
}

impl AsFd for Found {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The name that an open file has below `/proc`.
pub(super) fn handle(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// The error of a call that was given a descriptor's name.
fn by_handle(error: Errno) -> io::Error {
    // The descriptor's name works even if the file was renamed or removed.
    if !matches!(error, Errno::NOENT | Errno::NOTDIR) {
        return error.into();
    }
    let why = "/proc is not mounted, and folio opens files through /proc/self/fd so that nothing can \
               replace them; mount it: mount -t proc proc /proc";
    io::Error::new(io::ErrorKind::Unsupported, why)
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
