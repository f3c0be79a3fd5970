//! Work and state budgets.
//!
//! A *step* is one page, entry, area or folio that the memory manager examines or changes. All
//! steps cost about the same; several iterations of a much cheaper loop count as one step. The same
//! calls take the same steps on every machine. *State* is the number of bytes that a process or
//! file adds to the model, in fixed sizes per item (see `Memory::state_bytes`). It excludes
//! physical memory, whose size the caller chooses.
//!
//! Owns the count and its limit. Exceeding the limit stops nothing by itself. Most calls are
//! bounded by the existing state. Calls over a range of any length (read, write, populate,
//! collapse) return early once the limit is exceeded. The caller that set the limit checks
//! [`Work::is_spent`] and gives up.

use std::cell::Cell;

use super::space::Space;
use crate::units::Order;

/// Steps taken and their limit.
#[derive(Debug)]
pub struct Work {
    /// A `Cell`, because calls that only read memory count too.
    nr_steps: Cell<u64>,
    limit: u64,
}

impl Default for Work {
    fn default() -> Self {
        Self { nr_steps: Cell::new(0), limit: u64::MAX }
    }
}

impl Work {
    /// Counts steps. Callers also use it for their own work.
    #[inline]
    pub fn add(&self, nr: u64) {
        self.nr_steps.set(self.nr_steps.get().saturating_add(nr));
    }

    #[inline]
    pub(crate) fn add_cheap(&self, nr: u64) {
        self.add(1 + nr / 8);
    }

    /// Steps so far.
    #[must_use]
    pub fn nr_steps(&self) -> u64 {
        self.nr_steps.get()
    }

    /// Sets the maximum number of steps. A running call ends soon after it.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether the limit was exceeded.
    #[must_use]
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.nr_steps.get() > self.limit
    }
}

pub(crate) const FOLIO_BYTES: u64 = 192;
pub(crate) const NODE_BYTES: u64 = 1 << 10;
/// Bytes of a map entry: an area, a swapped page, a shadow.
pub(crate) const ENTRY_BYTES: u64 = 136;
const REGION_BYTES: u64 = 4 << 10;
const PTE_BYTES: u64 = 8;
pub(crate) const THING_BYTES: u64 = 512;

impl Space {
    pub(crate) fn bytes(&self) -> u64 {
        let (nr_regions, nr_ptes) = self.table.nr_held();
        let nr_entries = (self.vmas.len() + self.swapped.len()) as u64;
        nr_regions * REGION_BYTES + nr_ptes * PTE_BYTES + nr_entries * ENTRY_BYTES
    }
}

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
