//! Counts of hugetlb pages.

/// Hugetlb events. All are counts of huge pages unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugetlbCounters {
    /// Mappings refused because the pool has too few pages (`ENOMEM`).
    pub nr_maps_refused: u64,
    /// Faults that mapped a page at an empty entry.
    pub nr_faults: u64,
    /// Pages taken from a pool and zeroed.
    pub nr_allocated: u64,
    /// Entries that fork copied.
    pub nr_forked: u64,
    /// Stores that copied a page.
    pub nr_cow: u64,
    /// Stores that made a read-only page writable without a copy.
    pub nr_reused: u64,
    /// Pages taken from children because their owner stored and the pool was empty.
    pub nr_taken: u64,
    /// Reservations orphaned when part of an area moved (O.5.3).
    pub nr_lost: u64,
    /// Touches refused because the pool was empty (SIGBUS).
    pub nr_sigbus: u64,
}

impl HugetlbCounters {
    /// Returns all faults on huge pages, including refused ones.
    #[must_use]
    pub const fn nr_all_faults(&self) -> u64 {
        self.nr_faults + self.nr_cow + self.nr_reused + self.nr_sigbus
    }
}
