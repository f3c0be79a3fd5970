//! The swap cache: folios whose content swap space holds too (docs/behaviour P.5.2).
//!
//! Answers to: `add_to_swap_cache`, `delete_from_swap_cache`, `folio_free_swap`,
//! `free_swap_cache`.
//!
//! ```text
//!   swapped out:  entries -> slot <- folio           unmapped, written: leaves, is freed
//!   read back:    entries -> slot <- folio <- entry  stays while somebody uses the slot
//! ```
//!
//! Owns how a folio gets into the cache and out of it. Does not own slots ([`super::swap`]).
//!
//! Invariants:
//! - I1: a folio in the cache names the slot of its first page, and each of its slots the folio; it
//!   has one reference for each.
//! - I2: a folio that only the cache refers to has a slot that somebody uses.

use super::Core;
use crate::folio::FolioId;
use crate::mapping::shadows::Shadow;
use crate::units::SwapSlot;

impl Core {
    /// The folio that holds what is in a slot.
    pub(crate) fn cached_in(&self, slot: SwapSlot) -> Option<FolioId> {
        self.pressure.swap.as_ref()?.cached_in(slot)
    }

    /// A folio gets into the cache, with the slots from `first` on.
    pub(crate) fn add_to_swap_cache(&mut self, id: FolioId, first: SwapSlot) {
        let folio = self.folios.get_mut(id);
        let nr = folio.nr_pages();
        (folio.slot, folio.is_in_swap_cache) = (Some(first), true);
        folio.refs += nr;
        if let Some(swap) = &mut self.pressure.swap {
            swap.set_cached(first, nr, Some(id));
        }
    }

    /// A folio leaves the cache, and leaves a shadow if it is evicted; slots that nobody uses are
    /// free then. Whoever calls has a reference.
    pub(crate) fn leave_swap_cache(&mut self, id: FolioId, shadow: Option<Shadow>) {
        let folio = self.folios.get_mut(id);
        let nr = folio.nr_pages();
        let Some(first) = folio.slot.take() else { return };
        folio.is_in_swap_cache = false;
        folio.refs -= nr;
        if let Some(swap) = &mut self.pressure.swap {
            swap.set_cached(first, nr, None);
            if let Some(shadow) = shadow {
                swap.set_shadow(first, nr, shadow);
            }
        }
        self.drop_unused_slots(first, nr);
    }

    /// Takes a folio out of the cache if nobody uses its slots; whether it could. What it holds must
    /// be written before it goes. Whoever calls has a reference.
    pub(crate) fn free_swap_cache(&mut self, id: FolioId) -> bool {
        let folio = self.folios.get(id);
        let Some(first) = folio.slot else { return false };
        let nr = folio.nr_pages();
        if self.pressure.swap.as_ref().is_none_or(|swap| swap.is_used(first, nr)) {
            return false;
        }
        self.folios.get_mut(id).is_dirty = true;
        self.leave_swap_cache(id, None);
        true
    }

    /// Whether an entry names a slot.
    pub(crate) fn is_slot_used(&self, slot: SwapSlot) -> bool {
        self.pressure.swap.as_ref().is_some_and(|swap| swap.is_used(slot, 1))
    }

    /// No folio holds what is in a slot any more.
    pub(crate) fn forget_cached(&mut self, slot: Option<SwapSlot>) {
        let Some(slot) = slot else { return };
        if let Some(swap) = &mut self.pressure.swap {
            swap.set_cached(slot, 1, None);
        }
        self.drop_unused_slots(slot, 1);
    }

    /// A folio that nothing but the cache refers to goes, unless somebody uses its slots.
    pub(crate) fn drop_unmapped_cache(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        if folio.slot.is_none() || folio.refs != folio.cache_refs() {
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

    /// Whether more than half of swap space is in use: the cache gives slots up where it can then.
    pub(crate) fn is_swap_full(&self) -> bool {
        self.pressure.swap.as_ref().is_some_and(|swap| swap.nr_free() < swap.nr_used())
    }
}
