//! What is remembered of evicted pages: whether one that comes back was evicted too early
//! (docs/behaviour G.5.2).
//!
//! Answers to: `workingset_eviction`, `workingset_refault`, `workingset_test_recent`.
//!
//! A clock counts the pages that left the inactive lists, by eviction or activation. An evicted
//! page leaves its time behind (a shadow); when it is read again, the distance to now says how many
//! more pages memory would have had to hold for it to stay. Where that is no more than what the
//! active list holds, the page is as hot as those: it becomes active at once.
//!
//! Owns the clock and the test. Does not own the shadows ([`crate::mapping::shadows`]) nor the
//! lists ([`crate::folio::lru`]).

use super::Core;
use super::swap::Swap;
use crate::folio::FolioId;
use crate::folio::lru::{Age, ListId, LruKind};
use crate::mapping::shadows::{Shadow, Shadows};
use crate::ram::Ram;
use crate::units::MappingId;

/// The clock: pages that left the inactive lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock(u64);

impl Clock {
    pub(crate) fn advance(&mut self, nr_pages: u64) {
        self.0 += nr_pages;
    }

    /// A shadow for a page that is evicted now.
    pub(crate) fn shadow(self, was_workingset: bool) -> Shadow {
        Shadow { time: self.0, was_workingset }
    }
}

impl<R: Ram> Core<R> {
    /// Changes the shadows of a file.
    pub(crate) fn with_shadows<T>(
        &mut self,
        file: MappingId,
        change: impl FnOnce(&mut Shadows) -> T,
    ) -> T {
        let shadows = &mut self.mapping_mut(file).shadows;
        let before = shadows.nr_ranges();
        let answer = change(shadows);
        let after = shadows.nr_ranges();
        self.pressure.nr_shadows = self.pressure.nr_shadows - before + after;
        answer
    }

    /// `MADV_FREE`: reclaim looks at the folio next, without asking for swap space.
    pub(crate) fn give_up(&mut self, id: FolioId) {
        let list = ListId::new(LruKind::File, Age::Inactive);
        let _ = self.folios.lru_mut().take_referenced(id);
        let _ = self.folios.take_accessed(id);
        self.folios.lru_mut().move_to_head(id, list);
    }

    /// A folio that is evicted leaves this.
    pub(crate) fn evict_shadow(&mut self, id: FolioId) -> Shadow {
        let folio = self.folios.get(id);
        let shadow = self.pressure.clock.shadow(folio.is_workingset);
        self.pressure.clock.advance(folio.nr_pages());
        shadow
    }

    /// Pages that were evicted are back in the folio `id`.
    pub(crate) fn refault(&mut self, id: FolioId, shadow: Shadow) {
        let folio = self.folios.get(id);
        let (nr_pages, kind) = (folio.nr_pages(), folio.kind());
        let distance = self.pressure.clock.0 - shadow.time;
        let is_recent = distance <= self.workingset_pages(kind);
        let is_restored = is_recent && shadow.was_workingset;
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
        *refault += nr_pages;
        *activate += if is_recent { nr_pages } else { 0 };
        *restore += if is_restored { nr_pages } else { 0 };
        if !is_recent {
            return;
        }
        self.folios.lru_mut().move_to_head(id, ListId::new(kind, Age::Active));
        self.pressure.clock.advance(nr_pages);
        if is_restored {
            self.folios.get_mut(id).is_workingset = true;
            self.pressure.note_cost(kind, nr_pages);
        }
    }

    /// Pages that an evicted page of `kind` competes with.
    fn workingset_pages(&self, kind: LruKind) -> u64 {
        let lru = self.folios.lru();
        let nr = |kind, age| lru.nr_pages(ListId::new(kind, age));
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
