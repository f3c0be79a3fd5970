//! The deferred-split shrinker: memory pressure splits queued folios (docs/behaviour G.2.4).
//!
//! Answers to: `deferred_split_scan`, `thp_underused`.
//!
//! Differs: a page counts as zero-filled if no store to it was seen since it was zeroed; Linux
//! checks its bytes, which not every memory here has. The results differ only for a store of
//! zeroes. A partially mapped folio that cannot be split keeps its place in the queue; Linux moves
//! it to the end.

use crate::folio::frames::Flag;
use crate::folio::{Folio, FolioId};
use crate::memory::Memory;
use crate::units::Order;

impl Memory {
    /// Splits partially mapped or under-used folios among the first `nr_to_scan`. Returns freed
    /// pages.
    pub fn shrink_deferred(&mut self, nr_to_scan: usize) -> u64 {
        let before = self.core.buddy.nr_free_pages();
        let queued: Vec<FolioId> =
            self.core.deferred.iter().take(nr_to_scan).map(|(_, id)| id).collect();
        for id in queued {
            self.shrink_one(id);
        }
        self.core.buddy.nr_free_pages() - before
    }

    fn shrink_one(&mut self, id: FolioId) {
        let folio = self.core.folios.get(id).clone();
        if !folio.is_partially_mapped && !self.is_underused(&folio) {
            self.core.deferred.remove(self.core.folios.get_mut(id));
            return;
        }
        if self.split(id, Order::ZERO).is_ok() {
            self.core.counters.thp_underused_split_page += u64::from(!folio.is_partially_mapped);
        } else if !folio.is_partially_mapped {
            self.core.deferred.remove(self.core.folios.get_mut(id));
        }
    }

    fn is_underused(&self, folio: &Folio) -> bool {
        let limit = self.rules.anon.none_limit(self.rules.page);
        let nr_pages = folio.nr_pages();
        if limit >= self.rules.page.pmd_order().nr_pages() - 1 {
            return false;
        }
        let nr_written = self.core.folios.frames().count(Flag::Written, folio.pfn, nr_pages);
        nr_pages - nr_written > limit
    }

    pub(crate) fn reclaim(&mut self) -> u64 {
        self.shrink_deferred(usize::MAX) + self.shrink_huge_zero()
    }
}
