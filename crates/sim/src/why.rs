//! Finds the rule that makes the difference between two kernels.
//!
//! ```text
//!   before   + each switch alone          n cells   its own effect
//!   after    - each switch                n cells   the loss without it
//!   before   + 1, + 1 2, + 1 2 3, ..      n cells   step by step to the other kernel
//!   before   + each pair                            interactions of rules
//! ```
//!
//! A switch is a rule that differs, or several rules that are valid only together. Owns the
//! switches, the cells, and the [`Attribution`]. Does not own the measured result or the kernels.
//!
//! Invariants:
//! - W1: the mix of all switches has the second kernel's rules, the empty mix the first kernel's.
//! - W2: every mix of [`Comparison::parts`] is a valid kernel.

mod attribution;
mod mix;

pub use attribution::{Attribution, Effect, Interaction, attribute};
pub use mix::Mix;

use crate::kernel::{Kernel, KernelChange, KernelError};
use crate::replay::{CellSpec, SettingChange};

#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// One rule, unless it cannot be changed alone.
    pub changes: Vec<KernelChange>,
}

#[derive(Clone, Debug)]
pub struct Comparison {
    before: CellSpec,
    after: String,
    switches: Vec<Switch>,
}

impl Comparison {
    /// Returns the switches between two cells that differ only in the kernel.
    ///
    /// # Errors
    /// Rules that cannot be written as a kernel file.
    pub fn new(before: &CellSpec, after: &CellSpec) -> Result<Self, KernelError> {
        let (before, after) = (on_its_page(before), on_its_page(after));
        let changes = before.kernel.changes_to(&after.kernel)?;
        let switches = changes.into_iter().map(|change| Switch { changes: vec![change] }).collect();
        let mut comparison = Self { before, after: after.kernel.name, switches };
        // Joined switches take the position of the last one.
        while let Some((one, other)) = comparison.inseparable() {
            let mut earlier = comparison.switches.remove(one.min(other));
            let later = &mut comparison.switches[one.max(other) - 1].changes;
            earlier.changes.append(later);
            *later = earlier.changes;
        }
        Ok(comparison)
    }

    #[must_use]
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// Returns the mixes that show each switch's effect: alone, left out, and step by step; each
    /// mix once.
    #[must_use]
    pub fn parts(&self) -> Vec<Mix> {
        let nr = self.switches.len();
        let mut parts: Vec<Mix> = (0..nr)
            .flat_map(|one| {
                [Mix::alone(nr, &[one]), Mix::without(nr, one), Mix::first(nr, one + 1)]
            })
            .filter(|mix| !mix.is_none() && !mix.is_all())
            .collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// Returns the cell of `mix`.
    ///
    /// # Errors
    /// An invalid mix.
    pub fn spec(&self, mix: &Mix) -> Result<CellSpec, KernelError> {
        let kernel = self.kernel(mix)?;
        let (has_regions, has_fault_times) = (false, false);
        let before = self.before.clone();
        Ok(CellSpec { kernel, detail_runs_max: 0, has_regions, has_fault_times, ..before })
    }

    #[must_use]
    pub fn is_possible(&self, mix: &Mix) -> bool {
        self.kernel(mix).is_ok()
    }

    fn kernel(&self, mix: &Mix) -> Result<Kernel, KernelError> {
        let switches = self.switches.iter().zip(mix.is_set());
        let changes: Vec<&KernelChange> =
            switches.filter(|(_, is_set)| **is_set).flat_map(|(one, _)| &one.changes).collect();
        let from = &self.before.kernel;
        let name = format!("{} with {} rules of {}", from.name, changes.len(), self.after);
        let kernel = from.with_changes(changes, &name)?;
        let page = kernel.rules.page;
        kernel.check_page(page)?;
        for annotation in &self.before.annotations {
            annotation.check(&kernel, page)?;
        }
        SettingChange::all(&self.before.changes, &kernel, page)?;
        Ok(kernel)
    }

    /// Returns two switches that must be joined for W2.
    fn inseparable(&self) -> Option<(usize, usize)> {
        let nr = self.switches.len();
        let is_free = |ones: &[usize]| {
            self.is_possible(&Mix::alone(nr, ones))
                && self.is_possible(&Mix::alone(nr, ones).rest())
        };
        for one in (0..nr).filter(|&one| !is_free(&[one])) {
            let others = (0..nr).filter(|&other| other != one);
            let other = others.clone().find(|&other| is_free(&[one, other])).or_else(|| {
                // If more than two depend on each other, any other invalid one must be among them.
                let bound = others.clone().find(|&other| !is_free(&[other]));
                bound.or_else(|| others.clone().next())
            });
            if let Some(other) = other {
                return Some((one, other));
            }
        }
        let step = (1..nr).find(|&nr_first| !self.is_possible(&Mix::first(nr, nr_first)))?;
        Some((step - 1, step))
    }
}

fn on_its_page(spec: &CellSpec) -> CellSpec {
    let mut spec = spec.clone();
    spec.kernel.rules.page = spec.page_size();
    spec.kernel.is_page_given = true;
    spec
}

#[cfg(test)]
mod tests;
