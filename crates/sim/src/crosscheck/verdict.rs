//! What came of one recording, or of one program of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde::Serialize;

use super::difference::{Aspect, Difference, Location, shown};
use crate::kernel::Kernel;

/// Result of one recording of files, or of one program of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Recording, or program.
    pub name: String,
    /// Kernel whose rules were used.
    pub rules: String,
    /// What is to be said where they are those of another version.
    pub rules_note: Option<String>,
    /// Steps replayed; replay stops at the first that differs.
    pub nr_steps: usize,
    /// Items of the kernel that were compared.
    pub compared: BTreeMap<Aspect, u64>,
    /// Files: faults whose reads were complete sooner or later than the model's rule says, so that
    /// the kernel mapped more or fewer of the pages just read. Taken from the recording, one by
    /// one.
    pub nr_in_flight: u64,
    /// Files: touches that had to wait for a read in flight: the kernel entered its handler once
    /// more for a page that was cached. Taken from the recording, one by one.
    pub nr_waits: u64,
    /// Files: what was left out, by reason: a recording says which calls no rule covers.
    pub not_compared: BTreeMap<String, NotCompared>,
    /// What differs, in the order of discovery.
    pub differences: Vec<Difference>,
}

/// What was not compared for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    /// Calls of the program.
    pub nr_calls: u64,
    /// Files, each from the first such call on.
    pub files: BTreeSet<u32>,
}

impl Verdict {
    /// Nothing is compared yet.
    pub(super) fn new(name: String, kernel: &Kernel) -> Self {
        let (rules, rules_note) = (kernel.name.clone(), kernel.note.clone());
        Self { name, rules, rules_note, ..Self::default() }
    }

    /// Whether kernel and model agree in everything compared.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// Items of an aspect that were compared.
    #[must_use]
    pub fn nr_compared(&self, aspect: Aspect) -> u64 {
        self.compared.get(&aspect).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, aspect: Aspect, nr: u64) {
        *self.compared.entry(aspect).or_default() += nr;
    }

    pub(super) fn differ(
        &mut self,
        aspect: Aspect,
        place: Location,
        kernel: String,
        model: String,
    ) {
        self.differences.push(Difference { aspect, place, kernel, model });
    }

    /// Compares what the kernel and the model show of an aspect, in this order.
    pub(super) fn compare<T: PartialEq + Debug>(
        &mut self,
        aspect: Aspect,
        place: &Location,
        kernel: &[T],
        model: &[T],
    ) {
        self.count(aspect, kernel.len() as u64);
        if kernel != model {
            self.differ(aspect, place.clone(), shown(kernel), shown(model));
        }
    }
}
