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

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::{Builder, NamedTempFile};

use super::open::{not_regular, open_own};

/// What names of files begin and end with that are being written.
const TEMPORARY: (&str, &str) = (".folio-", ".tmp");
/// Mode of a new file, minus the umask, as of any file that is created.
const MODE: u32 = 0o666;
/// Bits of an earlier file's mode that the new one gets: not set-id and sticky.
const MODE_KEPT: u32 = 0o777;
/// Names of standard output.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// A result that is being written: complete under its name after [`Whole::commit`], else nowhere.
///
/// What cannot be replaced is written to as it is: standard output (`-`, `/dev/stdout`), a FIFO, a
/// character device such as `/dev/null`.
#[derive(Debug)]
pub struct Whole {
    path: PathBuf,
    state: State,
    /// Mode of the file that is replaced, if it is ours.
    mode: Option<u32>,
}

#[derive(Debug)]
enum State {
    /// A file without a name.
    Nameless(File),
    /// A file whose name says that it is not finished; removed when this is dropped.
    Named(NamedTempFile),
    /// Not a regular file.
    Stream(File),
    /// It has its name.
    Done(File),
}

/// What a name stands for.
enum Target {
    /// Nothing, a link, or a regular file, whose mode is kept.
    Replaced { mode: Option<u32> },
    /// Standard output.
    Stdout,
    /// Something that takes bytes and cannot be replaced.
    Stream,
}

impl Whole {
    /// Begins a result that will appear at `path`.
    ///
    /// # Errors
    /// If nothing can be made in its directory, or `path` is a directory, a device of blocks, or a
    /// file that may not be written to. Opening a FIFO waits for its reader.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (state, mode) = match target(path)? {
            Target::Replaced { mode } => (State::begin(path)?, mode),
            Target::Stdout => (State::Stream(stdout()?), None),
            Target::Stream => {
                let flags = OFlags::NOCTTY.bits().cast_signed();
                // Appended where it is a file after all, by a descriptor's name below /proc.
                let file = File::options().append(true).custom_flags(flags).open(path)?;
                (State::Stream(file), None)
            }
        };
        Ok(Self { path: path.to_owned(), state, mode })
    }

    /// [`Whole::create`] for what is read again while it is written: only a regular file.
    ///
    /// # Errors
    /// As [`Whole::create`], and for a stream.
    pub fn create_regular(path: &Path) -> io::Result<Self> {
        match target(path)? {
            Target::Replaced { mode } => {
                Ok(Self { path: path.to_owned(), state: State::begin(path)?, mode })
            }
            Target::Stdout => Err(io::Error::other("it is standard output, not a regular file")),
            Target::Stream => Err(not_regular(fs::metadata(path)?.file_type())),
        }
    }

    /// The file that is written.
    #[must_use]
    pub fn file(&self) -> &File {
        match &self.state {
            State::Nameless(file) | State::Stream(file) | State::Done(file) => file,
            State::Named(file) => file.as_file(),
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
        let folder = folder(&self.path);
        match std::mem::replace(&mut self.state, done) {
            State::Nameless(file) => name(&file, &self.path)?,
            State::Named(file) => {
                file.persist(&self.path).map_err(|error| error.error)?;
            }
            State::Stream(_) | State::Done(_) => unreachable!("returned above"),
        }
        // A directory that cannot be read can still be written to.
        File::open(folder).map_or(Ok(()), |folder| folder.sync_all())
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
    /// A file in the directory of `path`.
    fn begin(path: &Path) -> io::Result<Self> {
        let folder = folder(path);
        match Self::nameless(folder) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(folder),
            other => Ok(other?),
        }
    }

    fn nameless(folder: &Path) -> Result<Self, Errno> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(CWD, folder, flags, Mode::from(MODE))?);
        // Without /proc it could never get a name.
        if rustix::fs::lstat(handle(&file)).is_err() {
            return Err(Errno::OPNOTSUPP);
        }
        // Nobody else has it: there is none to wait for.
        let _ = file.try_lock();
        Ok(Self::Nameless(file))
    }

    fn named(folder: &Path) -> io::Result<Self> {
        remove_stale(folder)?;
        loop {
            let file = temporary().permissions(Permissions::from_mode(MODE)).tempfile_in(folder)?;
            file.as_file().lock()?;
            // Another writer may have taken it for a stale one before it was locked.
            if file.as_file().metadata()?.nlink() > 0 {
                return Ok(Self::Named(file));
            }
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
    match target(path)? {
        Target::Replaced { .. } => State::begin(path).map(drop),
        Target::Stdout | Target::Stream => Ok(()),
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
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1)) {
            continue;
        }
        let Ok(file) = open_own(&entry.path()) else { continue };
        let is_ours = file.metadata().is_ok_and(|found| found.uid() == user);
        if is_ours && file.try_lock().is_ok() {
            // Another may have removed it meanwhile.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn temporary() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(TEMPORARY.0).suffix(TEMPORARY.1);
    builder
}

fn target(path: &Path) -> io::Result<Target> {
    if is_stdout(path) {
        return Ok(Target::Stdout);
    }
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Target::Replaced { mode: None });
        }
        Err(error) => return Err(error),
    };
    let kind = found.file_type();
    if kind.is_symlink() && !is_of_the_system(path) {
        return Ok(Target::Replaced { mode: None });
    }
    if kind.is_file() {
        // What may not be written to is not replaced either. Not opened: a running program is busy.
        rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        return Ok(Target::Replaced { mode: is_ours.then(|| found.mode()) });
    }
    // A link of the system leads to a descriptor, whatever that is.
    let kind = fs::metadata(path)?.file_type();
    if kind.is_fifo() || kind.is_char_device() || kind.is_file() {
        rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?;
        return Ok(Target::Stream);
    }
    Err(not_regular(kind))
}

/// Whether a link is one that only the system makes (`/dev/stderr`, `/dev/fd/63`): to replace it
/// would be to break the system, and nobody else can have planted it.
fn is_of_the_system(link: &Path) -> bool {
    let folder = fs::canonicalize(folder(link)).unwrap_or_default();
    folder == Path::new("/dev") || folder.starts_with("/proc")
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn stdout() -> io::Result<File> {
    io::stdout().flush()?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// The name that a file without one has below `/proc`.
fn handle(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives a file without a name that of a result, in the place of an earlier one.
fn name(file: &File, path: &Path) -> io::Result<()> {
    match link(file, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let folder = folder(path);
    // One that cannot be listed can still be written to.
    let _ = remove_stale(folder);
    let named = temporary().make_in(folder, |name| link(file, name))?;
    named.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, handle(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(test)]
mod tests;
