//! Work and state: what a budget counts.
//!
//! A *step* is one page, entry, area or folio that the memory manager examines or changes. Steps
//! cost about the same; loops with much cheaper iterations count several of them as one. Steps
//! depend only on the calls, so the same calls take the same steps on every machine. *State* is the
//! bytes that a process or a file adds to the model, in fixed sizes per item (see
//! `Memory::state_bytes`); the frames of physical memory, whose size the caller chooses, are not
//! counted.
//!
//! Owns the count and its limit. Does not end anything by itself: a call is bounded by the state
//! there is, and those that are not (reading, writing, populating and collapsing a range of any
//! length) end early once the limit is passed. The caller that set it checks [`Work::is_spent`] and
//! gives up.

use std::cell::Cell;

use super::space::Space;
use crate::units::Order;

/// Steps so far, and how many there may be.
#[derive(Debug)]
pub struct Work {
    /// Counted where memory is only examined, too.
    nr_steps: Cell<u64>,
    limit: u64,
}

impl Default for Work {
    /// Nothing counted, no limit.
    fn default() -> Self {
        Self { nr_steps: Cell::new(0), limit: u64::MAX }
    }
}

impl Work {
    /// Counts steps: the caller's own work counts too.
    #[inline]
    pub fn add(&self, nr: u64) {
        self.nr_steps.set(self.nr_steps.get().saturating_add(nr));
    }

    /// A number of pieces of which eight cost as much as one step.
    #[inline]
    pub(crate) fn add_cheap(&self, nr: u64) {
        self.add(1 + nr / 8);
    }

    /// Steps so far.
    #[must_use]
    pub fn nr_steps(&self) -> u64 {
        self.nr_steps.get()
    }

    /// How many steps there may be; a call that is under way ends soon after.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether there were more.
    #[must_use]
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.nr_steps.get() > self.limit
    }
}

/// Bytes of a live or freed folio, with its place in the lists of reclaim.
pub(crate) const FOLIO_BYTES: u64 = 192;
/// Bytes of a node of the tree of a file.
pub(crate) const NODE_BYTES: u64 = 1 << 10;
/// Bytes of an entry in a map: an area, a page in swap space, what an evicted page left.
pub(crate) const ENTRY_BYTES: u64 = 128;
/// Bytes of a region of PMD slots.
const REGION_BYTES: u64 = 4 << 10;
/// Bytes of an entry of a page table.
const PTE_BYTES: u64 = 8;
/// Bytes of a process, a file or an open file, with all that is empty in it.
pub(crate) const THING_BYTES: u64 = 512;

impl Space {
    /// Bytes of its areas, tables and pages in swap space.
    pub(crate) fn bytes(&self) -> u64 {
        let (nr_regions, nr_ptes) = self.table.nr_held();
        let nr_entries = (self.vmas.len() + self.swapped.len()) as u64;
        nr_regions * REGION_BYTES + nr_ptes * PTE_BYTES + nr_entries * ENTRY_BYTES
    }
}

/// Steps of scanning and copying a block of `order`.
pub(crate) const fn steps_of_block(order: Order) -> u64 {
    1 + order.nr_pages() / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::open_file::OpenFile;
    use crate::folio::Folio;
    use crate::mapping::Mapping;
    use crate::mapping::tree::Node;
    use crate::vma::Vma;

    #[test]
    fn state_is_not_counted_too_small() {
        let fits = |bytes: u64, size: usize| size as u64 <= bytes;
        assert!(fits(FOLIO_BYTES, size_of::<Option<Folio>>() + 32), "{}", size_of::<Folio>());
        assert!(fits(ENTRY_BYTES, size_of::<Vma>() + 8), "{}", size_of::<Vma>());
        assert!(fits(THING_BYTES, size_of::<Space>()), "{}", size_of::<Space>());
        assert!(fits(THING_BYTES, size_of::<Mapping>()), "{}", size_of::<Mapping>());
        assert!(fits(THING_BYTES, size_of::<OpenFile>()));
        assert!(fits(NODE_BYTES, size_of::<Node>()), "{}", size_of::<Node>());
    }

    #[test]
    fn steps_pass_their_limit_and_never_overflow() {
        let mut work = Work::default();
        work.add(u64::MAX);
        work.add(1);
        assert!(!work.is_spent());
        work.set_limit(7);
        assert!(work.is_spent());
    }
}
