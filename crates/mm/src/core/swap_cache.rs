//! The swap cache: folios whose content is also in swap space (docs/behaviour P.5.2).
//!
//! Corresponds to: `add_to_swap_cache`, `delete_from_swap_cache`, `folio_free_swap`,
//! `free_swap_cache`.
//!
//! ```text
//!   swapped out:  entries -> slot <- folio           unmapped, written: leaves and is freed
//!   read back:    entries -> slot <- folio <- entry  stays while an entry names the slot
//! ```
//!
//! Owns insertion into the cache and removal from it. Does not own slots ([`super::swap`]).
//!
//! Invariants:
//! - I1: a folio in the cache names its first slot, each of its slots names the folio, and the
//!   folio holds one reference per slot.
//! - I2: a folio that only the cache references has a used slot.

use super::Core;
use crate::folio::{FolioId, SwapState};
use crate::mapping::shadows::Shadow;
use crate::units::SwapSlot;

impl Core {
    pub(crate) fn cached_in(&self, slot: SwapSlot) -> Option<FolioId> {
        self.pressure.swap.as_ref()?.cached_in(slot)
    }

    pub(crate) fn add_to_swap_cache(&mut self, id: FolioId, first: SwapSlot) {
        let folio = self.folios.get_mut(id);
        let nr = folio.nr_pages();
        folio.swap = SwapState::Cached(first);
        folio.refs += nr;
        if let Some(swap) = &mut self.pressure.swap {
            swap.set_cached(first, nr, Some(id));
        }
    }

    /// Removes a folio, leaves `shadow` and frees unused slots. The caller holds a reference.
    pub(crate) fn leave_swap_cache(&mut self, id: FolioId, shadow: Option<Shadow>) {
        let folio = self.folios.get_mut(id);
        let nr = folio.nr_pages();
        let Some(first) = folio.slot() else { return };
        folio.swap = SwapState::Outside;
        folio.refs -= nr;
        if let Some(swap) = &mut self.pressure.swap {
            swap.set_cached(first, nr, None);
            if let Some(shadow) = shadow {
                swap.set_shadow(first, nr, shadow);
            }
        }
        self.drop_unused_slots(first, nr);
    }

    /// Removes a folio from the cache if its slots have no users, and returns whether it did. The
    /// folio must then be written before eviction. The caller holds a reference.
    pub(crate) fn free_swap_cache(&mut self, id: FolioId) -> bool {
        let folio = self.folios.get(id);
        let Some(first) = folio.slot() else { return false };
        let nr = folio.nr_pages();
        if self.pressure.swap.as_ref().is_none_or(|swap| swap.is_used(first, nr)) {
            return false;
        }
        self.folios.get_mut(id).is_dirty = true;
        self.leave_swap_cache(id, None);
        true
    }

    pub(crate) fn is_slot_used(&self, slot: SwapSlot) -> bool {
        self.pressure.swap.as_ref().is_some_and(|swap| swap.is_used(slot, 1))
    }

    pub(crate) fn forget_cached(&mut self, slot: Option<SwapSlot>) {
        let Some(slot) = slot else { return };
        if let Some(swap) = &mut self.pressure.swap {
            swap.set_cached(slot, 1, None);
        }
        self.drop_unused_slots(slot, 1);
    }

    pub(crate) fn drop_unmapped_cache(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        if folio.slot().is_none() || folio.refs != folio.cache_refs() {
            return;
        }
        folio.refs += 1;
        let _ = self.free_swap_cache(id);
        let folio = self.folios.get_mut(id);
        folio.refs -= 1;
        if folio.refs == 0 {
            let folio = self.take(id);
            self.buddy.free(folio.pfn, folio.order);
        }
    }

    /// Whether swap space is more than half full: the cache then frees slots early.
    pub(crate) fn is_swap_full(&self) -> bool {
        self.pressure.swap.as_ref().is_some_and(|swap| swap.nr_free() < swap.nr_used())
    }
}
