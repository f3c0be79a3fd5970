//! System files in the record: writing, listing and removing them.
//!
//! The record has each file's text instead of a digest: the files are short and readable.
//!
//! ```text
//!   plan    place + lines, merged with the existing text if the record has it
//!   record  both the existing text and the new one
//!   write   temporary file, sync, rename       after a crash, undo accepts either text
//! ```

use std::path::{Path, PathBuf};

use super::TuneError;
use super::entry::{Entry, FileEntry, Record};
use super::record::{Foreign, Store};
use crate::persist::boot::Lasting;
use crate::persist::place::ServiceName;
use crate::persist::{FilePiece, FilePlace, Listed, PersistError, Planned, State, folder};
use crate::shell::as_root;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub place: FilePlace,
    pub path: PathBuf,
    pub outcome: Removal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    Removed,
    WasGone,
    /// Another program has changed it, so it stays.
    ChangedSince,
    Refused(String),
}

impl Taken {
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self.outcome, Removal::Removed | Removal::WasGone)
    }
}

impl Store {
    /// # Errors
    /// A damaged record.
    pub fn files(&self) -> Result<Vec<FileEntry>, TuneError> {
        Ok(self.load()?.files)
    }

    /// Records and writes files one by one. `settings` are the settings these files make. On a
    /// failure, restores the files written before it. Calls `at` after every step on disk. An error
    /// from `at` stops the work as a crash would, for tests.
    ///
    /// # Errors
    /// A failure of the record or of a file.
    pub fn persist(
        &self,
        pieces: &[FilePiece],
        settings: &[Lasting],
        at: &mut dyn FnMut() -> Result<(), TuneError>,
    ) -> Result<Vec<Planned>, TuneError> {
        let earlier = self.load()?;
        let files = planned(&self.root, &earlier.files, pieces)?;
        let mut record = earlier.clone();
        for setting in settings {
            record.mark(setting);
        }
        for file in &files {
            record.expect(file);
        }
        self.save(&record)?;
        at()?;
        for (nr, file) in files.iter().enumerate() {
            if let Err(error) = folder::write(file) {
                folder::remove_folders(&file.path, file.nr_folders);
                files[..nr].iter().rev().try_for_each(folder::put_back)?;
                self.save(&earlier)?;
                return Err(error.into());
            }
            at()?;
        }
        Ok(files)
    }

    /// Removes all recorded files, the last one first, and forgets those that are gone.
    ///
    /// # Errors
    /// A failure of the record. A file that cannot be removed is in the result and stays recorded.
    pub fn take_back(
        &self,
        foreign: Foreign,
        at: &mut dyn FnMut() -> Result<(), TuneError>,
    ) -> Result<Vec<Taken>, TuneError> {
        self.take_back_some(foreign, &|_| true, at)
    }

    /// As [`Store::take_back`], for the files at some places.
    ///
    /// # Errors
    /// As [`Store::take_back`].
    pub fn take_back_some(
        &self,
        foreign: Foreign,
        is_wanted: &dyn Fn(&FilePlace) -> bool,
        at: &mut dyn FnMut() -> Result<(), TuneError>,
    ) -> Result<Vec<Taken>, TuneError> {
        let mut left = self.load()?;
        let mut all = Vec::new();
        for which in (0..left.files.len()).rev() {
            let file = &left.files[which];
            if !is_wanted(&file.place) {
                continue;
            }
            let path = file.place.path(&self.root);
            let outcome = self.remove(file, foreign);
            all.push(Taken { place: file.place.clone(), path, outcome });
            at()?;
            if matches!(
                all.last().map(|taken| &taken.outcome),
                Some(Removal::Removed | Removal::WasGone)
            ) {
                left.files.remove(which);
                self.save(&left)?;
                at()?;
            }
        }
        Ok(all)
    }

    fn remove(&self, file: &FileEntry, foreign: Foreign) -> Removal {
        let path = file.place.path(&self.root);
        if let Err(error) = folder::nr_missing(&self.root, &path) {
            return Removal::Refused(error.to_string());
        }
        let is_ours = match folder::read(&path, file.place.is_link()) {
            Ok(Some(text)) => file.texts.contains(&text),
            // A text that is not ours belongs to another program.
            Err(cause) if cause.kind() != std::io::ErrorKind::PermissionDenied => false,
            Err(cause) => return Removal::Refused(cause.to_string()),
            Ok(None) => {
                return match folder::remove(&path, file.nr_folders) {
                    Ok(()) => Removal::WasGone,
                    Err(cause) => Removal::Refused(cause.to_string()),
                };
            }
        };
        if !is_ours && foreign == Foreign::Keep {
            return Removal::ChangedSince;
        }
        match folder::remove(&path, file.nr_folders) {
            Ok(()) => Removal::Removed,
            Err(cause) => Removal::Refused(cause.to_string()),
        }
    }
}

