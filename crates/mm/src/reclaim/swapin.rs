//! Swapped pages of processes: where they are, and the fault that brings one back.
//!
//! Owns the entries that stand in place of a page. They are kept beside the page table, which is
//! asked far more often; what holds an entry here is none there.

use std::collections::BTreeMap;

use super::swap::Slot;
use crate::fault::{Fault, FaultError, Outcome};
use crate::folio::FolioId;
use crate::mapped::Level;
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, PteFlags};
use crate::ram::Ram;
use crate::space::{MmId, Space};
use crate::units::{Order, PageIndex, Vpn};

/// Slots by page.
#[derive(Clone, Debug, Default)]
pub struct Swapped {
    slots: BTreeMap<Vpn, Slot>,
}

impl Swapped {
    /// The slot that holds a page.
    #[must_use]
    pub fn get(&self, vpn: Vpn) -> Option<Slot> {
        self.slots.get(&vpn).copied()
    }

    /// The first swapped page among the `nr` from `vpn`, and its slot.
    #[must_use]
    pub fn first_in(&self, vpn: Vpn, nr: u64) -> Option<(Vpn, Slot)> {
        self.slots.range(vpn..vpn.plus(nr)).next().map(|(&vpn, &slot)| (vpn, slot))
    }

    /// Swapped pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All pages with their slots, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Vpn, Slot)> + '_ {
        self.slots.iter().map(|(&vpn, &slot)| (vpn, slot))
    }

    pub(super) fn insert(&mut self, vpn: Vpn, slot: Slot) {
        self.slots.insert(vpn, slot);
    }

    /// Takes the entries of `nr` pages out.
    fn take(&mut self, vpn: Vpn, nr: u64) -> BTreeMap<Vpn, Slot> {
        if self.slots.is_empty() {
            return BTreeMap::new();
        }
        let mut taken = self.slots.split_off(&vpn);
        self.slots.append(&mut taken.split_off(&vpn.plus(nr)));
        taken
    }
}

impl Space {
    /// Whether none of the `nr` pages from `vpn` is mapped or swapped.
    pub(crate) fn is_none(&self, vpn: Vpn, nr: u64) -> bool {
        self.first_set_in(vpn, nr).is_none()
    }

    /// The first mapped or swapped page among the `nr` from `vpn`.
    pub(crate) fn first_set_in(&self, vpn: Vpn, nr: u64) -> Option<Vpn> {
        let mapped = self.table.first_set_in(vpn, nr);
        if self.swapped.is_empty() {
            return mapped;
        }
        let swapped = self.swapped.first_in(vpn, nr).map(|(vpn, _)| vpn);
        mapped.into_iter().chain(swapped).min()
    }
}

impl<R: Ram> Memory<R> {
    /// The page of the fault is in swap space: it is read into a base page of the process's own.
    pub(crate) fn swap_in(&mut self, fault: &Fault, slot: Slot) -> Result<Outcome, FaultError> {
        let index = PageIndex(fault.vma.index_of(fault.vpn));
        let Some(id) = self.cache.alloc_anon(Order::ZERO, index) else {
            return Err(FaultError::OutOfMemory(fault.vpn.0 << self.rules.page.shift()));
        };
        self.read_slot(id, slot);
        self.space_mut(fault.mm).swapped.slots.remove(&fault.vpn);
        self.cache.map_new_anon(id, fault.mm, Level::Ptes);
        let pfn = self.cache.folios.get(id).pfn;
        let mut flags = PteFlags::YOUNG;
        if fault.vma.prot.can_write {
            flags |= PteFlags::WRITABLE;
        }
        if fault.access == crate::fault::Access::Write {
            flags |= PteFlags::DIRTY;
        }
        let batch = Batch { vpn: fault.vpn, pfn, nr: 1, flags };
        self.space_mut(fault.mm).table.map_ptes(batch, FolioSpan::single(pfn));
        self.cache.counters.reclaim.pswpin += 1;
        self.cache.counters.pgmajfault += 1;
        Ok(Outcome::Major)
    }

    /// Fills a new page from a slot, and lets go of the slot.
    fn read_slot(&mut self, id: FolioId, slot: Slot) {
        let pfn = self.cache.folios.get(id).pfn;
        self.cache.ram.swap_in(slot.0, pfn);
        let Some(stored) = self.cache.put_slot(slot) else {
            unreachable!("I16: a swapped page names a slot in use")
        };
        self.cache.folios.forget_writes(pfn, 1);
        if stored.is_written {
            self.cache.folios.note_write(pfn);
        }
        self.cache.refault(id, stored.shadow);
    }

    /// Swapped pages of a range are gone.
    pub(crate) fn drop_swapped(&mut self, mm: MmId, start: Vpn, nr_pages: u64) {
        let taken = self.space_mut(mm).swapped.take(start, nr_pages);
        for slot in taken.into_values() {
            let _ = self.cache.put_slot(slot);
        }
    }

    /// Swapped pages of a range move with it.
    pub(crate) fn move_swapped(&mut self, mm: MmId, (from, to): (Vpn, Vpn), nr_pages: u64) {
        let swapped = &mut self.space_mut(mm).swapped;
        for (vpn, slot) in swapped.take(from, nr_pages) {
            swapped.insert(to.plus(vpn.0 - from.0), slot);
        }
    }

    /// A child shares the swapped pages of an area.
    pub(crate) fn fork_swapped(&mut self, parent: MmId, child: MmId, (start, end): (Vpn, Vpn)) {
        let slots: Vec<(Vpn, Slot)> =
            self.space(parent).swapped.slots.range(start..end).map(|(&v, &s)| (v, s)).collect();
        for (vpn, slot) in slots {
            if let Some(swap) = &mut self.cache.reclaim.swap {
                swap.get(slot);
            }
            self.space_mut(child).swapped.insert(vpn, slot);
        }
    }
}
