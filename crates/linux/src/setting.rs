//! Settings of the running system: changed temporarily, put back however the process ends.
//!
//! Owns one changed file below `/sys` or `/proc`. The old value is held by a keeper (`keeper.rs`), so
//! that it comes back also when this process is killed. Process and keeper hold a lock on the file
//! (`flock`): otherwise another folio process would take our value for the system's and leave the
//! system with it.
//!
//! Invariant S1: a value that did not come back, and one of somebody else that went, is in
//! [`aftermath`].

pub(crate) mod thp;

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

/// What the keeper runs: `$1` is the old value, `$2` the file.
const PUT_BACK: &str = "printf %s \"$1\" >\"$2\"";

/// How long a change waits for another folio that has changed the setting: the longest benchmark of
/// one size takes less.
const PATIENCE: Duration = Duration::from_mins(2);

/// Pause between two tries for the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a setting could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// It cannot be read.
    #[error("{}: {source}; does this kernel have the setting?", shown(path))]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot set {} to {value:?}: {source}{}", shown(path), remedy(source))]
    Write {
        /// File.
        path: PathBuf,
        /// Value.
        value: String,
        /// Cause.
        source: io::Error,
    },
    /// Another process has changed it for a while.
    #[error(
        "{}: another folio process has changed it temporarily; try again when that one has ended",
        shown(path)
    )]
    Busy {
        /// File.
        path: PathBuf,
    },
    /// No process could be started that puts the old value back.
    #[error("cannot start the process that restores {}: {source}", shown(path))]
    Keeper {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// What those do who may not change a setting.
pub(crate) const NEEDS_ROOT: &str = "; this needs root: run the same command as root";

/// What to do about a setting that cannot be written.
pub(crate) fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => NEEDS_ROOT,
        io::ErrorKind::ReadOnlyFilesystem => {
            "; /sys is read-only here, as in most containers: run folio on the host"
        }
        _ => "",
    }
}

/// A changed setting; dropping it restores the old value.
#[derive(Debug)]
pub struct Setting {
    path: PathBuf,
    old: String,
    /// What the kernel made of the value that was set last; `None` where none was.
    given: Option<String>,
    /// `None` when the value was right already.
    keeper: Option<Keeper>,
    lock: Locked,
}

/// What is to be said of a setting that was changed for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// It does not have its old value.
    NotBack {
        /// File.
        path: PathBuf,
        /// The value it had.
        old: String,
        /// The value it has.
        now: String,
    },
    /// It has its old value, and somebody had given it another one meanwhile.
    Overwritten {
        /// File.
        path: PathBuf,
        /// The value it has again.
        old: String,
        /// The value that somebody gave it.
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
                    "{path} is {now} and could not be put back to {old}; run: echo {old} | {}",
                    as_root(&format!("tee {path}"))
                )
            }
            Self::Overwritten { path, old, theirs } => write!(
                f,
                "another program set {} to {theirs} while folio had changed it; it is {old} again, \
                 as before",
                shown(path)
            ),
        }
    }
}

static AFTERMATH: Mutex<Vec<Aftermath>> = Mutex::new(Vec::new());

/// What there is to say of the settings that were put back since the last call.
pub fn aftermath() -> Vec<Aftermath> {
    mem::take(&mut AFTERMATH.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A file whose lock is held until this is dropped. It is unlocked then, not just closed: a child
/// that another thread has forked, and that has not executed yet, holds a copy of the file.
#[derive(Debug)]
pub(crate) struct Locked(File);

/// What is done about a setting that another process has changed for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Wait,
    Refuse,
}

impl Setting {
    /// The value of the setting `path`: of a choice (`always [madvise] never`) the chosen word.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> Result<String, SettingError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SettingError::Read { path: path.to_owned(), source })?;
        Ok(Choice::parse(&text).value)
    }

    /// As [`Setting::read`], where no other folio process has changed it for a while.
    ///
    /// # Errors
    /// [`SettingError::Busy`] where one has.
    pub fn read_at_rest(path: &Path) -> Result<String, SettingError> {
        let _lock = try_lock(path)?;
        Self::read(path)
    }

    /// Sets `path` to `value` until the result is dropped or this process ends. Where another folio
    /// process has changed it temporarily, waits for that to end, two minutes at most.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn change(path: &Path, value: &str) -> Result<Self, SettingError> {
        Self::changed(path, value, Busy::Wait)
    }

    /// Leaves `path` as it is, for now: whatever another process of ours sets it to until the result is
    /// dropped or this process ends, its value comes back then.
    ///
    /// # Errors
    /// When it cannot be read, or is changed by another folio for longer than this waits.
    pub(crate) fn hold(path: &Path) -> Result<Self, SettingError> {
        let lock = lock(path, Busy::Wait)?;
        let old = Self::read(path)?;
        let mut setting = Self { path: path.to_owned(), old, given: None, keeper: None, lock };
        setting.keeper = Some(setting.start_keeper()?);
        Ok(setting)
    }

    /// As [`Setting::change`], and waits for nobody.
    ///
    /// # Errors
    /// [`SettingError::Busy`] where another folio has changed it; nothing is changed by any error.
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

    /// Sets another value; what is put back stays the first one.
    ///
    /// # Errors
    /// The value stays as it was.
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

    /// The value it had, and will have again.
    #[must_use]
    pub fn old(&self) -> &str {
        &self.old
    }

    fn start_keeper(&self) -> Result<Keeper, SettingError> {
        let failed = |source| SettingError::Keeper { path: self.path.clone(), source };
        // The keeper's copy holds the lock when this process is killed.
        let lock = self.lock.0.try_clone().map_err(failed)?;
        let args = [OsStr::new(&self.old), self.path.as_os_str()];
        Keeper::start(PUT_BACK, &args, lock).map_err(failed)
    }

    /// What is to be said once the keeper has done its part.
    fn put_back(&self, before: Option<String>) -> Option<Aftermath> {
        let (path, old) = (self.path.clone(), self.old.clone());
        let is = |value: &str| Self::read(&self.path).ok().is_none_or(|now| now == value);
        if !is(&old) {
            // The keeper was killed, or could not write.
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

/// A lock on the setting `path` for a change that stays.
///
/// # Errors
/// [`SettingError::Busy`] where another folio process has changed it temporarily.
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
    /// Locks `file`, which comes back where somebody else holds its lock.
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
