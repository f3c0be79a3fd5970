//! Folios: `2^order` naturally aligned base pages that are managed as one.
//!
//! Owns the table of folios and, through it, what each page of one has of its own (`frames`). Does
//! not allocate frames ([`crate::buddy`]), counts no mapping itself (`mapped`) and knows
//! no page table.
//!
//! | state | owner | refs | maps | flags |
//! |---|---|---|---|---|
//! | in the page cache, unmapped | `File` | `2^order + pins` | 0 | maybe marker |
//! | in the page cache, mapped | `File` | `2^order + maps + pins` | > 0 | no marker once hit |
//! | dropped from the cache, pinned | `Detached` | `pins` | 0 | - |
//! | anonymous | `Anon` | `maps + pins` | > 0, or 0 and pinned | maybe partially mapped |
//!
//! Invariants (docs/behaviour L.5, F.1):
//! - I1: `refs == maps + pins + 2^order` in the page cache, `refs == maps + pins > 0` elsewhere.
//! - I2: every frame of a live folio names it in the frame map, no other frame does.
//! - I3: what [`Mapcount`] keeps.

use std::num::NonZeroU64;

use crate::frames::{Flag, Frames, NO_FOLIO};
use crate::pgtable::FolioSpan;
use crate::reclaim::lru::{Age, Kind, ListId, Lru};
use crate::rmap::Mapcount;
use crate::units::{Order, PageIndex, Pfn};

/// Folio in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolioId(u32);

impl FolioId {
    /// Position in tables of folios.
    pub(crate) const fn nr(self) -> usize {
        self.0 as usize
    }

    /// The folio at a position.
    pub(crate) const fn of_nr(nr: u32) -> Self {
        Self(nr)
    }
}

/// File in the memory manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(pub u32);

/// What a folio holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Pages of a file, the first one at `index`.
    File {
        /// The file.
        mapping: MappingId,
        /// Page offset of the folio's first page.
        index: PageIndex,
    },
    /// Private memory of processes, the first page at `index` of the areas that map it: for
    /// anonymous areas the page number at which it was first touched, for private files the
    /// page of the file. mremap does not change it.
    Anon {
        /// Index of the folio's first page.
        index: PageIndex,
    },
    /// A page of a file that has left the page cache while it was pinned.
    Detached,
}

/// One folio.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "page flags: independent of each other")]
pub struct Folio {
    /// First frame, a multiple of `2^order`.
    pub pfn: Pfn,
    /// log2 of the number of pages.
    pub order: Order,
    /// What it holds.
    pub owner: Owner,
    /// Readahead marker (A.1.2): reaching it starts the next window.
    pub is_marked: bool,
    /// Refaulted after a recent eviction (G.5.2): earns no miss-counter credit.
    pub is_workingset: bool,
    /// Its read has not completed: locked against faults.
    pub is_locked: bool,
    /// Its bytes are known as a whole; a fault that finds it otherwise reads it first (B.2.6).
    pub is_uptodate: bool,
    /// Differs from the file.
    pub is_dirty: bool,
    /// While it is dirty: pages at its start that no write has made so.
    pub nr_clean: u64,
    /// One write of a file made it, as long as it is.
    pub is_written_whole: bool,
    /// Some of its pages are mapped by nobody (G.2.1): stays set until it is split or freed.
    pub is_partially_mapped: bool,
    /// Only swap space can take its content: private and shared memory.
    pub is_swapbacked: bool,
    /// Its content is on the way to swap space: never queued for a deferred split (G.2.1).
    pub is_in_swap_cache: bool,
    /// Clean since `MADV_FREE`: its content may be thrown away.
    pub is_lazyfree: bool,
    /// Its content is on the way to the disk.
    pub is_under_writeback: bool,
    /// Its filesystem keeps data with it that it does not release.
    pub has_private: bool,
    /// Place in the deferred-split queue; `None` = not queued.
    pub deferred: Option<NonZeroU64>,
    /// References, see the table of the module.
    pub refs: u64,
    /// References of devices and the like (GUP).
    pub pins: u64,
    /// How often it is mapped, and by whom (F).
    pub mapcount: Mapcount,
}

impl Folio {
    /// A folio with no reference, not mapped.
    #[must_use]
    pub fn new(pfn: Pfn, order: Order, owner: Owner) -> Self {
        Self {
            pfn,
            order,
            owner,
            is_marked: false,
            is_workingset: false,
            is_locked: false,
            is_uptodate: true,
            is_dirty: false,
            nr_clean: 0,
            is_written_whole: false,
            is_partially_mapped: false,
            is_swapbacked: matches!(owner, Owner::Anon { .. }),
            is_in_swap_cache: false,
            is_lazyfree: false,
            is_under_writeback: false,
            has_private: false,
            deferred: None,
            refs: 0,
            pins: 0,
            mapcount: Mapcount::default(),
        }
    }

