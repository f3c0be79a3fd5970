//! Looking through the lists: how far, and what becomes of what is found.
//!
//! Answers to: `shrink_lruvec`, `get_scan_count`, `shrink_inactive_list`, `shrink_active_list`,
//! `inactive_is_low`, `folio_referenced`, `folio_mark_accessed`.
//!
//! Owns the balance between the lists and the second chance. Does not own what eviction does
//! (`evict`).

use super::evict::Fate;
use crate::folio::FolioId;
use crate::folio::lru::{Age, ListId, LruKind};
use crate::memory::Memory;
use crate::ram::Ram;

/// A first look takes 1 / 2^12 of a list; each further look twice as much.
const PRIORITY_FIRST: u32 = 12;
/// Pages examined in one go (`SWAP_CLUSTER_MAX`).
pub(super) const BATCH_PAGES: u64 = 32;
/// Looks through everything without success before there is nothing to reclaim.
const NR_SWEEPS_MAX: u32 = 3;

/// On whose account pages are examined and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaimer {
    /// In the background.
    Kswapd,
    /// An allocation that has to wait.
    Direct,
}

impl<R: Ram> Memory<R> {
    /// Frees at least `target` pages if it can; how many.
    pub(super) fn shrink(&mut self, who: Reclaimer, target: u64) -> u64 {
        let mut nr_freed = 0;
        for _ in 0..NR_SWEEPS_MAX {
            for priority in (0..=PRIORITY_FIRST).rev() {
                nr_freed += self.shrink_lists(who, priority, target - nr_freed);
                nr_freed += self.shrink_others(priority);
                if nr_freed >= target {
                    return nr_freed;
                }
            }
            if nr_freed > 0 {
                break;
            }
        }
        nr_freed
    }

    /// The deferred-split queue and the huge zero folio: part of reclaim, in the same measure.
    fn shrink_others(&mut self, priority: u32) -> u64 {
        let nr_to_scan = (2 * self.core.deferred.len()) >> priority;
        let nr_freed = if nr_to_scan > 0 { self.shrink_deferred(nr_to_scan) } else { 0 };
        nr_freed + if priority == 0 { self.shrink_huge_zero() } else { 0 }
    }

    fn shrink_lists(&mut self, who: Reclaimer, priority: u32, target: u64) -> u64 {
        let mut goals = self.goals(priority);
        let mut nr_freed = 0;
        while goals.iter().any(|(_, goal)| *goal > 0) && nr_freed < target {
            for (list, goal) in &mut goals {
                let nr = BATCH_PAGES.min(*goal);
                *goal -= nr;
                nr_freed += match list.age {
                    Age::Inactive => self.shrink_inactive(who, *list, nr),
                    Age::Active => {
                        // Only to refill: what is in use is not examined for its own sake.
                        if self.is_inactive_low(list.kind) {
                            self.shrink_active(*list, nr);
                        }
                        0
                    }
                };
            }
        }
        // Inactive lists that are not scanned are still to be refilled.
        if self.can_swap() && self.is_inactive_low(LruKind::Anon) {
            self.shrink_active(ListId::new(LruKind::Anon, Age::Active), BATCH_PAGES);
        }
        nr_freed
    }

    pub(super) fn can_swap(&self) -> bool {
        self.core.pressure.swap.as_ref().is_some_and(crate::core::swap::Swap::has_free)
    }

    /// Pages to scan on each list. Without swap space anonymous memory is left alone; where there
    /// is much inactive file memory, only that is examined.
    fn goals(&mut self, priority: u32) -> [(ListId, u64); 4] {
        let can_swap = self.can_swap();
        let lru = self.core.folios.lru();
        let sizes = ListId::ALL.map(|list| lru.nr_pages(list));
        let has_cold_files =
            sizes[2] >> priority > 0 && !self.is_inactive_low(LruKind::File) && priority > 0;
        self.core.pressure.fade_costs(sizes.iter().sum());
        let weights = match (can_swap, has_cold_files) {
            // No swap space, or plenty of cold files: files only.
            (false, _) | (true, true) => [0, 1],
            // The last look takes what there is.
            (true, false) if priority == 0 => [1, 1],
            (true, false) => self.core.pressure.weights(),
        };
        let sum = if priority == 0 { 1 } else { weights[0] + weights[1] };
        let goal = |at: usize| {
            let weight = weights[ListId::ALL[at].kind as usize];
            (ListId::ALL[at], (sizes[at] >> priority) * weight / sum)
        };
        [goal(0), goal(1), goal(2), goal(3)]
    }

