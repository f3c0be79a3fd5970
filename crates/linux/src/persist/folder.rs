//! Reads, writes and removes files in system directories.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use largefolio_trace::{disk, shown};

use super::PersistError;
use super::Planned;
use crate::setting;

/// Our files have a few lines. A longer one is not ours.
pub(crate) const BYTES_MAX: u64 = 64 << 10;
/// Files in `/etc` are readable for all users and writable for root.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;
const OPEN: u32 = 0o002;

pub(crate) fn error(path: &Path, message: impl Into<String>) -> PersistError {
    PersistError::File { path: path.to_owned(), message: message.into() }
}

/// Returns the number of missing directories between `root` and `path`.
///
/// # Errors
/// One that is a link, is not a directory, or could contain files of other users.
pub(crate) fn nr_missing(root: &Path, path: &Path) -> Result<usize, PersistError> {
    let way = folders(root, path);
    for (nr, folder) in way.iter().enumerate() {
        let metadata = match fs::symlink_metadata(folder) {
            Ok(metadata) => metadata,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(way.len() - nr),
            Err(cause) => return Err(error(folder, format!("cannot examine it: {cause}"))),
        };
        if metadata.is_symlink() {
            let message = "it is a symbolic link; folio writes only to the directory itself";
            return Err(error(folder, message));
        }
        if !metadata.is_dir() {
            return Err(error(folder, "it is not a directory; move it away"));
        }
        let user = rustix::process::geteuid().as_raw();
        if metadata.mode() & OPEN != 0 || ![0, user].contains(&metadata.uid()) {
            let message = "it must belong to root and must not be writable by everyone";
            return Err(error(folder, message));
        }
    }
    Ok(0)
}

fn folders(root: &Path, path: &Path) -> Vec<PathBuf> {
    let below = |folder: &&Path| folder.starts_with(root) && *folder != root;
    let mut way: Vec<_> = path.ancestors().skip(1).take_while(below).map(Path::to_owned).collect();
    way.reverse();
    way
}

/// Returns the contents of `path`, or a link's target.
///
/// # Errors
/// Another kind of file, one that is too long or not text ([`is_of_others`]), or a failed system
/// call.
pub(crate) fn read(path: &Path, is_link: bool) -> io::Result<Option<String>> {
    let text = if is_link {
        fs::read_link(path).map(|target| target.to_string_lossy().into_owned())
    } else {
        disk::open_own(path).and_then(|file| disk::read_from(file, BYTES_MAX)).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| io::Error::other("it is not text"))
        })
    };
    match text {
        Ok(text) => Ok(Some(text)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Writes one file and creates its missing directories.
///
/// # Errors
/// A failed write. It leaves no new file under that name.
pub(crate) fn write(file: &Planned) -> Result<(), PersistError> {
    if file.is_unchanged() {
        return Ok(());
    }
    put(&file.path, &file.text, file.place.is_link())
        .map_err(|cause| error(&file.path, format!("cannot write it: {cause}{}", remedy(&cause))))
}

fn put(path: &Path, text: &str, is_link: bool) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    if is_link {
        return symlink(text, path);
    }
    disk::remove_stale(folder)?;
    let mut whole = disk::Whole::create_regular(path)?;
    whole.set_mode(FILE_MODE);
    whole.write_all(text.as_bytes())?;
    whole.commit()
}

/// Checks whether a file can be written, as far as this can be predicted. Changes nothing.
///
/// # Errors
/// A directory that cannot be written to, with the remedy.
pub(crate) fn check(file: &Planned) -> Result<(), PersistError> {
    let folder = file.path.ancestors().skip(1).nth(file.nr_folders).unwrap_or(&file.path);
    let probe = folder.join("50-largefolio.conf");
    let probe = if file.nr_folders == 0 && !file.place.is_link() { &file.path } else { &probe };
    disk::check(probe)
        .map_err(|cause| error(&file.path, format!("cannot write it: {cause}{}", remedy(&cause))))
}

/// Restores the state before [`write`].
///
/// # Errors
/// A failed system call.
pub(crate) fn put_back(file: &Planned) -> Result<(), PersistError> {
    match &file.found {
        Some(_) if file.is_unchanged() => Ok(()),
        Some(text) => put(&file.path, text, file.place.is_link())
            .map_err(|cause| error(&file.path, format!("cannot restore it: {cause}"))),
        None => remove(&file.path, file.nr_folders)
            .map_err(|cause| error(&file.path, format!("cannot remove it: {cause}"))),
    }
}

/// Removes a file, and the `nr_folders` directories that were created for it, if they are empty.
///
/// # Errors
/// A failed system call. A missing file is not an error.
pub(crate) fn remove(path: &Path, nr_folders: usize) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    remove_folders(path, nr_folders);
    Ok(())
}

pub(crate) fn remove_folders(path: &Path, nr_folders: usize) {
    for folder in path.ancestors().skip(1).take(nr_folders) {
        if fs::remove_dir(folder).is_err() {
            // It was not created, or another program has put something into it.
            break;
        }
    }
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; make the filesystem writable, or run the command when the system image is built"
        }
        io::ErrorKind::StorageFull => "; free some space and try again",
        _ => setting::remedy(cause),
    }
}

pub(crate) fn in_the_way(path: &Path) -> PersistError {
    error(
        path,
        format!(
            "it exists, but this user's record does not list it. If another user wrote it with \
             folio, that user can undo it; otherwise move it away: mv {0} {0}.old",
            shown(path)
        ),
    )
}
