//! How hard an allocation tries (docs/behaviour D.5, I.7, I.8).
//!
//! Corresponds to: `__alloc_pages_slowpath`, `try_to_free_pages`, `balance_pgdat`,
//! `should_reclaim_retry`.
//!
//! | effort | free memory | background reclaim | direct reclaim and compaction |
//! |---|---|---|---|
//! | `None` | as it is | - | - |
//! | `Wake` | as it is | after it failed | - |
//! | `Once` | | before | one round |
//! | `Direct` | | before | until there is no progress |
//!
//! Base pages are always allocated with full effort. Large file folios try once: for a costly order
//! (> 3) they compact if the fragmentation index indicates that this may help, and do not reclaim.

use super::scan::{BATCH_PAGES, Reclaimer};
use crate::memory::Memory;
use crate::rules::anon::Effort;
use crate::units::{GroupId, MappingId, Order};

/// Higher orders are costly: allocations do not wait long for them (docs/behaviour 0.4).
pub(super) const COSTLY_ORDER: Order = Order::new(3);
/// Failed runs after which background reclaim stops; also the rounds of an allocation.
const NR_RETRIES_MAX: u32 = 16;
const NR_COSTLY_RETRIES_MAX: u32 = NR_RETRIES_MAX / 4;

impl Memory {
    #[inline]
    pub(crate) fn keep_balance(&mut self) {
        if self.core.buddy.nr_free_pages() <= self.core.pressure.watermarks.low {
            self.balance(1);
        }
    }

    #[inline]
    pub(crate) fn make_room(&mut self, nr_pages: u64, order: Order) {
        let low = self.core.pressure.watermarks.low;
        if self.core.buddy.nr_free_pages() < low + nr_pages {
            self.balance(if order > COSTLY_ORDER { 1 } else { nr_pages });
        }
        if order > Order::ZERO && !self.has_block(order) {
            let _ = self.compact_for(order, Effort::Once);
        }
    }

    #[cold]
    fn balance(&mut self, nr_pages: u64) {
        self.wake_kswapd();
        let wanted = self.core.pressure.watermarks.min + nr_pages;
        if self.core.buddy.nr_free_pages() < wanted {
            self.direct_reclaim(nr_pages);
        }
    }

    fn wake_kswapd(&mut self) {
        let reclaim = &self.core.pressure;
        let high = reclaim.watermarks.high;
        let nr_free = self.core.buddy.nr_free_pages();
        // Enough is free, or kswapd failed too often, so allocations must reclaim directly.
        if nr_free >= high || reclaim.nr_failures >= NR_RETRIES_MAX {
            return;
        }
        self.core.counters.reclaim.kswapd_runs += 1;
        let before = self.core.counters.reclaim;
        let nr_freed = self.shrink(Reclaimer::Kswapd, GroupId::ROOT, high - nr_free);
        let counters = &mut self.core.counters.reclaim;
        counters.nr_swpout_kswapd += counters.pswpout - before.pswpout;
        counters.nr_zswpout_kswapd += counters.zswpout - before.zswpout;
        counters.nr_evicted_kswapd += counters.nr_evicted_file - before.nr_evicted_file;
        let reclaim = &mut self.core.pressure;
        reclaim.nr_failures = if nr_freed == 0 { reclaim.nr_failures + 1 } else { 0 };
    }

    fn direct_reclaim(&mut self, nr_pages: u64) -> u64 {
        self.core.counters.reclaim.allocstall += 1;
        let nr_freed = self.shrink(Reclaimer::Direct, GroupId::ROOT, nr_pages.max(BATCH_PAGES));
        if nr_freed > 0 {
            self.core.pressure.nr_failures = 0;
        }
        nr_freed
    }

    /// Reclaims like an allocation of `nr_pages` that found nothing free. Returns the pages freed.
    pub fn reclaim_pages(&mut self, nr_pages: u64) -> u64 {
        self.direct_reclaim(nr_pages)
    }

    pub(crate) fn reclaim_at_last(&mut self) -> u64 {
        let nr_freed = self.direct_reclaim(1);
        if nr_freed > 0 {
            return nr_freed;
        }
        if self.flush_dirty() {
            let nr_freed = self.direct_reclaim(1);
            if nr_freed > 0 {
                return nr_freed;
            }
        }
        self.reclaim()
    }

    fn has_block(&self, order: Order) -> bool {
        let min = self.core.pressure.watermarks.min;
        self.core.buddy.check_watermark(order, min).is_ok()
    }

    pub(crate) fn prepare_large(&mut self, order: Order, effort: Effort) -> bool {
        if self.has_block(order) {
            return true;
        }
        match effort {
            Effort::None => false,
            Effort::Wake => {
                // Background reclaim helps only later allocations.
                self.wake_kswapd();
                self.compact_in_background(order);
                false
            }
            Effort::Once | Effort::Direct => self.wait_for(order, effort),
        }
    }

    pub(crate) fn prepare_smallest(&mut self, file: MappingId) {
        let order = self.core.mapping(file).hard_min();
        if order > Order::ZERO {
            self.prepare_large(order, Effort::Direct);
        }
    }

    fn wait_for(&mut self, order: Order, effort: Effort) -> bool {
        self.wake_kswapd();
        let nr_rounds = match effort {
            Effort::Direct if order > COSTLY_ORDER => NR_COSTLY_RETRIES_MAX,
            Effort::Direct => NR_RETRIES_MAX,
            _ => 1,
        };
        for _ in 0..nr_rounds {
            let was_tried = self.compact_for(order, effort);
            if self.has_block(order) {
                return true;
            }
            // A costly order may give up: reclaim rarely frees contiguous pages.
            let nr_freed = if effort == Effort::Direct || order <= COSTLY_ORDER {
                self.direct_reclaim(order.nr_pages())
            } else {
                0
            };
            if self.has_block(order) {
                return true;
            }
            // Nothing was moved or freed: another round would not help.
            if nr_freed == 0 && !was_tried {
                return false;
            }
        }
        let _ = self.compact_for(order, effort);
        self.has_block(order)
    }
}
