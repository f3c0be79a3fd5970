//! Writes a result so that it appears whole or not at all.
//!
//! ```text
//!   create   a file without a name (O_TMPFILE) in the directory of the result
//!   write    ENOSPC, Ctrl-C, SIGKILL: the kernel drops it with its last descriptor
//!   commit   fsync, mode, the result's name, fsync of the directory
//!            if that name is taken: another one (.folio-XXXXXX.tmp), rename over the result
//! ```
//!
//! `linkat` cannot replace a file, so a result that replaces one briefly has a temporary name. On a
//! filesystem without `O_TMPFILE` it has such a name from the start. The writer holds a lock on it.
//! If the writer is killed, the file remains but is no longer locked, and the next writer that uses
//! a temporary name in that directory removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::path_handle::{PathHandle, handle, not_regular};
use super::place::{Folder, Place, Target, open_patiently};

const TEMPORARY: (&str, &str) = (".folio-", ".tmp");
/// Mode of a new file before the umask, as for any new file.
const MODE: u32 = 0o666;
/// Mode bits kept from an earlier file: not set-id or sticky.
const MODE_KEPT: u32 = 0o777;
const NAMES: usize = 100;
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// A result in progress. It appears complete under its name after [`Whole::commit`], or not at all.
///
/// Some objects are never replaced, but written to directly: standard output (`-`, `/dev/stdout`),
/// a FIFO, a character device such as `/dev/null`.
#[derive(Debug)]
pub struct Whole {
    state: State,
    mode: Option<u32>,
}

#[derive(Debug)]
enum State {
    Nameless { file: File, folder: Folder, name: OsString },
    Named { temporary: Temporary, name: OsString },
    Stream(File),
    Done(File),
}

/// A file with a temporary name, removed on drop.
#[derive(Debug)]
struct Temporary {
    file: File,
    folder: Folder,
    name: OsString,
}

impl Whole {
    /// Starts a result that will appear at `path`.
    ///
    /// # Errors
    /// If its directory does not allow new files; if `path` is a directory, a block device, or a
    /// file without write permission; if no program opens a FIFO for reading within ten seconds.
    pub fn create(path: &Path) -> io::Result<Self> {
        if is_stdout(path) {
            return Ok(Self { state: State::Stream(stdout()?), mode: None });
        }
        let Place { folder, name, target } = Place::of(path)?;
        match target {
            Target::Replaced { mode } => Ok(Self { state: State::begin(folder, name)?, mode }),
            Target::Stream(found) => {
                Ok(Self { state: State::Stream(open_patiently(&found)?), mode: None })
            }
        }
    }

    /// Like [`Whole::create`], but only for a regular file, which can be read back while it is
    /// written.
    ///
    /// # Errors
    /// As [`Whole::create`], and for a stream.
    pub fn create_regular(path: &Path) -> io::Result<Self> {
        if is_stdout(path) {
            return Err(io::Error::other("it is standard output, not a regular file"));
        }
        let Place { folder, name, target } = Place::of(path)?;
        match target {
            Target::Replaced { mode } => Ok(Self { state: State::begin(folder, name)?, mode }),
            Target::Stream(found) => Err(not_regular(found.metadata().file_type())),
        }
    }

    /// Returns the file to write.
    #[must_use]
    pub fn file(&self) -> &File {
        match &self.state {
            State::Nameless { file, .. } | State::Stream(file) | State::Done(file) => file,
            State::Named { temporary, .. } => &temporary.file,
        }
    }

    /// Sets the final mode, regardless of the umask.
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = Some(mode);
    }

    /// Syncs the file and gives it its name.
    ///
    /// # Errors
    /// System errors. The result's name is then unchanged.
    pub fn commit(&mut self) -> io::Result<()> {
        if let State::Stream(_) | State::Done(_) = self.state {
            return self.file().flush();
        }
        if let Some(mode) = self.mode {
            self.file().set_permissions(Permissions::from_mode(mode & MODE_KEPT))?;
        }
        self.file().sync_all()?;
        let done = State::Done(self.file().try_clone()?);
        match std::mem::replace(&mut self.state, done) {
            State::Nameless { file, folder, name } => give_name(file, folder, &name),
            State::Named { temporary, name } => temporary.rename(&name),
            State::Stream(_) | State::Done(_) => unreachable!("returned above"),
        }
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

impl State {
    fn begin(folder: Folder, name: OsString) -> io::Result<Self> {
        match nameless(&folder) {
            Ok(file) => Ok(Self::Nameless { file, folder, name }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(folder, name),
            Err(error) => Err(error.into()),
        }
    }

    fn named(folder: Folder, name: OsString) -> io::Result<Self> {
        remove_stale_in(&folder)?;
        Ok(Self::Named { temporary: Temporary::create(folder)?, name })
    }
}

fn nameless(folder: &Folder) -> Result<File, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, ".", flags, Mode::from(MODE))?);
    // Without /proc the file could never get a name.
    if rustix::fs::lstat(handle(&file)).is_err() {
        return Err(Errno::OPNOTSUPP);
    }
    // No other process has the file, so this does not block.
    let _ = file.try_lock();
    Ok(file)
}

