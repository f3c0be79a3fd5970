//! Files that are no longer compared after some step, and the reason.
//!
//! A program can do things that no rule covers (`mlock`, `O_DIRECT`, `MADV_PAGEOUT`). The recording
//! names these actions, and both sides ignore the file from that point on. Files are independent,
//! so all others are compared to the end.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::step::{Action, FileStep};
use crate::crosscheck::verdict::NotCompared;

/// Reason for a file that several threads used concurrently, if kernel and model differ.
const MET: &str = "threads using one file at the same time";

#[derive(Debug, Default)]
pub(super) struct NotComparedFiles {
    files: BTreeSet<u32>,
    met: BTreeSet<u32>,
}

impl NotComparedFiles {
    pub(super) fn note(
        &mut self,
        action: &Action,
        not_compared: &mut BTreeMap<String, NotCompared>,
    ) {
        match action {
            Action::Met(file) => {
                self.met.insert(*file);
            }
            Action::Aside(file, why) => {
                self.files.insert(*file);
                let reason = not_compared.entry(why.clone()).or_default();
                reason.nr_calls += 1;
                reason.files.insert(*file);
            }
            _ => {}
        }
    }

    pub(super) fn has(&self, file: Option<u32>) -> bool {
        file.is_some_and(|file| self.files.contains(&file))
    }

    /// Leaves out the files of a differing step that threads used concurrently. Returns whether
    /// there are any.
    pub(super) fn excuse(
        &mut self,
        kernel: &FileStep,
        model: &FileStep,
        file: Option<u32>,
        not_compared: &mut BTreeMap<String, NotCompared>,
    ) -> bool {
        let involved = kernel.files().chain(model.files()).chain(file);
        let met: BTreeSet<u32> =
            involved.filter(|file| self.met.contains(file) && !self.files.contains(file)).collect();
        if met.is_empty() {
            return false;
        }
        self.files.extend(&met);
        let reason = not_compared.entry(MET.to_owned()).or_default();
        reason.nr_calls += 1;
        reason.files.extend(met);
        true
    }

    pub(super) fn rest<'a>(&self, step: &'a FileStep, file: Option<u32>) -> Cow<'a, FileStep> {
        if self.files.is_empty() {
            return Cow::Borrowed(step);
        }
        let is_in = |file: u32| !self.files.contains(&file);
        let mut rest = step.clone();
        rest.insertions.retain(|folio| is_in(folio.file));
        rest.removals.retain(|folio| is_in(folio.file));
        rest.around.retain(|(file, ..)| is_in(*file));
        rest.handler.retain(|(file, _)| is_in(*file));
        rest.windows.retain(|line| is_in(line.file));
        rest.entries.retain(|line| is_in(line.file));
        // A left-out file faults on neither side.
        rest.was_mapped |= self.has(file);
        Cow::Owned(rest)
    }
}

impl FileStep {
    fn files(&self) -> impl Iterator<Item = u32> {
        let insertions = self.insertions.iter().map(|folio| folio.file);
        let removals = self.removals.iter().map(|folio| folio.file);
        let handler = self.handler.iter().map(|(file, _)| *file);
        let windows = self.windows.iter().map(|line| line.file);
        let entries = self.entries.iter().map(|line| line.file);
        insertions.chain(removals).chain(handler).chain(windows).chain(entries)
    }
}

#[cfg(test)]
mod tests;
