//! The place of a result: its directory, held open, and the file that has its name now.
//!
//! ```text
//!   name is free, a link, a regular file     replaced: a new file gets the name
//!   FIFO, character device                   written to, through the descriptor that found it
//!   link in /dev, own descriptor in /proc    followed, then as above; a regular file is appended to
//!   anything else                            refused
//! ```
//!
//! Every step is relative to the directory that was opened first, so it stays in that one, whatever
//! takes the directory's name meanwhile.

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

use super::found::{Found, not_regular};

/// How long a FIFO may be without a reader. One that is started together with the writer takes
/// milliseconds.
const READER_MAX: Duration = Duration::from_secs(10);
/// Between two looks for a reader.
const READER_LOOK: Duration = Duration::from_millis(10);

/// Where a result goes. Nothing is opened or changed yet.
#[derive(Debug)]
pub struct Place {
    pub(super) folder: Folder,
    pub(super) name: OsString,
    pub(super) target: Target,
}

/// The file with the result's name.
#[derive(Debug)]
pub(super) enum Target {
    /// Nothing, a link, or a regular file; the mode of our own file is kept.
    Replaced { mode: Option<u32> },
    /// Something that takes bytes and is not replaced.
    Stream(Found),
}

impl Place {
    /// Looks where a result with the name `path` goes.
    ///
    /// # Errors
    /// The system's; a name that cannot be written or replaced.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (folder, name) = split(path);
        let folder = Folder::of(folder)?;
        let is_folder = [b"".as_slice(), b".", b".."].contains(&name.as_bytes());
        if is_folder && !path.as_os_str().is_empty() {
            return Err(not_regular(Found::of(path)?.kind()));
        }
        let target = target(&folder, name)?;
        Ok(Self { folder, name: name.to_owned(), target })
    }

    /// The directory in which the result is made, or the stream that it is written to.
    #[must_use]
    pub fn written(&self) -> &Found {
        match &self.target {
            Target::Replaced { .. } => &self.folder.found,
            Target::Stream(found) => found,
        }
    }
}

/// A directory by a descriptor that opens nothing.
#[derive(Debug)]
pub(super) struct Folder {
    found: Found,
}

impl Folder {
    /// The directory at `path`; an empty one is the working directory.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(Self { found: Found::at(CWD, path, OFlags::DIRECTORY)? })
    }

    /// Opens it to be listed.
    pub(super) fn open(&self) -> io::Result<File> {
        self.found.open(OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Brings its names to the disk. One that cannot be read can still be written to.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.open().map_or(Ok(()), |folder| folder.sync_all())
    }

    /// The object with this name in it, be it a link.
    pub(super) fn find(&self, name: &OsStr) -> io::Result<Found> {
        Found::at(self, Path::new(name), OFlags::NOFOLLOW)
    }

    /// Whose links it holds.
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

/// Whose links a directory holds.
enum Links {
    /// The system's (`/dev/stderr`, `/dev/fd/63`): replacing one would break the system, and only root
    /// can have made it.
    System,
    /// Below `/proc`, but not this process's own descriptors: they lead where another process wants.
    Others,
    /// Any other.
    Users,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.found.as_fd()
    }
}

/// Directory and name. What ends with a slash has the name "".
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
        // What may not be written to is not replaced either. Not opened: a running program is busy.
        found.check_writable()?;
        return Ok(Target::Replaced { mode: own_mode(found.metadata()) });
    }
    let found = match kind.is_symlink().then(|| folder.links()) {
        None => found,
        Some(Links::Users) => return Ok(Target::Replaced { mode: None }),
        Some(Links::Others) => return Err(not_regular(kind)),
        // It leads to a descriptor, whatever that is.
        Some(Links::System) => Found::at(folder, Path::new(name), OFlags::empty())?,
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

/// Opens what takes bytes and is not replaced. A FIFO's reader is waited for, but not for ever.
pub(super) fn open_stream(found: &Found, reader_max: Duration) -> io::Result<File> {
    let (begin, is_fifo) = (Instant::now(), found.kind().is_fifo());
    let is_unread =
        |error: &io::Error| is_fifo && error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
    // Appended to where it is a file after all, by a descriptor's name below /proc.
    let file = loop {
        match found.open(OFlags::WRONLY | OFlags::APPEND) {
            Err(error) if is_unread(&error) && begin.elapsed() < reader_max => {
                thread::sleep(READER_LOOK);
            }
            Err(error) if is_unread(&error) => return Err(unread(reader_max)),
            file => break file?,
        }
    };
    // Only opening must not wait; a reader may be slow.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// [`open_stream`] as long as any reader may take.
pub(super) fn open_patiently(found: &Found) -> io::Result<File> {
    open_stream(found, READER_MAX)
}

fn unread(reader_max: Duration) -> io::Error {
    let why = format!(
        "it is a FIFO, and no program opened it for reading within {} s; start its reader first",
        reader_max.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, why)
}