impl Record {
    fn mark(&mut self, setting: &Lasting) {
        if let Some(entry) = self.changes.iter_mut().find(|entry| entry.name == setting.name) {
            entry.is_persisted = true;
            if !entry.given.contains(&setting.value) {
                entry.given.push(setting.value.clone());
            }
            return;
        }
        let (name, value) = (setting.name.clone(), setting.value.clone());
        self.changes.push(Entry {
            name,
            old: value.clone(),
            given: vec![value],
            is_persisted: true,
        });
    }

    fn expect(&mut self, file: &Planned) {
        let texts = file.found.iter().chain([&file.text]).cloned().collect();
        let (place, nr_folders) = (file.place.clone(), file.nr_folders);
        match self.files.iter_mut().find(|entry| entry.place == file.place) {
            Some(entry) => {
                entry.texts = texts;
                entry.nr_folders = entry.nr_folders.max(nr_folders);
            }
            None => self.files.push(FileEntry { place, texts, nr_folders }),
        }
    }
}

/// Returns the files below `root` that `pieces` would produce, if the record lists `files`. Changes
/// nothing.
///
/// # Errors
/// A file in the way that is not ours or was changed since folio wrote it, or an untrusted
/// directory.
pub fn planned(
    root: &Path,
    files: &[FileEntry],
    pieces: &[FilePiece],
) -> Result<Vec<Planned>, TuneError> {
    let mut all = Vec::new();
    for piece in pieces {
        let path = piece.place.path(root);
        let nr_folders = folder::nr_missing(root, &path)?;
        let entry = files.iter().find(|entry| entry.place == piece.place);
        let current = match folder::read(&path, piece.place.is_link()) {
            Ok(current) => current,
            Err(cause) => {
                return Err(folder::error(&path, format!("{cause}; move it away")).into());
            }
        };
        match (&current, entry) {
            (None, _) => {}
            (Some(text), Some(entry)) if entry.texts.contains(text) => {}
            (Some(_), Some(_)) => {
                let message = format!(
                    "it was changed after folio wrote it; to remove it and start again: {}",
                    as_root("folio tune --undo --force")
                );
                return Err(folder::error(&path, message).into());
            }
            (Some(_), None) => return Err(folder::in_the_way(&path).into()),
        }
        let text = piece.text(current.as_deref());
        if text.len() as u64 > folder::BYTES_MAX {
            return Err(folder::error(&path, "it would become larger than 64 KiB").into());
        }
        all.push(Planned { place: piece.place.clone(), path, text, found: current, nr_folders });
    }
    Ok(all)
}

/// Returns the recorded drop-ins of instances that `pieces` of their templates supersede: they would
/// override the same settings.
///
/// # Errors
/// A drop-in that has other settings too.
pub fn superseded(
    root: &Path,
    files: &[FileEntry],
    pieces: &[FilePiece],
) -> Result<Vec<FilePlace>, PersistError> {
    let mut all = Vec::new();
    for entry in files {
        let template = entry.place.service().and_then(ServiceName::template);
        let is_of_template =
            |piece: &&FilePiece| template.is_some() && piece.place.service() == template.as_ref();
        let Some(piece) = pieces.iter().find(is_of_template) else { continue };
        let text = entry.texts.last().map_or("", String::as_str);
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '[']));
        let (same, other): (Vec<&str>, Vec<&str>) = lines.partition(|line| piece.sets(line));
        match (same.first(), other.first()) {
            (None, _) => {}
            (Some(_), None) => all.push(entry.place.clone()),
            (Some(same), Some(other)) => {
                let message = format!(
                    "it has {same} for one instance, which overrides the template's setting, and \
                     also {other}; to undo all of folio's changes and start again: {}",
                    as_root("folio tune --undo")
                );
                return Err(folder::error(&entry.place.path(root), message));
            }
        }
    }
    Ok(all)
}

/// Checks that all these files can be written, as far as this can be predicted.
///
/// # Errors
/// The first file that cannot be written.
pub fn check(files: &[Planned]) -> Result<(), PersistError> {
    files.iter().try_for_each(folder::check)
}

#[must_use]
pub fn listed(root: &Path, files: &[FileEntry]) -> Vec<Listed> {
    let state =
        |entry: &FileEntry| match folder::read(&entry.place.path(root), entry.place.is_link()) {
            Ok(Some(text)) if entry.texts.contains(&text) => State::Persisted,
            Ok(None) => State::Missing,
            _ => State::Changed,
        };
    let recorded = files.iter().map(|entry| (entry.place.clone(), state(entry)));
    let is_new = |place: &FilePlace| files.iter().all(|entry| entry.place != *place);
    let others = FilePlace::all_used(root).into_iter().filter(is_new);
    let all = recorded.chain(others.map(|place| (place, State::Unrecorded)));
    all.map(|(place, state)| Listed { path: place.path(root), state }).collect()
}
