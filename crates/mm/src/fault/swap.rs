//! The fault that brings a swapped page back.
//!
//! Answers to: `do_swap_page`.

use super::{Access, Fault, FaultError, Outcome};
use crate::core::mapped::Level;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, PteFlags};
use crate::ram::Ram;
use crate::rules::anon::Effort;
use crate::units::{Order, PageIndex, SwapSlot};

impl<R: Ram> Memory<R> {
    /// The page of the fault is in swap space: it is read into a base page of the process's own.
    pub(crate) fn swap_in(&mut self, fault: &Fault, slot: SwapSlot) -> Result<Outcome, FaultError> {
        let index = PageIndex(fault.vma.index_of(fault.vpn));
        let Some(id) = self.alloc_anon(Order::ZERO, Effort::None, index) else {
            return Err(FaultError::OutOfMemory(fault.vpn.0 << self.rules.page.shift()));
        };
        self.read_slot(id, slot);
        self.space_mut(fault.mm).swapped.remove(fault.vpn);
        self.core.map_new_anon(id, fault.mm, Level::Ptes);
        let pfn = self.core.folios.get(id).pfn;
        let mut flags = PteFlags::YOUNG;
        if fault.vma.prot.can_write {
            flags |= PteFlags::WRITABLE;
        }
        if fault.access == Access::Write {
            flags |= PteFlags::DIRTY;
        }
        let batch = Batch { vpn: fault.vpn, pfn, nr: 1, flags };
        self.space_mut(fault.mm).table.map_ptes(batch, FolioSpan::single(pfn));
        self.core.counters.reclaim.pswpin += 1;
        self.core.counters.pgmajfault += 1;
        Ok(Outcome::Major)
    }

    /// Fills a new page from a slot, and lets go of the slot.
    fn read_slot(&mut self, id: FolioId, slot: SwapSlot) {
        let pfn = self.core.folios.get(id).pfn;
        self.core.ram.swap_in(slot.0, pfn);
        let Some(stored) = self.core.put_slot(slot) else {
            unreachable!("I16: a swapped page names a slot in use")
        };
        self.core.folios.forget_writes(pfn, 1);
        if stored.is_written {
            self.core.folios.note_write(pfn);
        }
        self.core.refault(id, stored.shadow);
    }
}