    /// Whether the inactive list of a kind holds too little: half, and less of it where there are
    /// many GiB.
    fn is_inactive_low(&self, kind: LruKind) -> bool {
        let lru = self.core.folios.lru();
        let inactive = lru.nr_pages(ListId::new(kind, Age::Inactive));
        let active = lru.nr_pages(ListId::new(kind, Age::Active));
        let gib = (inactive + active) << self.rules.page.shift() >> 30;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }

    /// Moves what is out of use from an active list to its inactive one; what is executable and in
    /// use stays.
    fn shrink_active(&mut self, list: ListId, nr_pages: u64) {
        let mut nr_scanned = 0;
        while nr_scanned < nr_pages
            && let Some(id) = self.core.folios.lru().tail(list)
        {
            let nr = self.core.folios.get(id).nr_pages();
            self.core.work.add(1);
            nr_scanned += nr;
            let was_accessed = self.core.folios.take_accessed(id);
            // Text in use is kept: missing it stops every process that runs it.
            if was_accessed && list.kind == LruKind::File && self.is_executable(id) {
                self.core.folios.lru_mut().move_to_head(id, list);
                self.core.pressure.note_cost(list.kind, nr);
                continue;
            }
            self.core.counters.reclaim.pgdeactivate += nr;
            let folio = self.core.folios.get_mut(id);
            folio.is_workingset = true;
            let inactive = ListId::new(folio.kind(), Age::Inactive);
            self.core.folios.lru_mut().move_to_head(id, inactive);
        }
    }

    fn shrink_inactive(&mut self, who: Reclaimer, list: ListId, nr_pages: u64) -> u64 {
        let (mut nr_scanned, mut nr_freed) = (0, 0);
        while nr_scanned < nr_pages
            && let Some(id) = self.core.folios.lru().tail(list)
        {
            let nr = self.core.folios.get(id).nr_pages();
            self.core.work.add(1);
            let nr_free = self.core.buddy.nr_free_pages();
            let fate = self.look_at(id);
            nr_freed += self.core.buddy.nr_free_pages() - nr_free;
            match fate {
                Fate::Freed => {}
                Fate::Keep => self.core.folios.lru_mut().move_to_head(id, list),
                Fate::Activate => self.activate(id, list),
                // Its parts are at the tail now and are examined one by one.
                Fate::Split => continue,
            }
            nr_scanned += nr;
        }
        let counters = &mut self.core.counters.reclaim;
        let (scan, steal) = match who {
            Reclaimer::Kswapd => (&mut counters.pgscan_kswapd, &mut counters.pgsteal_kswapd),
            Reclaimer::Direct => (&mut counters.pgscan_direct, &mut counters.pgsteal_direct),
        };
        *scan += nr_scanned;
        *steal += nr_freed;
        nr_freed
    }

    fn activate(&mut self, id: FolioId, from: ListId) {
        let folio = self.core.folios.get(id);
        let (kind, nr) = (folio.kind(), folio.nr_pages());
        self.core.folios.lru_mut().move_to_head(id, ListId::new(kind, Age::Active));
        self.core.pressure.clock.advance(nr);
        self.core.counters.reclaim.pgactivate += nr;
        self.core.pressure.note_cost(from.kind, nr);
    }

    /// Looks at an inactive folio: used twice, or used and executable, it becomes active; used
    /// once it gets another round.
    fn look_at(&mut self, id: FolioId) -> Fate {
        // Used since the last look: it gets another round, or is active if that happened twice.
        if self.core.folios.take_accessed(id) {
            let was_referenced = self.core.folios.lru_mut().set_referenced(id);
            let is_file = self.core.folios.get(id).kind() == LruKind::File;
            let is_active = was_referenced || is_file && self.is_executable(id);
            return if is_active { Fate::Activate } else { Fate::Keep };
        }
        let _ = self.core.folios.lru_mut().take_referenced(id);
        self.evict(id)
    }

    /// Whether a process may execute what the folio holds.
    fn is_executable(&self, id: FolioId) -> bool {
        self.sites_of(id).iter().any(|site| {
            self.space(site.mm).vmas.find(site.vpn).is_some_and(|vma| vma.prot.can_exec)
        })
    }

    /// A read call used a folio (`folio_mark_accessed`): the second time makes it active.
    pub(crate) fn mark_accessed(&mut self, id: FolioId) {
        let lru = self.core.folios.lru_mut();
        let inactive = |list: &ListId| list.age == Age::Inactive;
        if lru.set_referenced(id)
            && let Some(list) = lru.list_of(id).filter(inactive)
        {
            let _ = lru.take_referenced(id);
            let nr = self.core.folios.get(id).nr_pages();
            let active = ListId::new(list.kind, Age::Active);
            self.core.folios.lru_mut().move_to_head(id, active);
            self.core.pressure.clock.advance(nr);
            self.core.counters.reclaim.pgactivate += nr;
        }
    }
}
