//! What a budget asks: steps taken, bytes of state ([`crate::core::work`]).
//!
//! Owns the walk over processes that a measurement takes. Does not own the counts.

use super::Memory;
use crate::core::work::{THING_BYTES, Work};
use crate::units::MmId;
use crate::units::VpnRange;

impl Memory {
    /// Steps so far and their limit.
    #[must_use]
    pub fn work(&self) -> &Work {
        &self.core.work
    }

    /// The limit, to set it.
    pub fn work_mut(&mut self) -> &mut Work {
        &mut self.core.work
    }

    /// Bytes of state: folios, trees of files, evicted pages, processes, open files, and what a policy
    /// may hold. Of processes, what [`Memory::measure`] saw last.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let of_things = self.nr_things() * THING_BYTES + self.measured_bytes;
        self.core.state_bytes() + of_things + self.policy_bytes()
    }

    /// Looks at the state of a process again. Only what a process does itself makes it larger,
    /// except for pages that go to swap space, whose size the caller chose.
    pub fn measure(&mut self, mm: MmId) {
        let bytes = self.space(mm).bytes();
        let before = std::mem::replace(&mut self.space_mut(mm).measured_bytes, bytes);
        self.measured_bytes = self.measured_bytes - before + bytes;
    }

    /// Counts a walk over pages `[start, end)` of a process with the areas there: no more PMD slots
    /// are visited than there are in the range or in use.
    pub(crate) fn count_walk(&self, mm: MmId, VpnRange { start, end }: VpnRange, nr_areas: usize) {
        let table = &self.space(mm).table;
        let nr_slots = (end.0.saturating_sub(start.0) >> table.pmd_order().get()) + 1;
        self.core.work.add(nr_areas as u64 + nr_slots.min(table.nr_slots()));
    }

    /// Counts a look at every area of every process.
    pub(crate) fn count_areas(&self, nr_areas: usize, nr_spaces: usize) {
        self.core.work.add_cheap((nr_areas + nr_spaces) as u64);
    }
}
