//! Temporary changes to system settings, restored even if the process is killed.
//!
//! A keeper (`keeper.rs`) holds the old value and restores it even if this process is killed.
//! Process and keeper lock the file (`flock`). Otherwise, another folio process could mistake our
//! value for the system's own and restore it.
//!
//! Invariant S1: [`aftermath`] reports every value that was not restored, and every value of
//! another program that was overwritten.

pub mod thp;

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use largefolio_trace::disk::open_regular;
use largefolio_trace::shown;

use crate::keeper::Keeper;
use crate::proc::choice::Choice;
use crate::shell::as_root;

/// The keeper's script: `$1` is the old value, `$2` the file.
const PUT_BACK: &str = "printf %s \"$1\" >\"$2\"";

/// How long a change waits for another folio's change. The longest benchmark of one size takes
/// less.
const PATIENCE: Duration = Duration::from_mins(2);

const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error("{}: {source}; does this kernel have the setting?", shown(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot set {} to {value:?}: {source}{}", shown(path), remedy(source))]
    Write { path: PathBuf, value: String, source: io::Error },
    #[error(
        "{}: another folio process has changed it temporarily; try again when that process has \
            ended",
        shown(path)
    )]
    Busy { path: PathBuf },
    #[error("cannot start the process that restores {}: {source}", shown(path))]
    Keeper { path: PathBuf, source: io::Error },
}

pub(crate) const NEEDS_ROOT: &str = "; this needs root: run the same command as root";

pub(crate) fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => NEEDS_ROOT,
        io::ErrorKind::ReadOnlyFilesystem => {
            "; /sys is read-only here, as in most containers: run folio on the host"
        }
        _ => "",
    }
}

/// A changed setting. Dropping it restores the old value.
#[derive(Debug)]
pub struct Setting {
    path: PathBuf,
    old: String,
    /// The last value set, as the kernel stored it. `None` if none was set.
    given: Option<String>,
    keeper: Option<Keeper>,
    lock: Locked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aftermath {
    NotBack {
        path: PathBuf,
        old: String,
        now: String,
    },
    /// It has its old value, but another program had changed it meanwhile.
    Overwritten {
        path: PathBuf,
        old: String,
        theirs: String,
    },
}

impl std::fmt::Display for Aftermath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotBack { path, old, now } => {
                let path = shown(path);
                write!(
                    f,
                    "{path} is {now} and could not be restored to {old}; run: echo {old} | {}",
                    as_root(&format!("tee {path}"))
                )
            }
            Self::Overwritten { path, old, theirs } => write!(
                f,
                "another program set {} to {theirs} while folio had changed it; folio restored \
                 {old}",
                shown(path)
            ),
        }
    }
}

static AFTERMATH: Mutex<Vec<Aftermath>> = Mutex::new(Vec::new());

