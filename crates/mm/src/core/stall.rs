//! Time for which a cgroup waited for memory, as pressure stall information counts it.
//!
//! Corresponds to: `psi_memstall_enter`.
//!
//! ```text
//!   an allocation reclaims     examined pages x their cost + freed pages x theirs
//!   a used page comes back     one read from its storage
//! ```
//!
//! A policy sees the sum. The model has no times: the caller sets the costs
//! ([`Memory::set_stall_costs`](crate::memory::Memory::set_stall_costs)), and without them the sum
//! stays 0. No rule in the book covers stalls.
//!
//! Differs: a cgroup has one process that runs, so *some* and *full* are the same. Waits for
//! compaction, and for pages that were never evicted, do not count.

use crate::units::GroupId;

/// Costs of the events that stall a process, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCosts {
    /// A page that reclaim examines.
    pub examined_ns: u64,
    /// A page that reclaim frees, in addition.
    pub freed_ns: u64,
    /// A read of a file's folio that was evicted while in use.
    pub read_ns: u64,
    /// A read of private or shared memory from swap space.
    pub swap_in_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) costs: StallCosts,
    of_groups: Vec<u64>,
}

impl Stalls {
    pub(crate) fn add(&mut self, group: GroupId, ns: u64) {
        if ns == 0 {
            return;
        }
        let nr = group.0 as usize;
        if nr >= self.of_groups.len() {
            self.of_groups.resize(nr + 1, 0);
        }
        self.of_groups[nr] = self.of_groups[nr].saturating_add(ns);
    }

    pub(crate) fn of(&self, group: GroupId) -> u64 {
        self.of_groups.get(group.0 as usize).copied().unwrap_or(0)
    }
}
