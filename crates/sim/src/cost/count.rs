//! Converts the memory manager's counters to events.
//!
//! Does not own other counts: TLBs and reads belong to [`crate::replay`].

use std::collections::BTreeMap;

use largefolio_mm::counters::Counters;
use largefolio_mm::counters::reclaim::ReclaimCounters;
use largefolio_mm::ram::{Counted, NR_UNITS};

use super::{Events, PressureEvents, SwapEvents};

#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    pub counters: Counters,
    pub ram: Counted,
}

impl Mark {
    #[must_use]
    pub fn since(&self, base: &Self, page_bytes: u64) -> Events {
        let (now, then) = (&self.counters, &base.counters);
        let nr_written =
            |counters: &Counters| counters.reclaim.pswpout - counters.reclaim.nr_swpout_kswapd;
        let nr_pooled =
            |counters: &Counters| counters.reclaim.zswpout - counters.reclaim.nr_zswpout_kswapd;
        let set = now.nr_ptes_set + now.nr_pmds_set - then.nr_ptes_set - then.nr_pmds_set;
        let entries_forked = now.nr_forked - then.nr_forked;
        let allocated = |counters: &Counters| {
            let cached: u64 = counters.nr_inserted.iter().sum();
            counters.nr_anon_faults + counters.nr_cow + cached
        };
        Events {
            faults: now.pgfault - then.pgfault,
            faults_around: now.nr_around - then.nr_around,
            folios_allocated: allocated(now) - allocated(then),
            pmds_allocated: now.thp_fault_alloc - then.thp_fault_alloc,
            pressure: pressure(&now.reclaim, &then.reclaim),
            entries_mapped: set.saturating_sub(entries_forked),
            batches_mapped: (now.nr_batches_set - then.nr_batches_set)
                .saturating_sub(now.nr_batches_forked - then.nr_batches_forked),
            entries_forked,
            pmds_forked: now.nr_pmds_forked - then.nr_pmds_forked,
            batches_forked: now.nr_batches_forked - then.nr_batches_forked,
            large_forked: now.nr_large_batches_forked - then.nr_large_batches_forked,
            batches_unmapped: now.nr_batches_cleared - then.nr_batches_cleared,
            large_unmapped: now.nr_large_batches_cleared - then.nr_large_batches_cleared,
            folios_freed: now.nr_unmapped_freed - then.nr_unmapped_freed,
            pages_freed: now.nr_unmapped_freed_pages - then.nr_unmapped_freed_pages,
            ptes_unmapped: now.nr_ptes_cleared - then.nr_ptes_cleared,
            pmds_unmapped: now.nr_pmds_cleared - then.nr_pmds_cleared,
            mapcounts_mapped: (now.mapcounts_set - then.mapcounts_set)
                - (now.mapcounts_forked - then.mapcounts_forked),
            mapcounts_forked: now.mapcounts_forked - then.mapcounts_forked,
            mapcounts_unmapped: now.mapcounts_cleared - then.mapcounts_cleared,
            cleared: by_unit(&self.ram.zeroed_by_unit, &base.ram.zeroed_by_unit, page_bytes),
            copied: by_unit(&self.ram.copied_by_unit, &base.ram.copied_by_unit, page_bytes),
            swap: SwapEvents {
                is_on_disk: false,
                pages_in: now.reclaim.pswpin - then.reclaim.pswpin,
                waits: now.reclaim.nr_swap_waits - then.reclaim.nr_swap_waits,
                pages_out: nr_written(now) - nr_written(then),
                pooled_in: now.reclaim.zswpin - then.reclaim.zswpin,
                pooled_out: nr_pooled(now) - nr_pooled(then),
                page_bytes,
            },
            ..Events::default()
        }
    }
}

fn pressure(now: &ReclaimCounters, then: &ReclaimCounters) -> PressureEvents {
    let evicted =
        |counters: &ReclaimCounters| counters.nr_evicted_file - counters.nr_evicted_kswapd;
    // Swapping and lazily freed pages have costs of their own, or none.
    let of_files = |counters: &ReclaimCounters| {
        let in_background = counters.nr_swpout_kswapd + counters.nr_zswpout_kswapd;
        let swapped = counters.nr_paged_out().saturating_sub(in_background);
        counters.pgsteal_direct.saturating_sub(swapped + counters.pglazyfreed)
    };
    let kept =
        |counters: &ReclaimCounters| counters.pgscan_direct.saturating_sub(counters.pgsteal_direct);
    PressureEvents {
        folios_evicted: evicted(now) - evicted(then),
        pages_reclaimed: of_files(now).saturating_sub(of_files(then)),
        pages_kept: kept(now).saturating_sub(kept(then)),
        pages_scanned: now.compact_stall_scanned - then.compact_stall_scanned,
        pages_moved: now.compact_stall_moved - then.compact_stall_moved,
    }
}

/// Returns the bytes moved since `base`. The key is the unit's length in bytes, a power of two.
#[must_use]
pub fn by_unit(
    now: &[u64; NR_UNITS],
    base: &[u64; NR_UNITS],
    page_bytes: u64,
) -> BTreeMap<u64, u64> {
    let units = (0_u32..).zip(now.iter().zip(base));
    let bytes = units.map(|(log2, (now, base))| (page_bytes << log2, (now - base) * page_bytes));
    bytes.filter(|(_, bytes)| *bytes > 0).collect()
}
