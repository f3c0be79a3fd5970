//! The table of folios, and the folio of each frame.
//!
//! Owns the ids of folios, the frame map ([`super::frames`]) and the LRU lists ([`super::lru`]).
//! All three change together when a folio is added, moved or removed.

use super::batch::Batches;
use super::frames::{Flag, Frames, NO_FOLIO};
use super::lru::Lru;
use super::{Content, Folio, FolioId};
use crate::pgtable::FolioSpan;
use crate::rules::reclaim::{GenerationRule, LruRule, ReclaimRules};
use crate::units::Pfn;

/// All folios, and the folio of each frame.
#[derive(Clone, Debug, Default)]
pub struct FolioTable {
    folios: Vec<Option<Folio>>,
    free: Vec<u32>,
    frames: Frames,
    pub(super) lru: Lru,
    pub(super) batches: Batches,
    /// How generations work; `None` = active and inactive lists.
    pub(super) generations: Option<GenerationRule>,
    /// Whether a fault is running: new folios count as used through page tables.
    pub(super) is_fault: bool,
}

impl FolioTable {
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets the kind of LRU lists and the batch size. Must precede the first folio.
    pub(crate) fn set_rules(&mut self, rules: ReclaimRules) {
        self.generations = (rules.lru == LruRule::Generations).then_some(rules.generations);
        self.set_batch(rules.folio_batch);
    }

    pub(crate) const fn generations(&self) -> Option<GenerationRule> {
        self.generations
    }

    pub(crate) fn set_fault(&mut self, is_fault: bool) {
        self.is_fault = is_fault;
    }

    pub(crate) const fn is_fault(&self) -> bool {
        self.is_fault
    }

    /// Adds a folio. It is on no list until [`FolioTable::enlist`].
    ///
    /// # Panics
    /// If 2^32 folios are alive: at 4 KiB each, 16 TiB of memory.
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

    pub(crate) const fn nr_places(&self) -> usize {
        self.folios.len()
    }

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

    /// A live folio.
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

    /// The id of the live folio in place `nr`, if there is one.
    pub(crate) fn live(&self, nr: u32) -> Option<FolioId> {
        let id = FolioId::of_nr(nr);
        self.try_get(id).map(|_| id)
    }

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

    /// The span of the folio that holds `pfn`; a single page if there is no folio (zero page).
    #[must_use]
    pub fn span_of(&self, pfn: Pfn) -> FolioSpan {
        self.of_pfn(pfn).map_or(FolioSpan::single(pfn), |id| self.get(id).span())
    }

    /// Whether the page `pfn` is private to one process (`AnonExclusive`, L.8).
    #[must_use]
    pub fn is_exclusive(&self, pfn: Pfn) -> bool {
        self.frames.get(Flag::Exclusive, pfn)
    }

    /// Whether the page `pfn` of an anonymous folio was written since it was zeroed.
    #[must_use]
    pub fn is_written(&self, pfn: Pfn) -> bool {
        self.frames.get(Flag::Written, pfn)
    }

    pub(crate) fn note_write(&mut self, pfn: Pfn) {
        self.frames.set(Flag::Written, pfn, 1);
    }

    pub(crate) fn forget_writes(&mut self, pfn: Pfn, nr: u64) {
        self.frames.clear(Flag::Written, pfn, nr);
        self.frames.clear(Flag::Incompressible, pfn, nr);
    }

    pub(crate) fn content(&self, pfn: Pfn) -> Content {
        if !self.is_written(pfn) {
            Content::Zero
        } else if self.frames.get(Flag::Incompressible, pfn) {
            Content::Incompressible
        } else {
            Content::Compressible
        }
    }

    pub(crate) fn set_content(&mut self, pfn: Pfn, content: Content) {
        self.forget_writes(pfn, 1);
        if content != Content::Zero {
            self.note_write(pfn);
        }
        if content == Content::Incompressible {
            self.frames.set(Flag::Incompressible, pfn, 1);
        }
    }

    pub(crate) fn move_frames(&mut self, id: FolioId, to: Pfn) {
        let (from, nr) = (self.get(id).pfn, self.get(id).nr_pages());
        for flag in Flag::ALL {
            self.frames_mut().move_flag(flag, from, to, nr);
        }
        self.rename_frames(id, to);
    }

    fn rename_frames(&mut self, id: FolioId, to: Pfn) {
        let folio = self.get_mut(id);
        let (from, nr) = (std::mem::replace(&mut folio.pfn, to), folio.nr_pages());
        self.frames.set_folio(from, nr, NO_FOLIO);
        self.frames.set_folio(to, nr, id.0);
    }

    /// The LRU lists.
    #[must_use]
    pub fn lru(&self) -> &Lru {
        &self.lru
    }

    pub(crate) fn lru_mut(&mut self) -> &mut Lru {
        &mut self.lru
    }

    #[inline]
    pub(crate) fn note_access(&mut self, pfn: Pfn) {
        self.frames.set_one(Flag::Accessed, pfn);
    }

    pub(crate) fn take_accessed(&mut self, id: FolioId) -> u64 {
        let (pfn, nr) = (self.get(id).pfn, self.get(id).nr_pages());
        self.take_accessed_in(pfn, nr)
    }

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

    /// Live folios in ascending order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (FolioId, &Folio)> {
        self.folios
            .iter()
            .enumerate()
            .filter_map(|(id, folio)| Some((FolioId(id as u32), folio.as_ref()?)))
    }

    pub(crate) fn validate_lru(&self) -> Result<(), (Option<FolioId>, &'static str)> {
        self.validate_batches()?;
        self.lru.validate(self.iter().map(|(id, folio)| (id, folio.order)))
    }

    /// Checks I2.
    ///
    /// # Errors
    /// The first frame that names the wrong folio.
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
