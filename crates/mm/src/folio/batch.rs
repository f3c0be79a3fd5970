//! The batches through which folios reach the LRU lists (docs/behaviour P.2.1).
//!
//! Corresponds to: `folio_add_lru`, `folio_activate`, `lru_add_drain`.
//!
//! ```text
//!   new folio -----> batch of new folios ------+-- full, a large folio, or reclaim begins -->
//!   used again ----> batch of activations -----+   head of the list
//! ```
//!
//! A processor collects folios in a batch before it takes the lists' lock. A large folio drains its
//! batch immediately. Owns the two batches. Does not own the lists ([`super::lru`]).
//!
//! Differs: there is only one pair of batches instead of one per processor. A batched folio is
//! freed when its last other reference is dropped.
//!
//! Invariants:
//! - I1: a folio is in the batch of new folios exactly once if its place says so, otherwise never.
//! - I2: a folio is in the batch of activations if it is marked as such.

use super::generations::{Generations, NewListing};
use super::link::ListPlace;
use super::lru::{Age, ListId, Spot};
use super::{FolioId, FolioTable};
use crate::rules::reclaim::GenerationRule;
use crate::units::Order;

#[derive(Clone, Debug)]
pub(super) struct Batches {
    adds: Vec<FolioId>,
    activations: Vec<FolioId>,
    /// Folios per batch (`PAGEVEC_SIZE`).
    nr_max: usize,
}

const NR_MAX: usize = 15;

impl Default for Batches {
    fn default() -> Self {
        Self { adds: Vec::new(), activations: Vec::new(), nr_max: NR_MAX }
    }
}

impl FolioTable {
    pub(super) fn set_batch(&mut self, nr_max: u64) {
        self.batches.nr_max = nr_max.max(1) as usize;
    }

    pub(crate) fn enlist(&mut self, id: FolioId) {
        let is_workingset = self.get(id).is_workingset;
        let link = &mut self.lru.links[id.nr()];
        debug_assert_eq!(link.place, ListPlace::Isolated);
        link.place = ListPlace::Batched;
        if let Some(rule) = self.generations.filter(|_| self.is_fault) {
            // A fault: the folio stays out of the oldest generation. From 7.2 on, only a folio in the
            // working set does; others count as used once.
            match rule {
                GenerationRule::FirstUse if is_workingset => link.marks.is_active = true,
                GenerationRule::FirstUse if !link.marks.is_referenced => {
                    (link.marks.is_referenced, link.marks.nr_refs) = (true, 0);
                }
                GenerationRule::FirstUse => {}
                _ => link.marks.is_active = true,
            }
        }
        let is_large = link.order > Order::ZERO;
        self.batches.adds.push(id);
        if is_large || self.batches.adds.len() >= self.batches.nr_max {
            self.drain_adds();
        }
    }

    fn drain_adds(&mut self) {
        let mut adds = std::mem::take(&mut self.batches.adds);
        for id in adds.drain(..) {
            self.put_on_list(id);
        }
        self.batches.adds = adds;
    }

    pub(crate) fn put_on_list(&mut self, id: FolioId) {
        let kind = self.get(id).kind();
        if let Some(rule) = self.generations {
            let gens = &self.lru.vec(self.lru.group_of(id)).gens;
            let nr = Generations::list_of(self.start_of(id, gens, rule));
            let marks = self.lru.marks_mut(id);
            (marks.is_active, marks.generation) = (false, Some(nr));
            self.lru.link_head(id, ListId::generation(kind, nr));
            return;
        }
        let age = if self.lru.marks(id).is_active { Age::Active } else { Age::Inactive };
        self.lru.link_head(id, ListId::new(kind, age));
    }

    pub(crate) fn start_of(&self, id: FolioId, gens: &Generations, rule: GenerationRule) -> u64 {
        let folio = self.get(id);
        let marks = self.lru.marks(id);
        let waits_for_writeback = marks.is_reclaim && (folio.is_dirty || folio.is_under_writeback);
        let (kind, is_workingset) = (folio.kind(), folio.is_workingset);
        let is_in_swap_cache = folio.slot().is_some();
        let listing =
            NewListing { kind, marks, is_workingset, waits_for_writeback, is_in_swap_cache };
        gens.seq_of(listing, rule)
    }

