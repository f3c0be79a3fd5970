//! Memory pressure: which memory is given up when it runs out (docs/behaviour G.5, D.5, I.6 ..
//! I.11).
//!
//! ```text
//!   fault, read ---> free < low? --> kswapd: scan until free >= high
//!                    free < min? --> direct: scan until there is enough (allocstall)
//!                    no block of the order? --> compact, where effort and index allow
//!
//!   scan:  active list --not used--> inactive list --not used--> evict
//!   evict: file       unmap, write back if dirty, leave a shadow
//!          anonymous  partially mapped: split; else contiguous slots: swap out; none: split
//!          lazy-free  throw away
//! ```
//!
//! Owns who is evicted and when. Does not own unmapping ([`crate::unmap`], the reverse map of
//! [`crate::split`]) nor free blocks ([`crate::buddy`]). Reading order: [`lru`] [`workingset`]
//! [`swap`] [`watermark`] `scan` `evict` `swapin` `effort` `compact` `migrate` [`counters`].
//!
//! A page counts as used when a page walk reached it - a TLB miss of the machine replayed - since
//! reclaim last looked; a hit in the TLB does not show, as on hardware. Fault-around alone does not
//! count.
//!
//! Differs:
//! - Background reclaim takes no time: it is done when the allocation that woke it goes on.
//! - Room for a readahead window is made before it is read, not folio by folio.
//! - The accessed bits of all entries of a page are one: two processes that use it count once.
//! - Writeback takes no time: a dirty folio is written when reclaim wants it, and is clean then.
//! - Page tables and the kernel's own memory take no pages; there is one zone and no memcg.
//! - The kernel can be built with generational lists instead of these two; they are not modelled.
//!
//! Invariants:
//! - I1: nothing is evicted that a caller holds: reclaim runs before a fault looks anything up, or
//!   while what it found has a reference more.

pub mod compact;
pub mod counters;
mod effort;
mod evict;
pub mod lru;
mod migrate;
mod scan;
pub mod swap;
mod swapin;
pub mod watermark;
pub mod workingset;

pub use watermark::Watermarks;

use crate::buddy::BuddyError;
use crate::folio::Folio;
use crate::units::PageSize;
use compact::Deferral;
use lru::Kind;
use swap::Swap;
use workingset::Clock;

/// `vm.swappiness`: how much cheaper it is to bring back an anonymous page, of 200.
const SWAPPINESS: u64 = 60;

/// What memory pressure keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclaim {
    pub(crate) watermarks: Watermarks,
    pub(crate) clock: Clock,
    pub(crate) swap: Option<Swap>,
    /// Ranges of shadows of all files.
    pub(crate) nr_shadows: usize,
    /// Pages that were evicted for nothing, by kind, fading.
    costs: [u64; 2],
    /// Runs of background reclaim in a row that freed nothing.
    nr_failures: u32,
    deferral: Deferral,
}

impl Reclaim {
    /// For a machine of `nr_pages` with `nr_slots` of swap space.
    pub(crate) fn new(
        page: PageSize,
        watermarks: Watermarks,
        nr_slots: u64,
    ) -> Result<Self, BuddyError> {
        Ok(Self { watermarks, swap: Swap::new(page, nr_slots)?, ..Self::default() })
    }

    /// Pages of `kind` were looked at or evicted for nothing.
    pub(crate) fn note_cost(&mut self, kind: Kind, nr_pages: u64) {
        self.costs[kind as usize] += nr_pages;
    }

    /// Halves the costs once they outweigh the lists.
    fn fade_costs(&mut self, nr_lru_pages: u64) {
        while self.costs.iter().sum::<u64>() > nr_lru_pages / 4 {
            self.costs = self.costs.map(|cost| cost / 2);
            if self.costs == [0; 2] {
                return;
            }
        }
    }

    /// Weights of anonymous and file memory when lists are scanned: what costs less to evict
    /// weighs more.
    fn weights(&self) -> [u64; 2] {
        let sum = self.costs[0] + self.costs[1];
        let [anon, file] = self.costs.map(|cost| sum + cost);
        let total = anon + file;
        [SWAPPINESS * (total + 1) / (anon + 1), (200 - SWAPPINESS) * (total + 1) / (file + 1)]
    }
}

impl Folio {
    /// What list of reclaim it belongs on.
    pub(crate) const fn kind(&self) -> Kind {
        if self.is_swapbacked && !self.is_lazyfree { Kind::Anon } else { Kind::File }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_scanned_less() {
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.weights(), [60, 140]);
        reclaim.note_cost(Kind::File, 1000);
        let [anon, file] = reclaim.weights();
        assert!(anon > 60 && file < anon * 140 / 60, "{anon} {file}");
        reclaim.fade_costs(400);
        assert!(reclaim.costs[1] <= 100);
    }
}
