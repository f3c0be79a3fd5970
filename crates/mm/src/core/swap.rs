//! Swap space: a number of slots, each for one page.
//!
//! Corresponds to: `folio_alloc_swap`.
//!
//! Owns three facts per slot: how many page-table entries refer to it, which folio caches it, and
//! the record of its page. A folio gets consecutive slots or none (docs/behaviour G.5.1). Does not
//! own the free slots (`swap_slots`); the bytes are in [`crate::ram`].
//!
//! Differs: up to 6.14, kernels cache up to 64 free slots per processor and return freed slots 64
//! at a time.
//!
//! Invariants:
//! - I1: a used slot has a user, or a folio in the swap cache; all others are free.

use std::collections::BTreeMap;

use super::Core;
use super::swap_slots::Slots;
use crate::folio::{Content, FolioId};
use crate::mapping::shadows::Shadow;
use crate::rules::reclaim::SlotChoice;
use crate::units::PageRange;
use crate::units::{MappingId, Order, PageIndex, PageSize, SwapSlot};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    nr_users: u64,
    pub(crate) content: Content,
    /// The kernel only noted that it is zero, and wrote nothing (docs/behaviour P.7.3).
    pub(crate) is_noted: bool,
    pub(crate) shadow: Option<Shadow>,
    cached: Option<FolioId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Swap {
    slots: Slots,
    used: BTreeMap<SwapSlot, Stored>,
    nr_cached: u64,
}

impl Swap {
    pub(crate) fn new(page: PageSize, nr_slots: u64, choice: SlotChoice) -> Option<Self> {
        let order = page.pmd_order().min(page.max_page_order());
        let slots = Slots::new(order, nr_slots, choice);
        (nr_slots > 0).then(|| Self { slots, used: BTreeMap::new(), nr_cached: 0 })
    }

    pub(crate) fn has_free(&self) -> bool {
        self.nr_free() > 0
    }

    pub(crate) fn nr_free(&self) -> u64 {
        self.slots.nr_free()
    }

    pub(crate) fn nr_used(&self) -> u64 {
        self.slots.nr_used()
    }

    pub(crate) fn alloc(&mut self, order: Order) -> Option<SwapSlot> {
        self.slots.alloc(order)
    }

    pub(crate) fn store(&mut self, slot: SwapSlot, content: Content, shadow: Option<Shadow>) {
        let stored = Stored { nr_users: 0, content, is_noted: false, shadow, cached: None };
        self.used.insert(slot, stored);
    }

    pub(crate) fn stored(&self, slot: SwapSlot) -> Option<&Stored> {
        self.used.get(&slot)
    }

    pub(crate) fn nr_users(&self, slot: SwapSlot) -> u64 {
        self.used.get(&slot).map_or(0, |stored| stored.nr_users)
    }

    pub(crate) fn is_used(&self, first: SwapSlot, nr: u64) -> bool {
        self.used.range(first..first.plus(nr)).any(|(_, stored)| stored.nr_users > 0)
    }

    pub(crate) const fn nr_cached(&self) -> u64 {
        self.nr_cached
    }

    pub(super) fn cached_in(&self, slot: SwapSlot) -> Option<FolioId> {
        self.used.get(&slot)?.cached
    }

    pub(super) fn set_cached(&mut self, first: SwapSlot, nr: u64, id: Option<FolioId>) {
        for (_, stored) in self.used.range_mut(first..first.plus(nr)) {
            self.nr_cached -= u64::from(stored.cached.is_some());
            self.nr_cached += u64::from(id.is_some());
            stored.cached = id;
        }
    }

    pub(super) fn set_shadow(&mut self, first: SwapSlot, nr: u64, shadow: Shadow) {
        for (_, stored) in self.used.range_mut(first..first.plus(nr)) {
            stored.shadow = Some(shadow);
        }
    }

    pub(crate) fn note_content(&mut self, slot: SwapSlot, content: Content) {
        if let Some(stored) = self.used.get_mut(&slot) {
            stored.content = content;
        }
    }

    pub(crate) fn set_noted(&mut self, slot: SwapSlot, is_noted: bool) {
        if let Some(stored) = self.used.get_mut(&slot) {
            stored.is_noted = is_noted;
        }
    }

    pub(crate) fn get(&mut self, slot: SwapSlot) {
        if let Some(stored) = self.used.get_mut(&slot) {
            stored.nr_users += 1;
        }
    }

    fn put(&mut self, slot: SwapSlot) -> Option<(Stored, bool)> {
        let stored = self.used.get_mut(&slot)?;
        stored.nr_users = stored.nr_users.saturating_sub(1);
        let stored = *stored;
        let is_free = stored.nr_users == 0 && stored.cached.is_none();
        if is_free {
            self.used.remove(&slot);
            self.slots.free(slot);
        }
        Some((stored, is_free))
    }

