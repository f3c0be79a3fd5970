//! The record of old values and files, written before a change and removed after a full undo.
//!
//! `tune.json` (`tune-DIR.json` for a system below DIR) is in the state directory, which has mode
//! 0700. Writes are atomic, and only one process at a time uses the record (`tune.lock`).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use largefolio_trace::{disk, shown};
use serde::Serialize;

use super::TuneError;
use super::catalog::Catalog;
use super::entry::{Entry, Record};
use super::plan::{ChangeSet, TuneChange};
use crate::proc::host;
use crate::setting::{self, Locked};

/// Version 1 has no files and can still be read.
const SCHEMA_VERSION: u32 = 2;
const BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Undone {
    Restored {
        #[serde(flatten)]
        entry: Entry,
    },
    WasBack {
        #[serde(flatten)]
        entry: Entry,
    },
    /// Another program gave it a third value since, which stays.
    ChangedSince {
        #[serde(flatten)]
        entry: Entry,
        now: String,
    },
    Refused {
        #[serde(flatten)]
        entry: Entry,
        reason: String,
    },
}

/// A value that the kernel changed when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounded {
    pub name: String,
    pub planned: String,
    pub now: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    Keep,
    Overwrite,
}

#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    pub(super) root: PathBuf,
    boot_id: String,
    _lock: Locked,
}

impl Store {
    /// Opens the state directory without waiting: a second process is an error.
    ///
    /// # Errors
    /// A directory that cannot be created, belongs to another user or is in use.
    pub fn open(folder: &Path, root: &Path) -> Result<Self, TuneError> {
        let root = root
            .canonicalize()
            .map_err(|source| TuneError::Root { path: root.to_owned(), source })?;
        let path = folder.join(file_of(&root));
        let error = |message: String| TuneError::Record { path: path.clone(), message };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|cause| error(format!("cannot create its directory: {cause}")))?;
        let owner = fs::symlink_metadata(folder)
            .map_err(|cause| error(format!("cannot examine its directory: {cause}")))?;
        let user = rustix::process::geteuid().as_raw();
        if !owner.is_dir() || owner.uid() != user || owner.mode() & 0o022 != 0 {
            return Err(error(format!(
                "{} must be a directory that user {user} owns and no one else can write to",
                shown(folder)
            )));
        }
        let lock = disk::open_lock(&folder.join("tune.lock"), 0o600)
            .and_then(Locked::try_new)
            .map_err(|cause| error(format!("cannot lock it: {cause}")))?
            .map_err(|_| {
                error("another folio tune is running; try again when it has ended".to_owned())
            })?;
        // No other process is at work: leftovers are from a killed one.
        remove_left(folder)
            .map_err(|cause| error(format!("cannot clean up its directory: {cause}")))?;
        let boot = root.join(host::BOOT_ID.trim_start_matches('/'));
        // A copy of a system may have none: it does not boot.
        let boot_id = match disk::read_text(&boot, BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|source| TuneError::Root { path: boot, source })?,
        };
        let boot_id = boot_id.trim().to_owned();
        Ok(Self { path, root, boot_id, _lock: lock })
    }

    /// Returns the settings that were changed and not restored, in the order of change.
    ///
    /// # Errors
    /// A damaged record.
    pub fn entries(&self) -> Result<Vec<Entry>, TuneError> {
        Ok(self.load()?.changes)
    }

    /// Records the plan's old values, then changes the settings one by one. On a failure, restores
    /// those changed before it. Returns the values that the kernel rounded. Calls `at` after every
    /// step on disk. An error from `at` stops the work as a crash would, for tests.
    ///
    /// # Errors
    /// A failure of the record or of a setting.
    pub fn apply(
        &self,
        catalog: &Catalog,
        plan: &ChangeSet,
        at: &mut dyn FnMut() -> Result<(), TuneError>,
    ) -> Result<Vec<Rounded>, TuneError> {
        let _locks = lock_all(catalog, plan)?;
        let earlier = self.load()?;
        let mut record = earlier.clone();
        for change in &plan.changes {
            match record.changes.iter_mut().find(|entry| entry.name == change.name) {
                Some(entry) => entry.given.push(change.planned.clone()),
                None => record.changes.push(Entry {
                    name: change.name.clone(),
                    old: change.now.clone(),
                    given: vec![change.planned.clone()],
                    is_persisted: false,
                }),
            }
        }
        self.save(&record)?;
        at()?;
        let mut rounded = Vec::new();
        for (done, change) in plan.changes.iter().enumerate() {
            if let Err(error) = catalog.write(&change.name, &change.planned) {
                for change in plan.changes[..done].iter().rev() {
                    catalog.restore(&change.name, &change.now)?;
                }
                self.save(&earlier)?;
                return Err(error);
            }
            rounded.extend(self.rounded(catalog, change, &mut record)?);
            at()?;
        }
        Ok(rounded)
    }

    /// If the kernel rounded a value (129 KiB of readahead to 128), also records the rounded value
    /// as ours.
    pub(super) fn rounded(
        &self,
        catalog: &Catalog,
        change: &TuneChange,
        record: &mut Record,
    ) -> Result<Option<Rounded>, TuneError> {
        let now = catalog.read(&change.name)?.value;
        if now == change.planned {
            return Ok(None);
        }
        let same = record.changes.iter_mut().filter(|entry| entry.name == change.name);
        same.for_each(|entry| entry.given.push(now.clone()));
        self.save(record)?;
        let (name, planned) = (change.name.clone(), change.planned.clone());
        Ok(Some(Rounded { name, planned, now }))
    }

    /// Restores every setting, the last one first, and forgets the restored ones.
    ///
    /// # Errors
    /// A failure of the record. A setting that cannot be restored is in the result and stays
    /// recorded.
    pub fn undo(
        &self,
        catalog: &Catalog,
        foreign: Foreign,
        at: &mut dyn FnMut() -> Result<(), TuneError>,
    ) -> Result<Vec<Undone>, TuneError> {
        let mut left = self.load()?;
        let mut all = Vec::new();
        for which in (0..left.changes.len()).rev() {
            let undone = put_back(catalog, left.changes[which].clone(), foreign);
            at()?;
            if matches!(undone, Undone::Restored { .. } | Undone::WasBack { .. }) {
                left.changes.remove(which);
                self.save(&left)?;
                at()?;
            }
            all.push(undone);
        }
        Ok(all)
    }

    pub(super) fn load(&self) -> Result<Record, TuneError> {
        let error = |message: String| TuneError::Record { path: self.path.clone(), message };
        let bytes = match disk::open_own(&self.path)
            .and_then(|file| disk::read_from(file, BYTES_MAX))
        {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
            Err(cause) => return Err(error(format!("cannot read it: {cause}"))),
        };
        let mut record: Record = serde_json::from_slice(&bytes).map_err(|cause| {
            error(format!("{cause}; restore the settings in it manually, then remove the file"))
        })?;
        if !(1..=SCHEMA_VERSION).contains(&record.schema_version) {
            let version = record.schema_version;
            return Err(error(format!(
                "a different version of folio wrote it (schema {version}, not {SCHEMA_VERSION}); \
                 undo the changes with that version"
            )));
        }
        if record.boot_id != self.boot_id {
            record.changes.retain(|entry| entry.is_persisted);
        }
        Ok(record)
    }

    pub(super) fn save(&self, record: &Record) -> Result<(), TuneError> {
        let error = |cause: io::Error| TuneError::Record {
            path: self.path.clone(),
            message: format!("cannot write it: {cause}"),
        };
        if record.changes.is_empty() && record.files.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(error(cause)),
                _ => Ok(()),
            };
        }
        let record = Record {
            schema_version: SCHEMA_VERSION,
            boot_id: self.boot_id.clone(),
            ..record.clone()
        };
        let text = serde_json::to_string_pretty(&record).map_err(|cause| error(cause.into()))?;
        disk::write_whole(&self.path, text.as_bytes()).map_err(error)
    }
}

