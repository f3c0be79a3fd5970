//! Folios: `2^order` naturally aligned base pages that are managed as one.
//!
//! Owns the table of folios and the map from page frame to folio. Does not allocate frames
//! ([`crate::buddy`]) and knows no page table.
//!
//! | state | owner | refs | maps | flags |
//! |---|---|---|---|---|
//! | in the page cache, unmapped | `File` | `2^order` | 0 | maybe marker |
//! | in the page cache, mapped | `File` | `2^order + maps` | > 0 | no marker once hit |
//! | anonymous | `Anon` | `maps` | > 0 | - |
//!
//! Invariants (BEHAVIOUR.md L.5):
//! - I1: `refs == maps + 2^order` in the page cache, `refs == maps` for anonymous memory.
//! - I2: every frame of a live folio names it in the frame map, no other frame does.

use crate::pgtable::FolioSpan;
use crate::units::{Order, PageIndex, Pfn};

/// Folio in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolioId(u32);

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
    /// Private memory of processes.
    Anon,
}

/// One folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Differs from the file.
    pub is_dirty: bool,
    /// References, see the table of the module.
    pub refs: u64,
    /// Mappings: one per PTE and one per PMD entry (F.1 `large_mapcount`, here without the -1).
    pub maps: u64,
}

impl Folio {
    /// The frame of the folio's page at file position `index`.
    #[must_use]
    pub fn pfn_at(&self, index: PageIndex) -> Pfn {
        match self.owner {
            Owner::File { index: first, .. } => self.pfn.plus(index.0 - first.0),
            Owner::Anon => self.pfn,
        }
    }
}

/// log2 of the frames in one leaf of the frame map.
const LEAF_SHIFT: u32 = 9;
/// No folio has this frame.
const NO_FOLIO: u32 = u32::MAX;

/// All folios, and which one holds a frame.
#[derive(Clone, Debug, Default)]
pub struct FolioTable {
    folios: Vec<Option<Folio>>,
    free: Vec<u32>,
    /// Frame map: leaves of `2^LEAF_SHIFT` frames, made when first used.
    leaves: Vec<Option<Box<[u32]>>>,
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
        let id = if let Some(id) = self.free.pop() {
            self.folios[id as usize] = Some(folio);
            id
        } else {
            self.folios.push(Some(folio));
            let id = u32::try_from(self.folios.len() - 1).unwrap_or(NO_FOLIO);
            assert!(id != NO_FOLIO, "folio ids exhausted");
            id
        };
        self.name_frames(folio, id);
        FolioId(id)
    }

    /// Takes a folio out.
    pub fn remove(&mut self, id: FolioId) -> Folio {
        let Some(folio) = self.folios[id.0 as usize].take() else {
            unreachable!("folio id used after its folio was freed")
        };
        self.free.push(id.0);
        self.name_frames(folio, NO_FOLIO);
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
        let leaf = self.leaves.get((pfn.0 >> LEAF_SHIFT) as usize)?.as_ref()?;
        let id = leaf[(pfn.0 & ((1 << LEAF_SHIFT) - 1)) as usize];
        (id != NO_FOLIO).then_some(FolioId(id))
    }

    /// The folio that holds `pfn`, as the page table wants to hear of it; a frame that belongs to
    /// no folio (the zero page) stands alone.
    #[must_use]
    pub fn span_of(&self, pfn: Pfn) -> FolioSpan {
        self.of_pfn(pfn).map_or(FolioSpan::single(pfn), |id| {
            let folio = self.get(id);
            FolioSpan::new(folio.pfn, folio.order)
        })
    }

    /// Live folios in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (FolioId, &Folio)> {
        self.folios
            .iter()
            .enumerate()
            .filter_map(|(id, folio)| Some((FolioId(id as u32), folio.as_ref()?)))
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
        let named = self.leaves.iter().flatten().flat_map(|leaf| leaf.iter());
        let nr_named = named.filter(|&&id| id != NO_FOLIO).count() as u64;
        if nr_named == nr_pages { Ok(()) } else { Err(Pfn(nr_named)) }
    }

    fn name_frames(&mut self, folio: Folio, id: u32) {
        for pfn in folio.pfn.0..folio.pfn.0 + folio.order.nr_pages() {
            let leaf = (pfn >> LEAF_SHIFT) as usize;
            if leaf >= self.leaves.len() {
                self.leaves.resize(leaf + 1, None);
            }
            let leaf = self.leaves[leaf]
                .get_or_insert_with(|| vec![NO_FOLIO; 1 << LEAF_SHIFT].into_boxed_slice());
            leaf[(pfn & ((1 << LEAF_SHIFT) - 1)) as usize] = id;
        }
    }
}
