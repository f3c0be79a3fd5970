//! The cost of a run, for budgets: steps and bytes of state ([`crate::core::work`]).

use super::Memory;
use crate::core::work::{THING_BYTES, Work};
use crate::units::MmId;
use crate::units::VpnRange;

impl Memory {
    /// Returns the steps so far and their limit.
    #[must_use]
    pub fn work(&self) -> &Work {
        &self.core.work
    }

    /// Returns the steps and their limit for changes.
    pub fn work_mut(&mut self) -> &mut Work {
        &mut self.core.work
    }

    /// Bytes of state: folios, file trees, evicted pages, processes, open files, and a policy's
    /// state. Processes count with their size at the last [`Memory::measure`].
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let of_things = self.nr_things() * THING_BYTES + self.measured_bytes;
        self.core.state_bytes() + of_things + self.policy_bytes()
    }

    /// Measures a process again. Its state grows only through its own operations and swap.
    pub fn measure(&mut self, mm: MmId) {
        let bytes = self.space(mm).bytes();
        let before = std::mem::replace(&mut self.space_mut(mm).measured_bytes, bytes);
        self.measured_bytes = self.measured_bytes - before + bytes;
    }

    pub(crate) fn count_walk(&self, mm: MmId, VpnRange { start, end }: VpnRange, nr_areas: usize) {
        let table = &self.space(mm).table;
        let nr_slots = (end.0.saturating_sub(start.0) >> table.pmd_order().get()) + 1;
        self.core.work.add(nr_areas as u64 + nr_slots.min(table.nr_slots()));
    }

    pub(crate) fn count_areas(&self, nr_areas: usize, nr_spaces: usize) {
        self.core.work.add_cheap((nr_areas + nr_spaces) as u64);
    }
}
