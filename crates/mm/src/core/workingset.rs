//! Workingset detection: whether a page that returns was evicted too early (docs/behaviour G.5.2).
//!
//! Corresponds to: `workingset_eviction`, `workingset_refault`, `workingset_test_recent`,
//! `folio_mark_accessed`.
//!
//! A group's clock counts the pages that left its inactive lists by eviction or activation; the
//! root's clock counts all groups. When a page is evicted, a shadow entry records the current time.
//! When the page returns, the elapsed time is the number of extra pages that memory would have
//! needed to keep it. If the active list holds at least that many pages, the page is as hot as they
//! are and becomes active immediately.
//!
//! Owns the clocks and the test. Does not own the shadows ([`crate::mapping::shadows`]) or the
//! lists ([`crate::folio::lru`]).

use super::Core;
use super::stall::StallCosts;
use super::swap::Swap;
use crate::folio::FolioId;
use crate::folio::generations::Generations;
use crate::folio::lru::{Age, ListId, LruKind};
use crate::folio::lruvec::Work;
use crate::mapping::shadows::{Shadow, Shadows};
use crate::policy::Point;
use crate::units::{GroupId, MappingId};

impl Core {
    pub(crate) fn with_shadows<T>(
        &mut self,
        file: MappingId,
        change: impl FnOnce(&mut Shadows) -> T,
    ) -> T {
        let shadows = &mut self.mapping_mut(file).shadows;
        let before = shadows.nr_ranges();
        let result = change(shadows);
        let after = shadows.nr_ranges();
        self.pressure.nr_shadows = self.pressure.nr_shadows - before + after;
        result
    }

    /// Advances the clock: pages left a group's inactive lists (`workingset_age_nonresident`).
    pub(crate) fn age(&mut self, group: GroupId, nr_pages: u64) {
        let lru = self.folios.lru_mut();
        lru.vec_mut(group).clock += nr_pages;
        if group != GroupId::ROOT {
            lru.vec_mut(GroupId::ROOT).clock += nr_pages;
        }
    }

    pub(crate) fn drain_lru(&mut self) {
        self.counters.reclaim.pgactivate += self.folios.drain();
    }

    /// A read call or a removed entry used the folio. The second use activates it.
    pub(crate) fn mark_accessed(&mut self, id: FolioId) {
        self.note(Point::Accessed, id);
        if let Some(rule) = self.folios.generations() {
            self.count_use(id, rule);
            return;
        }
        let marks = self.folios.lru_mut().marks_mut(id);
        if !std::mem::replace(&mut marks.is_referenced, true) || marks.is_active {
            return;
        }
        marks.is_referenced = false;
        self.counters.reclaim.pgactivate += self.folios.activate(id);
        let group = self.folios.lru().group_of(id);
        self.age(group, self.folios.get(id).nr_pages());
    }

    /// `MADV_FREE`: reclaim takes the folio next and needs no swap space for it.
    pub(crate) fn give_up(&mut self, id: FolioId) {
        self.drain_lru();
        let _ = self.folios.take_accessed(id);
        let marks = self.folios.lru_mut().marks_mut(id);
        (marks.is_referenced, marks.is_active) = (false, false);
        if self.folios.isolate(id) {
            self.folios.putback(id);
        }
    }

    /// `MADV_COLD`, `MADV_PAGEOUT`: forgets the folio's past uses.
    pub(crate) fn cool(&mut self, id: FolioId) {
        let marks = self.folios.lru_mut().marks_mut(id);
        marks.is_referenced = false;
        let was_active = marks.is_active;
        self.folios.get_mut(id).is_workingset |= was_active;
    }

    pub(crate) fn deactivate(&mut self, id: FolioId) {
        let Some(list) = self.folios.lru().list_of(id) else { return };
        let marks = self.folios.lru().marks(id);
        let is_inactive = match self.folios.generations() {
            None => !marks.is_active,
            Some(rule) if rule.is_reworked() => {
                self.folios.lru_mut().marks_mut(id).nr_refs = 0;
                self.folios.get_mut(id).is_workingset = false;
                let group = self.folios.lru().group_of(id);
                let gens = &self.folios.lru().vec(group).gens;
                marks.generation == Some(Generations::list_of(gens.min_seq[list.kind as usize]))
            }
            Some(_) => false,
        };
        if is_inactive {
            return;
        }
        self.folios.lru_mut().marks_mut(id).is_active = false;
        self.counters.reclaim.pgdeactivate += self.folios.get(id).nr_pages();
        self.folios.put_on_list(id);
    }