pub(super) fn file_of(root: &Path) -> String {
    let bytes = root.as_os_str().as_bytes().iter();
    let name: String = bytes
        .map(|&byte| match byte {
            b'/' => "-".to_owned(),
            b'.' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
            other => format!("%{other:02x}"),
        })
        .collect();
    format!("tune{}.json", if name == "-" { "" } else { &name })
}

/// Locks the plan's settings and checks that each still has the value the plan found. A temporary
/// value of another folio must not be recorded as the system's value.
fn lock_all(catalog: &Catalog, plan: &ChangeSet) -> Result<Vec<Locked>, TuneError> {
    let mut locks = Vec::new();
    for change in &plan.changes {
        let busy = |message: String| TuneError::Busy { name: change.name.clone(), message };
        let path = catalog.path(&change.name)?;
        locks.push(setting::try_lock(&path).map_err(|error| busy(error.to_string()))?);
        let now = catalog.read(&change.name)?.value;
        if now != change.now {
            return Err(busy(format!("it was {} and is now {now}; plan again", change.now)));
        }
    }
    Ok(locks)
}

/// Restores one setting. Refuses a setting that another folio has changed temporarily: that folio
/// would later restore our value.
fn put_back(catalog: &Catalog, entry: Entry, foreign: Foreign) -> Undone {
    let path = catalog.path(&entry.name).ok().filter(|path| path.exists());
    let locked = path.map(|path| setting::try_lock(&path)).transpose();
    let _locked = match locked {
        Ok(locked) => locked,
        Err(error) => return Undone::Refused { entry, reason: error.to_string() },
    };
    let now = match catalog.read(&entry.name) {
        Ok(current) => current.value,
        // Another kernel runs now; the setting is off when one that has it starts again.
        Err(TuneError::NoFeature { .. }) => return Undone::WasBack { entry },
        Err(error) => return Undone::Refused { entry, reason: error.to_string() },
    };
    if now == entry.old {
        return Undone::WasBack { entry };
    }
    if !entry.given.contains(&now) && foreign == Foreign::Keep {
        return Undone::ChangedSince { entry, now };
    }
    match catalog.restore(&entry.name, &entry.old) {
        Ok(()) => Undone::Restored { entry },
        Err(error) => Undone::Refused { entry, reason: error.to_string() },
    }
}

/// Removes half-written records from the state directory, including those of earlier folio versions
/// (`.tmp` and six letters or digits).
fn remove_left(folder: &Path) -> io::Result<()> {
    disk::remove_stale(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(".tmp"));
        let is_left = random.is_some_and(|random| {
            random.len() == 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        if is_left && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