    /// Activates a folio once its batch drains. Returns the pages activated now.
    pub(crate) fn activate(&mut self, id: FolioId) -> u64 {
        let link = &mut self.lru.links[id.nr()];
        match link.place {
            // It has not reached a list yet: it goes directly to the active one.
            ListPlace::Batched => link.marks.is_active = true,
            ListPlace::On(_) if !link.marks.is_active && !link.marks.is_activating => {
                link.marks.is_activating = true;
                let is_large = link.order > Order::ZERO;
                self.batches.activations.push(id);
                if is_large || self.batches.activations.len() >= self.batches.nr_max {
                    return self.drain_activations();
                }
            }
            ListPlace::On(_) | ListPlace::Isolated | ListPlace::Absent => {}
        }
        0
    }

    fn drain_activations(&mut self) -> u64 {
        let mut activations = std::mem::take(&mut self.batches.activations);
        let mut nr_pages = 0;
        for id in activations.drain(..) {
            let marks = self.lru.marks_mut(id);
            marks.is_activating = false;
            let is_listed = self.lru.list_of(id).is_some();
            if is_listed && !self.lru.marks(id).is_active {
                self.lru.marks_mut(id).is_active = true;
                self.put_on_list(id);
                nr_pages += self.get(id).nr_pages();
            }
        }
        self.batches.activations = activations;
        nr_pages
    }

    pub(crate) fn drain(&mut self) -> u64 {
        self.drain_adds();
        self.drain_activations()
    }

    /// Takes a folio off its list. Returns `false` if it is already isolated.
    pub(crate) fn isolate(&mut self, id: FolioId) -> bool {
        if self.lru.links[id.nr()].place == ListPlace::Batched {
            self.drain_adds();
        }
        let is_listed = self.lru.list_of(id).is_some();
        if is_listed {
            self.lru.take_off(id);
        }
        is_listed
    }

    pub(crate) fn putback(&mut self, id: FolioId) {
        if self.lru.links[id.nr()].place == ListPlace::Isolated {
            self.put_on_list(id);
        }
    }

    pub(crate) fn spot(&mut self, id: FolioId) -> Spot {
        if self.lru.links[id.nr()].place == ListPlace::Batched {
            self.drain_adds();
        }
        self.leave_batches(id);
        self.lru.spot_of(id)
    }

    /// A freed folio must not stay in a batch.
    pub(super) fn leave_batches(&mut self, id: FolioId) {
        let link = &mut self.lru.links[id.nr()];
        if link.place == ListPlace::Batched {
            self.batches.adds.retain(|&other| other != id);
        }
        if std::mem::take(&mut link.marks.is_activating) {
            self.batches.activations.retain(|&other| other != id);
        }
    }

    pub(super) fn validate_batches(&self) -> Result<(), (Option<FolioId>, &'static str)> {
        let links = &self.lru.links;
        let (mut nr_batched, mut nr_activating) = (0, 0);
        for link in links {
            nr_batched += usize::from(link.place == ListPlace::Batched);
            nr_activating += usize::from(link.marks.is_activating);
        }
        let is_batched = |id: &FolioId| links[id.nr()].place == ListPlace::Batched;
        let is_activating = |id: &FolioId| links[id.nr()].marks.is_activating;
        let (adds, activations) = (&self.batches.adds, &self.batches.activations);
        if nr_batched != adds.len() || !adds.iter().all(is_batched) {
            return Err((
                None,
                "the batch of new folios differs from the folios that are marked as being in the \
                 batch",
            ));
        }
        if nr_activating != activations.len() || !activations.iter().all(is_activating) {
            return Err((
                None,
                "the batch of activations differs from the folios that are marked as being in the \
                 batch",
            ));
        }
        Ok(())
    }
}