    pub(crate) fn evict_shadow(&mut self, id: FolioId) -> Shadow {
        let target = self.pressure.target;
        if let Some(rule) = self.folios.generations() {
            return self.generation_shadow(id, rule);
        }
        let folio = self.folios.get(id);
        let (nr_pages, was_workingset) = (folio.nr_pages(), folio.is_workingset);
        let time = self.folios.lru().vec(target).clock;
        self.age(target, nr_pages);
        Shadow { group: target, time, nr_refs: 0, was_workingset }
    }

    pub(crate) fn refault(&mut self, id: FolioId, shadow: Shadow) {
        if let Some(rule) = self.folios.generations() {
            self.refault_generation(id, shadow, rule);
            return;
        }
        let folio = self.folios.get(id);
        let (nr_pages, kind) = (folio.nr_pages(), folio.kind());
        let distance = self.folios.lru().vec(shadow.group).clock - shadow.time;
        let is_recent = distance <= self.workingset_pages(shadow.group, kind);
        let is_restored = is_recent && shadow.was_workingset;
        self.count_refault(id, is_recent, is_restored);
        if !is_recent {
            return;
        }
        self.folios.lru_mut().marks_mut(id).is_active = true;
        if self.folios.lru().list_of(id).is_some() {
            self.folios.put_on_list(id);
        }
        let group = self.folios.lru().group_of(id);
        self.age(group, nr_pages);
        if is_restored {
            self.folios.get_mut(id).is_workingset = true;
            self.note_work(group, kind, Work::io(nr_pages));
        }
    }

    pub(super) fn count_refault(&mut self, id: FolioId, is_recent: bool, is_restored: bool) {
        let folio = self.folios.get(id);
        let (nr_pages, kind) = (folio.nr_pages(), folio.kind());
        let counters = &mut self.counters.reclaim;
        let (refault, activate, restore) = match kind {
            LruKind::Anon => (
                &mut counters.workingset_refault_anon,
                &mut counters.workingset_activate_anon,
                &mut counters.workingset_restore_anon,
            ),
            LruKind::File => (
                &mut counters.workingset_refault_file,
                &mut counters.workingset_activate_file,
                &mut counters.workingset_restore_file,
            ),
        };
        let (nr_recent, nr_restored) =
            (if is_recent { nr_pages } else { 0 }, if is_restored { nr_pages } else { 0 });
        *refault += nr_pages;
        *activate += nr_recent;
        *restore += nr_restored;
        let group = self.folios.lru().group_of(id);
        if is_restored {
            let StallCosts { read_ns, swap_in_ns, .. } = self.stalls.costs;
            self.stalls.add(group, if kind == LruKind::Anon { swap_in_ns } else { read_ns });
        }
        let vec = self.folios.lru_mut().vec_mut(group);
        vec.note_change(nr_pages + nr_recent + nr_restored);
        let counters = &mut vec.counters;
        counters.refaults[kind as usize] += nr_pages;
        counters.activated[kind as usize] += nr_recent;
        counters.restored[kind as usize] += nr_restored;
    }

    pub(crate) fn note_work(&mut self, group: GroupId, kind: LruKind, work: Work) {
        let (rule, lru) = (self.pressure.cost, self.folios.lru_mut());
        lru.vec_mut(group).note_work(kind, work, rule);
        if group != GroupId::ROOT {
            lru.vec_mut(GroupId::ROOT).note_work(kind, work, rule);
        }
    }

    /// Pages on a group's list as of its last flush; for the root, the exact sum of all groups.
    pub(crate) fn nr_listed(&self, group: GroupId, list: ListId) -> u64 {
        let lru = self.folios.lru();
        if group == GroupId::ROOT { lru.nr_pages(list) } else { lru.vec(group).nr_seen(list) }
    }

    fn workingset_pages(&self, group: GroupId, kind: LruKind) -> u64 {
        let nr = |kind, age| self.nr_listed(group, ListId::new(kind, age));
        let mut nr_pages = nr(LruKind::File, Age::Active);
        if kind == LruKind::Anon {
            nr_pages += nr(LruKind::File, Age::Inactive);
        }
        if self.pressure.swap.as_ref().is_some_and(Swap::has_free) {
            nr_pages += nr(LruKind::Anon, Age::Active);
            if kind == LruKind::File {
                nr_pages += nr(LruKind::Anon, Age::Inactive);
            }
        }
        nr_pages
    }
}
