//! The table of folios, and which one holds a frame.
//!
//! Owns the ids of folios, the frame map ([`super::frames`]) and the lists of reclaim
//! ([`super::lru`]): all three change together as a folio comes, moves or goes.

use super::batch::Batches;
use super::frames::{Flag, Frames, NO_FOLIO};
use super::lru::Lru;
use super::{Folio, FolioId};
use crate::pgtable::FolioSpan;
use crate::rules::reclaim::{GenerationRule, LruRule, ReclaimRules};
use crate::units::Pfn;

/// All folios, and which one holds a frame.
#[derive(Clone, Debug, Default)]
pub struct FolioTable {
    folios: Vec<Option<Folio>>,
    free: Vec<u32>,
    frames: Frames,
    pub(super) lru: Lru,
    pub(super) batches: Batches,
    /// How generations work, where folios are on generations.
    pub(super) generations: Option<GenerationRule>,
    /// A fault is handled: what comes now is used through page tables.
    pub(super) is_fault: bool,
}

impl FolioTable {
    /// An empty table.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Which lists folios are on, and how large the batches in front of them are; before there are
    /// folios.
    pub(crate) fn set_rules(&mut self, rules: ReclaimRules) {
        self.generations = (rules.lru == LruRule::Generations).then_some(rules.generations);
        self.set_batch(rules.folio_batch);
    }

    /// How generations work; `None` where there are two lists.
    pub(crate) const fn generations(&self) -> Option<GenerationRule> {
        self.generations
    }

    /// What comes from now on is, or is not, used through page tables.
    pub(crate) fn set_fault(&mut self, is_fault: bool) {
        self.is_fault = is_fault;
    }

    /// Whether a fault is handled.
    pub(crate) const fn is_fault(&self) -> bool {
        self.is_fault
    }

    /// Adds a folio, which is on no list before somebody puts it there
    /// ([`FolioTable::enlist`]).
    ///
    /// # Panics
    /// When 2^32 folios are alive: at 4 KiB each, 16 TiB of memory.
    pub(crate) fn insert(&mut self, folio: Folio) -> FolioId {
        let (pfn, nr_pages) = (folio.pfn, folio.nr_pages());
        let (order, group) = (folio.order, folio.group);
        let id = if let Some(id) = self.free.pop() {
            self.folios[id as usize] = Some(folio);
            id
        } else {
            self.folios.push(Some(folio));
            let id = u32::try_from(self.folios.len() - 1).unwrap_or(NO_FOLIO);
            assert!(id != NO_FOLIO, "folio ids exhausted");
            id
        };
        self.frames.set_folio(pfn, nr_pages, id);
        self.lru.add(FolioId(id), order, group);
        FolioId(id)
    }

    /// Folios that live, and places of those that do not: what the table takes.
    pub(crate) const fn nr_places(&self) -> usize {
        self.folios.len()
    }

    /// Takes a folio out.
    pub(crate) fn remove(&mut self, id: FolioId) -> Folio {
        let Some(folio) = self.folios[id.0 as usize].take() else {
            unreachable!("folio id used after its folio was freed")
        };
        self.free.push(id.0);
        self.leave_batches(id);
        self.lru.forget(id);
        self.frames.set_folio(folio.pfn, folio.nr_pages(), NO_FOLIO);
        folio
    }

    /// A live folio, to look at.
    #[must_use]
    pub fn get(&self, id: FolioId) -> &Folio {
        let Some(folio) = &self.folios[id.0 as usize] else {
            unreachable!("folio id used after its folio was freed")
        };
        folio
    }

    /// The folio `id`, if it is alive.
    #[must_use]
    pub fn try_get(&self, id: FolioId) -> Option<&Folio> {
        self.folios.get(id.0 as usize)?.as_ref()
    }

    /// The folio `id`, to change.
    pub(crate) fn get_mut(&mut self, id: FolioId) -> &mut Folio {
        let Some(folio) = &mut self.folios[id.0 as usize] else {
            unreachable!("folio id used after its folio was freed")
        };
        folio
    }

    /// The folio that holds `pfn`.
    #[must_use]
    pub fn of_pfn(&self, pfn: Pfn) -> Option<FolioId> {
        let id = self.frames.folio(pfn);
        (id != NO_FOLIO).then_some(FolioId(id))
    }

