//! What memory pressure did, with the names of vmstat.

/// Events since the memory manager was made. All are counts; pages are base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimCounters {
    /// Pages scanned by background reclaim.
    pub pgscan_kswapd: u64,
    /// Pages scanned by allocations that had to wait.
    pub pgscan_direct: u64,
    /// Pages freed by background reclaim.
    pub pgsteal_kswapd: u64,
    /// Pages freed by allocations that had to wait.
    pub pgsteal_direct: u64,
    /// Inactive pages found in use.
    pub pgactivate: u64,
    /// Active pages found out of use.
    pub pgdeactivate: u64,
    /// Anonymous and shared pages that came back from swap space.
    pub pswpin: u64,
    /// Pages written to swap space.
    pub pswpout: u64,
    /// Of the pages written: those that background reclaim wrote.
    pub nr_swpout_kswapd: u64,
    /// Reads from swap space that a program waited for.
    pub nr_swap_waits: u64,
    /// Pages given up by `MADV_FREE` that were freed.
    pub pglazyfreed: u64,
    /// File pages that reclaim found dirty, which it leaves to who writes back.
    pub nr_vmscan_immediate_reclaim: u64,
    /// Pages of files that became dirty.
    pub nr_dirtied: u64,
    /// Times that everything dirty was written back because reclaim found little else.
    pub nr_flushes: u64,
    /// Folios of files evicted.
    pub nr_evicted_file: u64,
    /// Allocations that reclaimed themselves.
    pub allocstall: u64,
    /// Times background reclaim ran.
    pub kswapd_runs: u64,
    /// Anonymous pages that came back while eviction was remembered.
    pub workingset_refault_anon: u64,
    /// File pages that came back while eviction was remembered.
    pub workingset_refault_file: u64,
    /// Of the refaulted anonymous pages: those that were missed soon enough to become active.
    pub workingset_activate_anon: u64,
    /// Of the refaulted file pages: those that were missed soon enough to become active.
    pub workingset_activate_file: u64,
    /// Of the activated anonymous pages: those that had been active when they were evicted.
    pub workingset_restore_anon: u64,
    /// Of the activated file pages: those that had been active when they were evicted.
    pub workingset_restore_file: u64,
    /// PMD folios swapped out as a whole.
    pub thp_swpout: u64,
    /// PMD folios split because there were no contiguous slots.
    pub thp_swpout_fallback: u64,
    /// Smaller large folios swapped out as a whole.
    pub swpout_large: u64,
    /// Smaller large folios split because there were no contiguous slots.
    pub swpout_large_fallback: u64,
    /// Allocations that waited for a compaction.
    pub compact_stall: u64,
    /// Compactions after which the block was there.
    pub compact_success: u64,
    /// Compactions after which it was not.
    pub compact_fail: u64,
    /// Compactions in the background.
    pub compact_daemon_wake: u64,
    /// Compactions in advance.
    pub nr_compact_proactive: u64,
    /// Pages the migration scanner examined.
    pub compact_migrate_scanned: u64,
    /// Pages the free scanner examined.
    pub compact_free_scanned: u64,
    /// Pages that compaction moved to other frames.
    pub pgmigrate_success: u64,
    /// Folios that could not be moved: pinned, or no free block was large enough.
    pub nr_migrate_refused: u64,
}

impl ReclaimCounters {
    /// Every count with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 36] {
        [
            ("pgscan_kswapd", self.pgscan_kswapd),
            ("pgscan_direct", self.pgscan_direct),
            ("pgsteal_kswapd", self.pgsteal_kswapd),
            ("pgsteal_direct", self.pgsteal_direct),
            ("pgactivate", self.pgactivate),
            ("pgdeactivate", self.pgdeactivate),
            ("pswpin", self.pswpin),
            ("pswpout", self.pswpout),
            ("nr_swpout_kswapd", self.nr_swpout_kswapd),
            ("nr_swap_waits", self.nr_swap_waits),
            ("pglazyfreed", self.pglazyfreed),
            ("nr_vmscan_immediate_reclaim", self.nr_vmscan_immediate_reclaim),
            ("nr_dirtied", self.nr_dirtied),
            ("nr_flushes", self.nr_flushes),
            ("nr_evicted_file", self.nr_evicted_file),
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
            ("nr_migrate_refused", self.nr_migrate_refused),
        ]
    }
}
