//! Swap space: a number of slots of one page each.
//!
//! Answers to: `folio_alloc_swap`.
//!
//! Owns which slots are used, by how many page-table entries, and what is remembered of the page
//! in one. Free slots are kept as free memory is, in naturally aligned blocks, so that a folio finds
//! its slots side by side or not at all (docs/behaviour G.5.1). The bytes are in [`crate::ram`].
//!
//! Differs: a page that comes back gives its slot up at once (there is no swap cache); several
//! processes that share a slot each read a page of their own. Pages come back one by one, without
//! readahead.
//!
//! Invariants:
//! - I1: a slot in use has at least one user; the others are free.

use std::collections::BTreeMap;

use super::Core;
use crate::buddy::{Buddy, BuddyConfig, BuddyError, MigrateType};
use crate::folio::FolioId;
use crate::mapping::shadows::Shadow;
use crate::ram::Ram;
use crate::units::PageRange;
use crate::units::{MappingId, Order, PageIndex, PageSize, Pfn, SwapSlot};

/// The page in a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    nr_users: u64,
    /// A store to the page was seen.
    pub(crate) is_written: bool,
    pub(crate) shadow: Shadow,
}

/// Swap space: free slots, and what the others hold.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    free: Buddy,
    used: BTreeMap<SwapSlot, Stored>,
}

impl Swap {
    /// `nr_slots` free slots; `None` for none at all.
    pub(crate) fn new(page: PageSize, nr_slots: u64) -> Result<Option<Self>, BuddyError> {
        if nr_slots == 0 {
            return Ok(None);
        }
        let order = page.pmd_order().min(page.max_page_order());
        let config = BuddyConfig {
            max_order: order,
            pageblock_order: order,
            ..BuddyConfig::new(page, nr_slots)
        };
        Ok(Some(Self { free: Buddy::new(config)?, used: BTreeMap::new() }))
    }

    pub(crate) fn has_free(&self) -> bool {
        self.free.nr_free_pages() > 0
    }

    pub(crate) fn nr_free(&self) -> u64 {
        self.free.nr_free_pages()
    }

    /// Slots that hold a page.
    pub(crate) fn nr_used(&self) -> u64 {
        self.free.nr_allocated_pages()
    }

    /// Slots side by side for a folio, not used by anybody yet.
    pub(crate) fn alloc(&mut self, order: Order) -> Option<SwapSlot> {
        if order > self.free.max_order() {
            return None;
        }
        Some(SwapSlot(self.free.alloc(order, MigrateType::Movable)?.0))
    }

    /// Puts a page into a slot that was allocated.
    pub(crate) fn store(&mut self, slot: SwapSlot, is_written: bool, shadow: Shadow) {
        self.used.insert(slot, Stored { nr_users: 0, is_written, shadow });
    }

    pub(crate) fn get(&mut self, slot: SwapSlot) {
        if let Some(stored) = self.used.get_mut(&slot) {
            stored.nr_users += 1;
        }
    }

    /// One user less; the page, and whether it was the last.
    fn put(&mut self, slot: SwapSlot) -> Option<(Stored, bool)> {
        let stored = self.used.get_mut(&slot)?;
        stored.nr_users = stored.nr_users.saturating_sub(1);
        let stored = *stored;
        if stored.nr_users == 0 {
            self.used.remove(&slot);
            self.free.free(Pfn(slot.0), Order::ZERO);
        }
        Some((stored, stored.nr_users == 0))
    }

    /// Whether each slot has the users that `count` says.
    pub(crate) fn validate(&self, count: &BTreeMap<SwapSlot, u64>) -> bool {
        self.used.iter().map(|(&slot, stored)| (slot, stored.nr_users)).eq(count.clone())
            && self.nr_used() == self.used.len() as u64
            && self.free.validate().is_ok()
    }
}

impl<R: Ram> Core<R> {
    /// One user of a slot less; what is known of the page.
    pub(crate) fn put_slot(&mut self, slot: SwapSlot) -> Option<Stored> {
        let (stored, is_last) = self.pressure.swap.as_mut()?.put(slot)?;
        if is_last {
            self.ram.swap_free(slot.0);
        }
        Some(stored)
    }

    /// Frees those of the `nr` slots from `first` on that nobody uses: pages that no process
    /// mapped.
    pub(crate) fn drop_unused_slots(&mut self, first: SwapSlot, nr: u64) {
        for slot in (0..nr).map(|by| first.plus(by)) {
            let Some(swap) = &mut self.pressure.swap else { return };
            if swap.used.get(&slot).is_some_and(|stored| stored.nr_users == 0) {
                let _ = self.put_slot(slot);
            }
        }
    }

    /// Pages `[first, end)` of a file are gone: so is what was remembered of them.
    pub(crate) fn forget_evicted(&mut self, file: MappingId, PageRange { first, end }: PageRange) {
        if first >= end {
            return;
        }
        let _ = self.with_shadows(file, |shadows| shadows.take(PageRange { first, end }));
        self.work.add_cheap(self.mapping(file).swapped.len() as u64);
        let mapping = self.mapping_mut(file);
        let range = PageIndex(first)..PageIndex(end);
        let slots: Vec<SwapSlot> =
            mapping.swapped.range(range.clone()).map(|(_, &slot)| slot).collect();
        mapping.swapped.retain(|index, _| !range.contains(index));
        for slot in slots {
            let _ = self.put_slot(slot);
        }
    }

    /// Pages of a new folio of a file: what swap space and shadows held of them.
    pub(crate) fn back_from_swap(&mut self, file: MappingId, id: FolioId, index: PageIndex) {
        let end = index.plus(self.folios.get(id).nr_pages());
        let mut shadow = self
            .with_shadows(file, |shadows| shadows.take(PageRange { first: index.0, end: end.0 }));
        let mapping = self.mapping_mut(file);
        let nr_swapped = mapping.swapped.len() as u64;
        if nr_swapped > 0 {
            let slots: Vec<SwapSlot> =
                mapping.swapped.range(index..end).map(|(_, &slot)| slot).collect();
            mapping.swapped.retain(|at, _| *at < index || *at >= end);
            self.work.add_cheap(nr_swapped);
            self.counters.reclaim.pswpin += slots.len() as u64;
            for slot in slots {
                shadow = self.put_slot(slot).map(|stored| stored.shadow).or(shadow);
            }
        }
        if let Some(shadow) = shadow {
            self.refault(id, shadow);
        }
    }
}