    /// The folio that holds `pfn`, as the page table wants to hear of it; a frame that belongs to
    /// no folio (the zero page) stands alone.
    #[must_use]
    pub fn span_of(&self, pfn: Pfn) -> FolioSpan {
        self.of_pfn(pfn).map_or(FolioSpan::single(pfn), |id| self.get(id).span())
    }

    /// Whether no other process sees the page `pfn` (`AnonExclusive`, L.8).
    #[must_use]
    pub fn is_exclusive(&self, pfn: Pfn) -> bool {
        self.frames.get(Flag::Exclusive, pfn)
    }

    /// Whether a store to the page `pfn` of an anonymous folio was seen since it was zeroed.
    #[must_use]
    pub fn is_written(&self, pfn: Pfn) -> bool {
        self.frames.get(Flag::Written, pfn)
    }

    /// A store to the page `pfn` was seen.
    pub(crate) fn note_write(&mut self, pfn: Pfn) {
        self.frames.set(Flag::Written, pfn, 1);
    }

    /// The pages were zeroed.
    pub(crate) fn forget_writes(&mut self, pfn: Pfn, nr: u64) {
        self.frames.clear(Flag::Written, pfn, nr);
    }

    /// Gives a folio other frames, with all that is known of its pages.
    pub(crate) fn move_frames(&mut self, id: FolioId, to: Pfn) {
        let (from, nr) = (self.get(id).pfn, self.get(id).nr_pages());
        for flag in Flag::ALL {
            self.frames_mut().move_flag(flag, from, to, nr);
        }
        self.rename_frames(id, to);
    }

    /// The folio has the frames from `to` on in place of its own.
    fn rename_frames(&mut self, id: FolioId, to: Pfn) {
        let folio = self.get_mut(id);
        let (from, nr) = (std::mem::replace(&mut folio.pfn, to), folio.nr_pages());
        self.frames.set_folio(from, nr, NO_FOLIO);
        self.frames.set_folio(to, nr, id.0);
    }

    /// The lists of reclaim.
    #[must_use]
    pub fn lru(&self) -> &Lru {
        &self.lru
    }

    /// The lists of reclaim, to move folios.
    pub(crate) fn lru_mut(&mut self) -> &mut Lru {
        &mut self.lru
    }

    /// A process reached the page `pfn` through its page table.
    #[inline]
    pub(crate) fn note_access(&mut self, pfn: Pfn) {
        self.frames.set_one(Flag::Accessed, pfn);
    }

    /// Pages of the folio that were reached since the last call (G.5.1).
    pub(crate) fn take_accessed(&mut self, id: FolioId) -> u64 {
        let (pfn, nr) = (self.get(id).pfn, self.get(id).nr_pages());
        self.take_accessed_in(pfn, nr)
    }

    /// The same for `nr` frames.
    pub(crate) fn take_accessed_in(&mut self, pfn: Pfn, nr: u64) -> u64 {
        let nr_accessed = self.frames.count(Flag::Accessed, pfn, nr);
        if nr_accessed > 0 {
            self.frames.clear(Flag::Accessed, pfn, nr);
        }
        nr_accessed
    }

    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    pub(crate) fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    /// Live folios in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (FolioId, &Folio)> {
        self.folios
            .iter()
            .enumerate()
            .filter_map(|(id, folio)| Some((FolioId(id as u32), folio.as_ref()?)))
    }

    /// Checks the lists of reclaim.
    pub(crate) fn validate_lru(&self) -> Result<(), (Option<FolioId>, &'static str)> {
        self.validate_batches()?;
        self.lru.validate(self.iter().map(|(id, folio)| (id, folio.order)))
    }

    /// Checks I2; the first frame that names the wrong folio on error.
    ///
    /// # Errors
    /// That frame.
    pub fn validate(&self) -> Result<(), Pfn> {
        let mut nr_pages = 0;
        for (id, folio) in self.iter() {
            nr_pages += folio.order.nr_pages();
            let mut frames = folio.pfn.0..folio.pfn.0 + folio.order.nr_pages();
            if let Some(pfn) = frames.find(|&pfn| self.of_pfn(Pfn(pfn)) != Some(id)) {
                return Err(Pfn(pfn));
            }
        }
        let nr_named = self.frames.nr_named();
        if nr_named == nr_pages { Ok(()) } else { Err(Pfn(nr_named)) }
    }
}
