//! The place for a result: its directory, held open, and the file that currently has its name.
//!
//! ```text
//!   name is free, a link, a regular file     replaced: a new file gets the name
//!   FIFO, character device                   written to, through the descriptor that found it
//!   link in /dev, own descriptor in /proc    followed, then as above; a regular file is appended to
//!   anything else                            refused
//! ```
//!
//! Every step is relative to the directory opened first, so the result stays there even if the
//! directory's name changes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::path_handle::{PathHandle, not_regular};

/// Maximum wait for a FIFO's reader. A reader started together with the writer needs milliseconds.
const READER_MAX: Duration = Duration::from_secs(10);
const READER_POLL: Duration = Duration::from_millis(10);

/// The place of a result. Nothing is opened or changed yet.
#[derive(Debug)]
pub struct Place {
    pub(super) folder: Folder,
    pub(super) name: OsString,
    pub(super) target: Target,
}

#[derive(Debug)]
pub(super) enum Target {
    /// Nothing, a link, or a regular file. `mode` is kept from a file of the same user.
    Replaced {
        mode: Option<u32>,
    },
    Stream(PathHandle),
}

impl Place {
    /// Looks up the place of a result named `path`.
    ///
    /// # Errors
    /// System errors, or a name that cannot be written or replaced.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (folder, name) = split(path);
        let folder = Folder::of(folder)?;
        let is_folder = [b"".as_slice(), b".", b".."].contains(&name.as_bytes());
        if is_folder && !path.as_os_str().is_empty() {
            return Err(not_regular(PathHandle::of(path)?.kind()));
        }
        let target = target(&folder, name)?;
        Ok(Self { folder, name: name.to_owned(), target })
    }

    /// Returns the directory for a new result, or the stream to write to.
    #[must_use]
    pub fn written(&self) -> &PathHandle {
        match &self.target {
            Target::Replaced { .. } => &self.folder.found,
            Target::Stream(found) => found,
        }
    }
}

#[derive(Debug)]
pub(super) struct Folder {
    found: PathHandle,
}

impl Folder {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(Self { found: PathHandle::at(CWD, path, OFlags::DIRECTORY)? })
    }

    pub(super) fn open(&self) -> io::Result<File> {
        self.found.open(OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Syncs the directory's names. A directory without read permission can still be written to.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.open().map_or(Ok(()), |folder| folder.sync_all())
    }

    pub(super) fn find(&self, name: &OsStr) -> io::Result<PathHandle> {
        PathHandle::at(self, Path::new(name), OFlags::NOFOLLOW)
    }

    fn links(&self) -> Links {
        let place = fs::read_link(self.found.handle()).unwrap_or_default();
        let own = format!("/proc/{}", rustix::process::getpid().as_raw_nonzero());
        let is_proc = rustix::fs::fstatfs(self)
            .is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC);
        match is_proc {
            true if place.starts_with(own) && place.ends_with("fd") => Links::System,
            true => Links::Others,
            false if place == Path::new("/dev") => Links::System,
            false => Links::Users,
        }
    }
}

enum Links {
    /// The system (`/dev/stderr`, `/dev/fd/63`). Replacing such a link would break the system, and
    /// only root can create one.
    System,
    /// Other links below `/proc`, whose targets another process controls.
    Others,
    Users,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.found.as_fd()
    }
}

/// Splits off the name. A path that ends with a slash has the name "".
fn split(path: &Path) -> (&Path, &OsStr) {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (folder, name) = bytes.split_at(end);
    (Path::new(OsStr::from_bytes(folder)), OsStr::from_bytes(name))
}

fn target(folder: &Folder, name: &OsStr) -> io::Result<Target> {
    let found = match folder.find(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !name.is_empty() => {
            return Ok(Target::Replaced { mode: None });
        }
        found => found?,
    };
    let kind = found.kind();
    if kind.is_file() {
        // A read-only file is not replaced. Not opened, because a running program would be busy.
        found.check_writable()?;
        return Ok(Target::Replaced { mode: own_mode(found.metadata()) });
    }
    let found = match kind.is_symlink().then(|| folder.links()) {
        None => found,
        Some(Links::Users) => return Ok(Target::Replaced { mode: None }),
        Some(Links::Others) => return Err(not_regular(kind)),
        Some(Links::System) => PathHandle::at(folder, Path::new(name), OFlags::empty())?,
    };
    let kind = found.kind();
    if !(kind.is_fifo() || kind.is_char_device() || kind.is_file()) {
        return Err(not_regular(kind));
    }
    found.check_writable()?;
    Ok(Target::Stream(found))
}

fn own_mode(found: &Metadata) -> Option<u32> {
    (found.uid() == rustix::process::geteuid().as_raw()).then(|| found.mode())
}

/// Opens a stream for writing. Waits for a FIFO's reader, but only up to `reader_max`.
pub(super) fn open_stream(found: &PathHandle, reader_max: Duration) -> io::Result<File> {
    let (begin, is_fifo) = (Instant::now(), found.kind().is_fifo());
    let is_unread =
        |error: &io::Error| is_fifo && error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
    // Appends, because a descriptor's name below /proc can refer to a regular file.
    let file = loop {
        match found.open(OFlags::WRONLY | OFlags::APPEND) {
            Err(error) if is_unread(&error) && begin.elapsed() < reader_max => {
                thread::sleep(READER_POLL);
            }
            Err(error) if is_unread(&error) => return Err(unread(reader_max)),
            file => break file?,
        }
    };
    // Only opening must not block. Writes may wait for a slow reader.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

pub(super) fn open_patiently(found: &PathHandle) -> io::Result<File> {
    open_stream(found, READER_MAX)
}

fn unread(reader_max: Duration) -> io::Error {
    let why = format!(
        "it is a FIFO, but no program opened it for reading within {} s; start its reader first",
        reader_max.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, why)
}