impl Temporary {
    fn create(folder: Folder) -> io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        for name in temporary_names() {
            let file = match rustix::fs::openat(&folder, &name, flags, Mode::from(MODE)) {
                Err(Errno::EXIST) => continue,
                file => File::from(file?),
            };
            file.lock()?;
            // Another writer may have removed it as stale before it was locked.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { file, folder, name });
            }
        }
        Err(no_name())
    }

    fn rename(mut self, name: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(&self.folder, &self.name, &self.folder, name)?;
        self.name.clear();
        self.folder.sync()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Writes `bytes` to `path`, all of them or none.
///
/// # Errors
/// As [`Whole::create`] and [`Whole::commit`].
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut whole = Whole::create(path)?;
    whole.write_all(bytes)?;
    whole.commit()
}

/// Checks in advance whether a result can be written to `path`. Changes nothing and opens no FIFO.
///
/// # Errors
/// As [`Whole::create`].
pub fn check(path: &Path) -> io::Result<()> {
    if is_stdout(path) {
        return Ok(());
    }
    let Place { folder, name, target } = Place::of(path)?;
    match target {
        Target::Replaced { .. } => State::begin(folder, name).map(drop),
        Target::Stream(_) => Ok(()),
    }
}

/// Returns whether `path` is a name of standard output: `-`, `/dev/stdout` or its link targets.
#[must_use]
pub fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| Path::new(name) == path)
}

/// Removes files left in `folder` by killed writers: files of this user with a temporary name and
/// no lock.
///
/// # Errors
/// If `folder` cannot be listed.
pub fn remove_stale(folder: &Path) -> io::Result<()> {
    remove_stale_in(&Folder::of(folder)?)
}

fn remove_stale_in(folder: &Folder) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let listed = folder.open()?;
    for entry in fs::read_dir(handle(&listed))? {
        let name = entry?.file_name();
        if !is_temporary(&name) {
            continue;
        }
        let Ok(found) = folder.find(&name) else { continue };
        let Ok(file) = found.open_regular() else { continue };
        let is_ours = found.metadata().uid() == user;
        if is_ours && file.try_lock().is_ok() && is_still(folder, &name, &found) {
            // Another process may have removed it in the meantime. A file cannot be removed by its
            // descriptor, so an unrelated file that takes the name right now is lost.
            let _ = rustix::fs::unlinkat(folder, &name, AtFlags::empty());
        }
    }
    Ok(())
}

fn is_temporary(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1)
}

fn is_still(folder: &Folder, name: &OsStr, found: &PathHandle) -> bool {
    let id = |found: &PathHandle| (found.metadata().dev(), found.metadata().ino());
    folder.find(name).is_ok_and(|now| id(&now) == id(found))
}

/// Returns random names, so another user cannot take all of them.
fn temporary_names() -> impl Iterator<Item = OsString> {
    let (begin, end) = TEMPORARY;
    let random = |nr| RandomState::new().hash_one(nr) % (1 << 24);
    (0..NAMES).map(move |nr| format!("{begin}{:06x}{end}", random(nr)).into())
}

fn no_name() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "every name for a temporary file is already taken")
}

fn stdout() -> io::Result<File> {
    io::stdout().flush()?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

fn give_name(file: File, folder: Folder, name: &OsStr) -> io::Result<()> {
    match link(&file, &folder, name) {
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
        Ok(()) => return folder.sync(),
    }
    // A directory that cannot be listed can still be written to.
    let _ = remove_stale_in(&folder);
    for other in temporary_names() {
        match link(&file, &folder, &other) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
            Ok(()) => return Temporary { file, folder, name: other }.rename(name),
        }
    }
    Err(no_name())
}

fn link(file: &File, folder: &Folder, name: &OsStr) -> Result<(), Errno> {
    rustix::fs::linkat(CWD, handle(file), folder, name, AtFlags::SYMLINK_FOLLOW)
}

#[cfg(test)]
mod tests;