pub fn aftermath() -> Vec<Aftermath> {
    mem::take(&mut AFTERMATH.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A file with its lock, held until this is dropped. The drop unlocks it explicitly: a child that
/// another thread has forked and that has not executed yet holds a copy of the file.
#[derive(Debug)]
pub(crate) struct Locked(File);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Wait,
    Refuse,
}

impl Setting {
    /// Returns the value of the setting `path`, or the chosen word of a choice (`always [madvise]
    /// never`).
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<String, SettingError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SettingError::Read { path: path.to_owned(), source })?;
        Ok(Choice::parse(&text).value)
    }

    /// As [`Setting::read`], if no other folio has changed it temporarily.
    ///
    /// # Errors
    /// [`SettingError::Busy`] if one has.
    pub fn read_at_rest(path: &Path) -> Result<String, SettingError> {
        let _lock = try_lock(path)?;
        Self::read(path)
    }

    /// Sets `path` to `value` until the result is dropped or this process ends. Waits up to two
    /// minutes for another folio's temporary change to end.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn change(path: &Path, value: &str) -> Result<Self, SettingError> {
        Self::changed(path, value, Busy::Wait)
    }

    /// Keeps the current value of `path`, and restores it when the result is dropped or this
    /// process ends, in case another of our processes changes it.
    ///
    /// # Errors
    /// If it cannot be read, or another folio's change lasts longer than the wait.
    pub fn hold(path: &Path) -> Result<Self, SettingError> {
        let lock = lock(path, Busy::Wait)?;
        let old = Self::read(path)?;
        let mut setting = Self { path: path.to_owned(), old, given: None, keeper: None, lock };
        setting.keeper = Some(setting.start_keeper()?);
        Ok(setting)
    }

    /// As [`Setting::change`], without waiting.
    ///
    /// # Errors
    /// [`SettingError::Busy`] if another folio has changed it. On any error nothing is changed.
    pub(crate) fn try_change(path: &Path, value: &str) -> Result<Self, SettingError> {
        Self::changed(path, value, Busy::Refuse)
    }

    fn changed(path: &Path, value: &str, busy: Busy) -> Result<Self, SettingError> {
        let lock = lock(path, busy)?;
        let old = Self::read(path)?;
        let mut setting = Self { path: path.to_owned(), old, given: None, keeper: None, lock };
        setting.set(value)?;
        Ok(setting)
    }

    /// Sets another value. The drop still restores the first one.
    ///
    /// # Errors
    /// The value is then unchanged.
    pub fn set(&mut self, value: &str) -> Result<(), SettingError> {
        if self.keeper.is_none() {
            if self.old == value {
                return Ok(());
            }
            self.keeper = Some(self.start_keeper()?);
        }
        fs::write(&self.path, value).map_err(|source| SettingError::Write {
            path: self.path.clone(),
            value: value.to_owned(),
            source,
        })?;
        self.given = Self::read(&self.path).ok();
        Ok(())
    }

    #[must_use]
    pub fn old(&self) -> &str {
        &self.old
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn start_keeper(&self) -> Result<Keeper, SettingError> {
        let failed = |source| SettingError::Keeper { path: self.path.clone(), source };
        let lock = self.lock.0.try_clone().map_err(failed)?;
        let args = [OsStr::new(&self.old), self.path.as_os_str()];
        Keeper::start(PUT_BACK, &args, lock).map_err(failed)
    }

    fn put_back(&self, before: Option<String>) -> Option<Aftermath> {
        let (path, old) = (self.path.clone(), self.old.clone());
        let is = |value: &str| Self::read(&self.path).ok().is_none_or(|now| now == value);
        if !is(&old) {
            // The keeper was killed or could not write.
            let _ = fs::write(&self.path, &old);
        }
        if !is(&old) {
            let now = Self::read(&self.path).unwrap_or_default();
            return Some(Aftermath::NotBack { path, old, now });
        }
        let given = self.given.as_ref()?;
        let theirs = before.filter(|before| before != given && *before != old)?;
        Some(Aftermath::Overwritten { path, old, theirs })
    }
}

/// Locks the setting `path` for a permanent change.
///
/// # Errors
/// [`SettingError::Busy`] if another folio has changed it temporarily.
pub(crate) fn try_lock(path: &Path) -> Result<Locked, SettingError> {
    lock(path, Busy::Refuse)
}

fn lock(path: &Path, busy: Busy) -> Result<Locked, SettingError> {
    let read = |source| SettingError::Read { path: path.to_owned(), source };
    let mut file = open_regular(path).map_err(read)?;
    let start = Instant::now();
    loop {
        file = match Locked::try_new(file).map_err(read)? {
            Ok(locked) => return Ok(locked),
            Err(file) => file,
        };
        if busy == Busy::Refuse || start.elapsed() > PATIENCE {
            return Err(SettingError::Busy { path: path.to_owned() });
        }
        thread::sleep(PAUSE);
    }
}

impl Locked {
    pub(crate) fn try_new(file: File) -> io::Result<Result<Self, File>> {
        match file.try_lock() {
            Ok(()) => Ok(Ok(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(Err(file)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        let before = Self::read(&self.path).ok();
        drop(keeper);
        let aftermath = self.put_back(before);
        AFTERMATH.lock().unwrap_or_else(PoisonError::into_inner).extend(aftermath);
    }
}

#[cfg(test)]
mod tests;