    pub(crate) fn validate(&self, count: &BTreeMap<SwapSlot, u64>) -> bool {
        let nr_users = |slot: &SwapSlot| count.get(slot).copied().unwrap_or(0);
        let is_sound = |(slot, stored): (&SwapSlot, &Stored)| {
            stored.nr_users == nr_users(slot) && (stored.nr_users > 0 || stored.cached.is_some())
        };
        self.used.iter().all(is_sound)
            && count.keys().all(|slot| self.used.contains_key(slot))
            && self.nr_used() == self.used.len() as u64
            && self.slots.validate()
    }
}

impl Core {
    /// Drops one user of a slot and returns the page. With the last user, a folio in the swap cache
    /// also goes: always if it is unmapped, and if it is mapped, only when swap space is half full.
    pub(crate) fn put_slot(&mut self, slot: SwapSlot) -> Option<Stored> {
        let stored = self.put_user(slot)?;
        if let Some(id) = stored.cached.filter(|_| stored.nr_users == 0) {
            if self.is_swap_full() {
                self.folios.get_mut(id).refs += 1;
                let _ = self.free_swap_cache(id);
                self.put(id, 1);
            } else {
                self.drop_unmapped_cache(id);
            }
        }
        Some(stored)
    }

    pub(crate) fn put_user(&mut self, slot: SwapSlot) -> Option<Stored> {
        let (stored, is_free) = self.pressure.swap.as_mut()?.put(slot)?;
        if is_free {
            self.take_from_pool(slot);
            self.ram.swap_free(slot.0);
        }
        Some(stored)
    }

    /// Counts a page that is read: from zswap, from the device, or from nowhere if it is zero.
    pub(crate) fn count_read(&mut self, slot: SwapSlot) {
        let stored = self.pressure.swap.as_ref().and_then(|swap| swap.stored(slot));
        let is_noted = stored.is_some_and(|stored| stored.is_noted);
        let is_pooled = self.pressure.zswap.get(slot).is_some();
        let counters = &mut self.counters.reclaim;
        let count = match (is_noted, is_pooled) {
            (true, _) => &mut counters.swpin_zero,
            (_, true) => &mut counters.zswpin,
            (false, false) => &mut counters.pswpin,
        };
        *count += 1;
    }

    pub(crate) fn drop_unused_slots(&mut self, first: SwapSlot, nr: u64) {
        for slot in (0..nr).map(|by| first.plus(by)) {
            let Some(swap) = &mut self.pressure.swap else { return };
            let is_unused = |stored: &Stored| stored.nr_users == 0 && stored.cached.is_none();
            if swap.used.get(&slot).is_some_and(is_unused) {
                let _ = self.put_user(slot);
            }
        }
    }

    pub(crate) fn forget_evicted(&mut self, file: MappingId, PageRange { first, end }: PageRange) {
        if first >= end {
            return;
        }
        let _ = self.with_shadows(file, |shadows| shadows.take(PageRange { first, end }));
        for slot in self.take_swapped(file, PageIndex(first), PageIndex(end)) {
            let _ = self.put_slot(slot);
        }
    }

    fn take_swapped(&mut self, file: MappingId, first: PageIndex, end: PageIndex) -> Vec<SwapSlot> {
        let swapped = &mut self.mapping_mut(file).swapped;
        let range = swapped.range(first..end);
        let taken: Vec<_> = range.map(|(&index, &slot)| (index, slot)).collect();
        for (index, _) in &taken {
            swapped.remove(index);
        }
        self.work.add_cheap(taken.len() as u64);
        taken.into_iter().map(|(_, slot)| slot).collect()
    }

    pub(crate) fn back_from_swap(&mut self, file: MappingId, id: FolioId, index: PageIndex) {
        let end = index.plus(self.folios.get(id).nr_pages());
        let mut shadow = self
            .with_shadows(file, |shadows| shadows.take(PageRange { first: index.0, end: end.0 }));
        let slots = self.take_swapped(file, index, end);
        let nr_read = self.counters.reclaim.pswpin;
        for &slot in &slots {
            self.count_read(slot);
        }
        let counters = &mut self.counters.reclaim;
        counters.nr_swap_waits += u64::from(counters.pswpin > nr_read);
        for slot in slots {
            shadow = self.put_slot(slot).and_then(|stored| stored.shadow).or(shadow);
        }
        if let Some(shadow) = shadow {
            self.refault(id, shadow);
        }
    }
}
