//! Huge pages of pools.

/// What happened to huge pages. All are counts of huge pages unless they say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugetlbCounters {
    /// Mappings that were refused because the pool has too few pages (`ENOMEM`).
    pub nr_maps_refused: u64,
    /// Faults that mapped a page where none was.
    pub nr_faults: u64,
    /// Pages taken from a pool and zeroed.
    pub nr_allocated: u64,
    /// Entries that fork copied.
    pub nr_forked: u64,
    /// Stores that copied a page.
    pub nr_cow: u64,
    /// Stores that kept a page that was mapped read-only.
    pub nr_reused: u64,
    /// Pages that were taken from children, because their owner stored and none was left.
    pub nr_taken: u64,
    /// Promises that moving a part of an area left to nobody (O.5.3).
    pub nr_lost: u64,
    /// Touches that were refused because no page was left (SIGBUS).
    pub nr_sigbus: u64,
}

impl HugetlbCounters {
    /// Faults of huge pages, those that were refused among them.
    #[must_use]
    pub const fn nr_all_faults(&self) -> u64 {
        self.nr_faults + self.nr_cow + self.nr_reused + self.nr_sigbus
    }
}
