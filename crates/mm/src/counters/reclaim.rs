//! Counts of memory-pressure events, with vmstat's names if vmstat has them.

/// Events since the memory manager was made. All are counts; pages are base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimCounters {
    /// Pages scanned by background reclaim.
    pub pgscan_kswapd: u64,
    /// Pages scanned by direct reclaim.
    pub pgscan_direct: u64,
    /// Pages freed by background reclaim.
    pub pgsteal_kswapd: u64,
    /// Pages freed by direct reclaim.
    pub pgsteal_direct: u64,
    /// Inactive pages that reclaim found in use.
    pub pgactivate: u64,
    /// Active pages that reclaim found idle.
    pub pgdeactivate: u64,
    /// Anonymous and shared pages read from swap space.
    pub pswpin: u64,
    /// Pages written to swap space.
    pub pswpout: u64,
    /// Pages loaded from zswap.
    pub zswpin: u64,
    /// Pages stored in zswap.
    pub zswpout: u64,
    /// Pages that zswap wrote to the device; among `pswpout` too.
    pub zswpwb: u64,
    /// Times that zswap refused a page because its pool was full.
    pub pool_limit_hit: u64,
    /// Pages of folios that were zero when they were swapped out: nothing was written.
    pub swpout_zero: u64,
    /// Pages that were read back as zeroes.
    pub swpin_zero: u64,
    /// Pages that background reclaim stored, among `zswpout`.
    pub nr_zswpout_kswapd: u64,
    /// Pages that background reclaim wrote, among `pswpout`.
    pub nr_swpout_kswapd: u64,
    /// Reads from swap space that a program waited for.
    pub nr_swap_waits: u64,
    /// Pages offered with `MADV_FREE` that were freed.
    pub pglazyfreed: u64,
    /// Dirty file pages that reclaim left to the flusher.
    pub nr_vmscan_immediate_reclaim: u64,
    /// File pages that became dirty.
    pub nr_dirtied: u64,
    /// Times that reclaim found mostly dirty pages and all of them were written back.
    pub nr_flushes: u64,
    /// File folios evicted.
    pub nr_evicted_file: u64,
    /// File folios that background reclaim evicted, among `nr_evicted_file`.
    pub nr_evicted_kswapd: u64,
    /// Allocations that entered direct reclaim.
    pub allocstall: u64,
    /// Times background reclaim ran.
    pub kswapd_runs: u64,
    /// Anonymous pages that faulted back in while their eviction was remembered.
    pub workingset_refault_anon: u64,
    /// File pages that were read again while their eviction was remembered.
    pub workingset_refault_file: u64,
    /// Refaulted anonymous pages that came back soon enough to become active.
    pub workingset_activate_anon: u64,
    /// Refaulted file pages that came back soon enough to become active.
    pub workingset_activate_file: u64,
    /// Activated anonymous pages that had been active when they were evicted.
    pub workingset_restore_anon: u64,
    /// Activated file pages that had been active when they were evicted.
    pub workingset_restore_file: u64,
    /// PMD folios swapped out whole.
    pub thp_swpout: u64,
    /// PMD folios split because no contiguous slots were free.
    pub thp_swpout_fallback: u64,
    /// Smaller large folios swapped out whole.
    pub swpout_large: u64,
    /// Smaller large folios split because no contiguous slots were free.
    pub swpout_large_fallback: u64,
    /// Allocations that waited for compaction.
    pub compact_stall: u64,
    /// Direct compactions that produced the block.
    pub compact_success: u64,
    /// Direct compactions that failed.
    pub compact_fail: u64,
    /// Background compactions.
    pub compact_daemon_wake: u64,
    /// Proactive compactions.
    pub nr_compact_proactive: u64,
    /// Pages the migration scanner examined.
    pub compact_migrate_scanned: u64,
    /// Pages the free scanner examined.
    pub compact_free_scanned: u64,
    /// Pages that compaction moved to other frames.
    pub pgmigrate_success: u64,
    /// Pages that direct compaction examined, of both scanners.
    pub compact_stall_scanned: u64,
    /// Pages that direct compaction moved, among `pgmigrate_success`.
    pub compact_stall_moved: u64,
    /// Folios that could not be moved: pinned, or no free block was large enough.
    pub nr_migrate_refused: u64,
}

impl ReclaimCounters {
    /// Returns the pages that both scanners of compaction examined.
    #[must_use]
    pub const fn compact_scanned(&self) -> u64 {
        self.compact_migrate_scanned + self.compact_free_scanned
    }

    /// Returns the pages that reclaim moved out of folios, wherever their content went.
    #[must_use]
    pub const fn nr_paged_out(&self) -> u64 {
        self.pswpout - self.zswpwb + self.zswpout + self.swpout_zero
    }

    /// Returns the pages of private and shared memory that came back.
    #[must_use]
    pub const fn nr_paged_in(&self) -> u64 {
        self.pswpin + self.zswpin + self.swpin_zero
    }

    /// Returns every count with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 46] {
        [
            ("pgscan_kswapd", self.pgscan_kswapd),
            ("pgscan_direct", self.pgscan_direct),
            ("pgsteal_kswapd", self.pgsteal_kswapd),
            ("pgsteal_direct", self.pgsteal_direct),
            ("pgactivate", self.pgactivate),
            ("pgdeactivate", self.pgdeactivate),
            ("pswpin", self.pswpin),
            ("pswpout", self.pswpout),
            ("zswpin", self.zswpin),
            ("zswpout", self.zswpout),
            ("zswpwb", self.zswpwb),
            ("pool_limit_hit", self.pool_limit_hit),
            ("swpout_zero", self.swpout_zero),
            ("swpin_zero", self.swpin_zero),
            ("nr_zswpout_kswapd", self.nr_zswpout_kswapd),
            ("nr_swpout_kswapd", self.nr_swpout_kswapd),
            ("nr_swap_waits", self.nr_swap_waits),
            ("pglazyfreed", self.pglazyfreed),
            ("nr_vmscan_immediate_reclaim", self.nr_vmscan_immediate_reclaim),
            ("nr_dirtied", self.nr_dirtied),
            ("nr_flushes", self.nr_flushes),
            ("nr_evicted_file", self.nr_evicted_file),
            ("nr_evicted_kswapd", self.nr_evicted_kswapd),
            ("allocstall", self.allocstall),
            ("kswapd_runs", self.kswapd_runs),
            ("workingset_refault_anon", self.workingset_refault_anon),
            ("workingset_refault_file", self.workingset_refault_file),
            ("workingset_activate_anon", self.workingset_activate_anon),
            ("workingset_activate_file", self.workingset_activate_file),
            ("workingset_restore_anon", self.workingset_restore_anon),
            ("workingset_restore_file", self.workingset_restore_file),
            ("thp_swpout", self.thp_swpout),
            ("thp_swpout_fallback", self.thp_swpout_fallback),
            ("swpout_large", self.swpout_large),
            ("swpout_large_fallback", self.swpout_large_fallback),
            ("compact_stall", self.compact_stall),
            ("compact_success", self.compact_success),
            ("compact_fail", self.compact_fail),
            ("compact_daemon_wake", self.compact_daemon_wake),
            ("nr_compact_proactive", self.nr_compact_proactive),
            ("compact_migrate_scanned", self.compact_migrate_scanned),
            ("compact_free_scanned", self.compact_free_scanned),
            ("pgmigrate_success", self.pgmigrate_success),
            ("compact_stall_scanned", self.compact_stall_scanned),
            ("compact_stall_moved", self.compact_stall_moved),
            ("nr_migrate_refused", self.nr_migrate_refused),
        ]
    }
}