    /// A store through a shared mapping: all of it counts as dirty, and the flag of the readahead
    /// marker, which dirty folios use for something else, is cleared (6.18.44:
    /// `prot=rw map=shared advice=hugerandom ops=w2,b5.0+32768`).
    pub fn store_through_mapping(&mut self) {
        (self.is_dirty, self.nr_clean, self.is_marked) = (true, 0, false);
    }

    /// The frame of the folio's page at file position `index`.
    #[must_use]
    pub fn pfn_at(&self, index: PageIndex) -> Pfn {
        match self.owner {
            Owner::File { index: first, .. } | Owner::Anon { index: first } => {
                self.pfn.plus(index.0 - first.0)
            }
            Owner::Detached => self.pfn,
        }
    }

    /// Mappings: one per PTE and one per PMD entry (F.1 `large_mapcount`, here without the -1).
    #[must_use]
    pub fn maps(&self) -> u64 {
        self.mapcount.mapcount().into()
    }

    /// PMD entries (F.1 `entire_mapcount`, without the -1).
    #[must_use]
    pub fn pmd_maps(&self) -> u64 {
        self.mapcount.entire_mapcount().into()
    }

    /// Number of pages.
    #[must_use]
    pub const fn nr_pages(&self) -> u64 {
        self.order.nr_pages()
    }

    /// The frame after the last.
    #[must_use]
    pub const fn end_pfn(&self) -> Pfn {
        Pfn(self.pfn.0 + self.order.nr_pages())
    }

    /// The list of reclaim that a new folio like this starts on.
    const fn new_list(&self) -> ListId {
        let is_anon = self.is_swapbacked && !self.is_lazyfree;
        ListId::new(if is_anon { Kind::Anon } else { Kind::File }, Age::Inactive)
    }

    /// Whether it has more than one page.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        self.order.get() > 0
    }

    /// Whether it is private memory.
    #[must_use]
    pub const fn is_anon(&self) -> bool {
        matches!(self.owner, Owner::Anon { .. })
    }

    /// Whether somebody besides mappings and page cache refers to it: a pin.
    #[must_use]
    pub fn has_extra_refs(&self) -> bool {
        self.refs != self.maps() + self.cache_refs()
    }

    /// References of the page cache: one for each page.
    #[must_use]
    pub const fn cache_refs(&self) -> u64 {
        match self.owner {
            Owner::File { .. } => self.order.nr_pages(),
            Owner::Anon { .. } | Owner::Detached => 0,
        }
    }

    /// The folio as the page table wants to hear of it.
    #[must_use]
    pub const fn span(&self) -> FolioSpan {
        FolioSpan::new(self.pfn, self.order)
    }
}

/// All folios, and which one holds a frame.
#[derive(Clone, Debug, Default)]
pub struct FolioTable {
    folios: Vec<Option<Folio>>,
    free: Vec<u32>,
    frames: Frames,
    lru: Lru,
}

impl FolioTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folio.
    ///
    /// # Panics
    /// When 2^32 folios are alive: at 4 KiB each, 16 TiB of memory.
    pub fn insert(&mut self, folio: Folio) -> FolioId {
        let (pfn, nr_pages) = (folio.pfn, folio.nr_pages());
        let (order, list) = (folio.order, folio.new_list());
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
        self.lru.add(FolioId(id), order, list);
        FolioId(id)
    }

    /// Folios that live, and places of those that do not: what the table takes.
    pub(crate) const fn nr_places(&self) -> usize {
        self.folios.len()
    }

    /// Takes a folio out.
    pub fn remove(&mut self, id: FolioId) -> Folio {
        let Some(folio) = self.folios[id.0 as usize].take() else {
            unreachable!("folio id used after its folio was freed")
        };
        self.free.push(id.0);
        self.lru.remove(id);
        self.frames.set_folio(folio.pfn, folio.nr_pages(), NO_FOLIO);
        folio
    }

    /// The folio `id`.
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
    pub fn get_mut(&mut self, id: FolioId) -> &mut Folio {
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

    /// The folio has the frames from `to` on in place of its own.
    pub(crate) fn rename_frames(&mut self, id: FolioId, to: Pfn) {
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

    /// The lists of reclaim, to take folios off for a while ([`Lru::isolate`]).
    pub fn lru_mut(&mut self) -> &mut Lru {
        &mut self.lru
    }

    /// A process reached the page `pfn` through its page table.
    #[inline]
    pub(crate) fn note_access(&mut self, pfn: Pfn) {
        self.frames.set_one(Flag::Accessed, pfn);
    }

    /// Whether a page of the folio was reached since the last call (G.5.1: the OR of all).
    pub(crate) fn take_accessed(&mut self, id: FolioId) -> bool {
        let (pfn, nr) = (self.get(id).pfn, self.get(id).nr_pages());
        let was_accessed = self.frames.count(Flag::Accessed, pfn, nr) > 0;
        if was_accessed {
            self.frames.clear(Flag::Accessed, pfn, nr);
        }
        was_accessed
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
