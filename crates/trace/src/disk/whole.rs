//! Writing a result that appears whole or not at all.
//!
//! ```text
//!   create   a file without a name (O_TMPFILE) in the directory of the result
//!   write    ENOSPC, Ctrl-C, SIGKILL: the kernel drops it with its last descriptor
//!   commit   fsync, mode, the result's name, fsync of the directory
//!            if that name is taken: another one (.folio-XXXXXX.tmp), rename over the result
//! ```
//!
//! `linkat` replaces nothing, so a file that replaces one has for a moment a name that is not the
//! result's. A filesystem without `O_TMPFILE` has it under such a name from the beginning. The
//! writer holds a lock on it. A killed process leaves it unlocked, and the next writer in that
//! directory that uses such a name removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::found::{Found, handle, not_regular};
use super::place::{Folder, Place, Target, open_patiently};

/// What names of files begin and end with that are being written.
const TEMPORARY: (&str, &str) = (".folio-", ".tmp");
/// Mode of a new file, minus the umask, as of any file that is created.
const MODE: u32 = 0o666;
/// Bits of an earlier file's mode that the new one gets: not set-id and sticky.
const MODE_KEPT: u32 = 0o777;
/// Names that are tried for a file that is being written, of 2^24.
const NAMES: usize = 100;
/// Names of standard output.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// A result that is being written: complete under its name after [`Whole::commit`], else nowhere.
///
/// What cannot be replaced is written to as it is: standard output (`-`, `/dev/stdout`), a FIFO, a
/// character device such as `/dev/null`.
#[derive(Debug)]
pub struct Whole {
    state: State,
    /// Mode of the file that is replaced, if it is ours.
    mode: Option<u32>,
}

#[derive(Debug)]
enum State {
    /// A file without a name.
    Nameless { file: File, folder: Folder, name: OsString },
    /// A file whose name says that it is not finished; removed when this is dropped.
    Named { temporary: Temporary, name: OsString },
    /// Not a regular file.
    Stream(File),
    /// It has its name.
    Done(File),
}

/// A file with a name that is not the result's, which goes with this value.
#[derive(Debug)]
struct Temporary {
    file: File,
    folder: Folder,
    name: OsString,
}

impl Whole {
    /// Begins a result that will appear at `path`.
    ///
    /// # Errors
    /// If nothing can be made in its directory, or `path` is a directory, a device of blocks, or a
    /// file that may not be written to; if no program opens a FIFO to read within ten seconds.
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

    /// [`Whole::create`] for what is read again while it is written: only a regular file.
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

    /// The file that is written.
    #[must_use]
    pub fn file(&self) -> &File {
        match &self.state {
            State::Nameless { file, .. } | State::Stream(file) | State::Done(file) => file,
            State::Named { temporary, .. } => &temporary.file,
        }
    }

    /// The mode it will have, whatever the umask says.
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = Some(mode);
    }

    /// Brings it to the disk and gives it its name.
    ///
    /// # Errors
    /// The system's; nothing has changed then under the result's name.
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
    /// A file in `folder` that is going to be called `name`.
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
    // Without /proc it could never get a name.
    if rustix::fs::lstat(handle(&file)).is_err() {
        return Err(Errno::OPNOTSUPP);
    }
    // No other process has it, so this does not wait.
    let _ = file.try_lock();
    Ok(file)
}

impl Temporary {
    /// Makes an empty one, and locks it.
    fn create(folder: Folder) -> io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        for name in temporary_names() {
            let file = match rustix::fs::openat(&folder, &name, flags, Mode::from(MODE)) {
                Err(Errno::EXIST) => continue,
                file => File::from(file?),
            };
            file.lock()?;
            // Another writer may have taken it for a stale one before it was locked.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { file, folder, name });
            }
        }
        Err(no_name())
    }

    /// Renames it to the result, in the place of an earlier one.
    fn rename(mut self, name: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(&self.folder, &self.name, &self.folder, name)?;
        self.name.clear();
        self.folder.sync()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // The next writer removes it otherwise.
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

/// Whether a result can be written to `path`, as far as this can be known before the work that
/// leads to it. Changes nothing, and opens no FIFO.
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

/// Whether `path` stands for standard output: `-`, `/dev/stdout` and what that is a link to.
#[must_use]
pub fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| Path::new(name) == path)
}

/// Removes what killed writers left in `folder`: files of ours with a temporary name that nobody
/// has locked.
///
/// # Errors
/// When `folder` cannot be listed.
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
            // Another process may have removed it meanwhile. A file cannot be removed by its descriptor;
            // a stranger's file with such a name in this moment is lost.
            let _ = rustix::fs::unlinkat(folder, &name, AtFlags::empty());
        }
    }
    Ok(())
}

fn is_temporary(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1)
}

fn is_still(folder: &Folder, name: &OsStr, found: &Found) -> bool {
    let id = |found: &Found| (found.metadata().dev(), found.metadata().ino());
    folder.find(name).is_ok_and(|now| id(&now) == id(found))
}

/// Random names: another user cannot take all of them.
fn temporary_names() -> impl Iterator<Item = OsString> {
    let (begin, end) = TEMPORARY;
    let random = |nr| RandomState::new().hash_one(nr) % (1 << 24);
    (0..NAMES).map(move |nr| format!("{begin}{:06x}{end}", random(nr)).into())
}

fn no_name() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "all names for a file to be written are taken")
}

fn stdout() -> io::Result<File> {
    io::stdout().flush()?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Gives a file without a name that of a result, in the place of an earlier one.
fn give_name(file: File, folder: Folder, name: &OsStr) -> io::Result<()> {
    match link(&file, &folder, name) {
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
        Ok(()) => return folder.sync(),
    }
    // One that cannot be listed can still be written to.
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
