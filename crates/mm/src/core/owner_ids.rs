//! Assigns owner ids to processes (docs/behaviour F.1.2).
//!
//! Corresponds to: `mm_alloc_id`, `mm_free_id`.
//!
//! Invariant I1: no two live processes have the same id.

use crate::rmap::owners::{IdsExhausted, MmOwnerId, Narrow, OwnerIds, OwnerLayout, Wide};
use crate::units::MmId;

#[derive(Clone, Debug)]
pub(crate) struct ProcessIds {
    ids: OwnerIds,
    by_mm: Vec<MmOwnerId>,
}

impl ProcessIds {
    pub(crate) fn new(layout: OwnerLayout) -> Self {
        let ids = match layout {
            OwnerLayout::Bits64 => OwnerIds::new::<Wide>(),
            OwnerLayout::Bits32 => OwnerIds::new::<Narrow>(),
        };
        Self { ids, by_mm: Vec::new() }
    }

    /// Allocates an id for the next process.
    ///
    /// # Errors
    /// If live processes use all ids.
    pub(crate) fn alloc(&mut self) -> Result<MmOwnerId, IdsExhausted> {
        self.ids.alloc()
    }

    pub(crate) fn start(&mut self, mm: MmId, id: MmOwnerId) {
        let nr = mm.0 as usize;
        match self.by_mm.get_mut(nr) {
            Some(of_ended) => *of_ended = id,
            None => self.by_mm.push(id),
        }
    }

    pub(crate) fn end(&mut self, mm: MmId) {
        self.ids.free(self.of(mm));
    }

    pub(crate) fn of(&self, mm: MmId) -> MmOwnerId {
        self.by_mm[mm.0 as usize]
    }
}
