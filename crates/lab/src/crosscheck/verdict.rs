//! The result for one recording, or for one of its programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde::Serialize;

use super::difference::{Aspect, Difference, Location, shown};
use largefolio_sim::kernel::Kernel;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub name: String,
    pub rules: String,
    /// Note for the user if the rules are of another version.
    pub rules_note: Option<String>,
    /// Steps replayed; replay stops at the first difference.
    pub nr_steps: usize,
    pub compared: BTreeMap<Aspect, u64>,
    /// Files: faults whose reads completed sooner or later than in the model, so that the kernel
    /// mapped more or fewer of the pages just read. Each is taken from the recording.
    pub nr_in_flight: u64,
    /// Files: touches that waited for a read in flight, so the kernel entered its handler again for
    /// a cached page. Each is taken from the recording.
    pub nr_waits: u64,
    /// Files: calls left out, by reason: the recording marks calls that no rule covers.
    pub not_compared: BTreeMap<String, NotCompared>,
    pub differences: Vec<Difference>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    pub nr_calls: u64,
    /// The files, each left out from its first such call.
    pub files: BTreeSet<u32>,
}

impl Verdict {
    pub(super) fn new(name: String, kernel: &Kernel) -> Self {
        let (rules, rules_note) = (kernel.name.clone(), kernel.note.clone());
        Self { name, rules, rules_note, ..Self::default() }
    }

    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

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
