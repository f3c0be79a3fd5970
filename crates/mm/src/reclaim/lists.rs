//! Scans the two lists for one kind of memory: batching, the second chance, and putting folios
//! back.
//!
//! Corresponds to: `shrink_inactive_list`, `shrink_active_list`, `isolate_lru_folios`,
//! `move_folios_to_lru`, `folio_check_references`.
//!
//! ```text
//!   tail [ a b c d .. ]     isolate a batch: a b c d
//!                           examine in that order: a freed, b kept, c active, d freed
//!                           put back in that order: b at the head of inactive, c of active
//! ```

use super::EvictOutcome;
use super::examine::Examined;
use super::scan::Reclaimer;
use crate::folio::FolioId;
use crate::folio::lru::{ListId, LruKind};
use crate::folio::lruvec::Work;
use crate::memory::Memory;
use crate::rules::reclaim::CostRule;
use crate::units::GroupId;

struct Isolated {
    folios: Vec<FolioId>,
    nr_pages: u64,
}

impl Memory {
    fn isolate_batch(&mut self, group: GroupId, list: ListId, nr_pages: u64) -> Isolated {
        self.core.drain_lru();
        let mut isolated = Isolated { folios: Vec::new(), nr_pages: 0 };
        while isolated.nr_pages < nr_pages
            && let Some(id) = self.core.folios.lru().tail(group, list)
        {
            self.core.work.add(1);
            self.core.folios.lru_mut().take_off(id);
            isolated.nr_pages += self.core.folios.get(id).nr_pages();
            isolated.folios.push(id);
        }
        isolated
    }

    pub(super) fn shrink_active(&mut self, group: GroupId, list: ListId, nr_pages: u64) {
        let isolated = self.isolate_batch(group, list, nr_pages);
        let mut nr_rotated = 0;
        for id in isolated.folios {
            let nr = self.core.folios.get(id).nr_pages();
            let was_accessed = self.take_references(id) > 0;
            // Keep text in use: losing it stalls every process that runs it.
            if was_accessed && list.kind == LruKind::File && self.is_executable(id) {
                nr_rotated += nr;
            } else {
                self.core.counters.reclaim.pgdeactivate += nr;
                self.core.folios.get_mut(id).is_workingset = true;
                self.core.folios.lru_mut().marks_mut(id).is_active = false;
            }
            self.put_back(group, id);
        }
        if nr_rotated > 0 && self.rules.reclaim.cost != CostRule::Writes {
            self.core.note_work(group, list.kind, Work { nr_io: 0, nr_rotated });
        }
    }

    /// Puts an isolated folio back on a list. The active list advances the cgroup's clock (P.2.6).
    fn put_back(&mut self, group: GroupId, id: FolioId) {
        self.core.folios.putback(id);
        if self.core.folios.lru().marks(id).is_active {
            self.core.age(group, self.core.folios.get(id).nr_pages());
        }
    }

    pub(super) fn shrink_inactive(
        &mut self,
        who: Reclaimer,
        group: GroupId,
        list: ListId,
        nr_max: u64,
    ) -> u64 {
        let isolated = self.isolate_batch(group, list, nr_max);
        let is_all_dirty = self.are_dirty(&isolated.folios);
        let nr_out = self.core.counters.reclaim.nr_paged_out();
        let Isolated { folios, nr_pages } = isolated;
        let Examined { kept, nr_freed, nr_as_written } =
            self.examine_in_order(folios, |memory, id| memory.examine_inactive(id, list.kind));
        for id in kept {
            self.put_back(group, id);
        }
        self.core.pressure.wants_flush |= is_all_dirty;
        let nr_out = self.core.counters.reclaim.nr_paged_out() - nr_out;
        let nr_rotated = nr_pages.saturating_sub(nr_freed);
        let nr_io = match self.rules.reclaim.cost {
            CostRule::Writes | CostRule::WritesAndRotations | CostRule::Nonzero => {
                nr_out + nr_as_written
            }
            // Others are counted as they are written.
            CostRule::Counters => nr_as_written,
        };
        self.core.note_work(group, list.kind, Work { nr_io, nr_rotated });
        self.count_scan(who, group, nr_pages, nr_freed);
        nr_freed
    }

    pub(super) fn are_dirty(&self, folios: &[FolioId]) -> bool {
        let is_dirty = |&id: &FolioId| {
            let folio = self.core.folios.get(id);
            folio.is_dirty && !folio.is_swapbacked && !folio.is_anon()
        };
        !folios.is_empty() && folios.iter().all(is_dirty)
    }

    pub(super) fn count_scan(
        &mut self,
        who: Reclaimer,
        group: GroupId,
        nr_scanned: u64,
        nr_freed: u64,
    ) {
        let counters = &mut self.core.counters.reclaim;
        let (scan, steal) = match who {
            Reclaimer::Kswapd => (&mut counters.pgscan_kswapd, &mut counters.pgsteal_kswapd),
            Reclaimer::Direct | Reclaimer::Group => {
                (&mut counters.pgscan_direct, &mut counters.pgsteal_direct)
            }
        };
        *scan += nr_scanned;
        *steal += nr_freed;
        let vec = self.core.folios.lru_mut().vec_mut(group);
        vec.note_change(nr_scanned + nr_freed);
        let counters = &mut vec.counters;
        counters.pgscan += nr_scanned;
        counters.pgsteal += nr_freed;
    }

    pub(super) fn note_activation(&mut self, id: FolioId) {
        self.core.folios.lru_mut().marks_mut(id).is_active = true;
        self.core.counters.reclaim.pgactivate += self.core.folios.get(id).nr_pages();
    }

    /// Used twice, or used and executable: active. Used once: another round.
    fn examine_inactive(&mut self, id: FolioId, kind: LruKind) -> EvictOutcome {
        let folio = self.core.folios.get(id);
        // It is being read or is otherwise busy: check again later.
        if folio.is_locked {
            return EvictOutcome::Keep;
        }
        let nr_accessed = self.take_references(id);
        let marks = self.core.folios.lru_mut().marks_mut(id);
        let was_referenced = std::mem::replace(&mut marks.is_referenced, nr_accessed > 0);
        if nr_accessed > 0 {
            let is_text = kind == LruKind::File && self.is_executable(id);
            let is_active = was_referenced || nr_accessed > 1 || is_text;
            return if is_active { EvictOutcome::Activate } else { EvictOutcome::Keep };
        }
        self.evict(id)
    }

    fn is_executable(&self, id: FolioId) -> bool {
        self.sites_of(id).iter().any(|site| {
            self.space(site.mm).vmas.find(site.vpn).is_some_and(|vma| vma.prot.can_exec)
        })
    }
}
