//! The finishing step: how much of the folio a fault maps (docs/behaviour B.6).
//!
//! Corresponds to: `finish_fault`, `do_set_pmd`, `set_pte_range`.

use super::{Access, Fault};
use crate::counters::PmdRefusal;
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::{Batch, PteFlags};
use crate::rules::{EofGuard, Finish, NohugepagePmd};
use crate::units::{PageIndex, Vpn};
use crate::vma::{HugeAdvice, MappedShmem, Prot, Vma};

impl Memory {
    pub(super) fn finish(&mut self, fault: &Fault, entry: Entry) {
        let is_whole = !self.passes_end_of_file(fault, entry);
        if self.try_map_pmd(fault, entry, is_whole) {
            return;
        }
        let flags = match fault.access {
            Access::Write => PteFlags::YOUNG | PteFlags::WRITABLE | PteFlags::DIRTY,
            Access::Read | Access::Exec => PteFlags::YOUNG.with(self.loaded_flags(&fault.vma)),
        };
        let (first, nr) = if is_whole { self.finish_range(fault, entry) } else { (fault.vpn, 1) };
        let folio = self.core.folios.get(entry.folio);
        let pfn = folio.pfn_at(PageIndex(fault.vma.index_of(first)));
        self.map_file(fault.mm, entry.folio, Batch { vpn: first, pfn, nr, flags });
        if fault.access == Access::Write {
            self.store_through_mapping(entry.folio);
        }
    }

    /// Flags of an entry that a load sets (B.6.6).
    pub(super) fn loaded_flags(&self, vma: &Vma) -> PteFlags {
        if self.is_store_unnoticed(vma) { PteFlags::WRITABLE } else { PteFlags::NONE }
    }

    fn passes_end_of_file(&self, fault: &Fault, entry: Entry) -> bool {
        let mapping = self.core.mapping(self.open_file(fault.open()).mapping);
        self.rules.fault.eof_guard == EofGuard::Refuse
            && !mapping.is_shmem
            && entry.end() > mapping.nr_file_pages(self.rules.page)
    }

    /// Returns the whole folio if it fits and is entirely unmapped, otherwise one page (B.6.4).
    fn finish_range(&self, fault: &Fault, entry: Entry) -> (Vpn, u64) {
        let one = (fault.vpn, 1);
        let mapping = self.core.mapping(self.open_file(fault.open()).mapping);
        let maps_whole = match self.rules.fault.finish {
            // Up to 6.16 one page is mapped; shared memory got the whole folio first (B.6.4).
            Finish::OnePte => false,
            Finish::WholeUnnamed => fault.vma.shmem == MappedShmem::Unnamed,
            Finish::WholeShmem => mapping.is_shmem,
            Finish::WholeFolio => true,
        };
        let is_large = maps_whole && entry.order.get() > 0;
        // A folio that leaves the area or its table cannot be mapped by one batch (B.6.4).
        if !is_large || !self.fits_area_and_table(fault, entry) {
            return one;
        }
        let first = Vpn(fault.vpn.0 - (fault.index() - entry.index.0));
        let nr = entry.order.nr_pages();
        // Some PTEs are already set: map only the faulting page (B.6.4).
        if self.space(fault.mm).is_none(first, nr) { (first, nr) } else { one }
    }

    pub(crate) fn try_map_pmd(&mut self, fault: &Fault, entry: Entry, is_whole: bool) -> bool {
        let pmd = self.rules.page.pmd_order();
        if entry.order != pmd {
            return false;
        }
        if let Some(refusal) = self.pmd_refusal(fault, is_whole) {
            self.core.counters.pmd_refused[refusal as usize] += 1;
            return false;
        }
        let first = Vpn(pmd.round_down(fault.vpn.0));
        let pfn = self.core.folios.get(entry.folio).pfn;
        let mut flags = PteFlags::YOUNG.with(self.loaded_flags(&fault.vma));
        if fault.vma.prot == Prot::NONE {
            // Only `MADV_COLLAPSE` gets here, never a fault.
            flags |= PteFlags::NO_ACCESS;
        }
        if fault.access == Access::Write {
            flags |= PteFlags::WRITABLE | PteFlags::DIRTY;
            self.store_through_mapping(entry.folio);
        }
        self.space_mut(fault.mm).table.map_pmd(first, pfn, flags);
        self.core.add_pmd(entry.folio, fault.mm);
        self.core.counters.nr_file_pmds += 1;
        true
    }

    fn pmd_refusal(&self, fault: &Fault, is_whole: bool) -> Option<PmdRefusal> {
        let pmd = self.rules.page.pmd_order();
        let first = pmd.round_down(fault.vpn.0);
        let is_nohuge = self.thp_advice(fault.mm, &fault.vma) == HugeAdvice::Nohuge
            && self.rules.fault.nohugepage_pmd == NohugepagePmd::Refused;
        if !is_whole {
            Some(PmdRefusal::EndOfFile)
        } else if is_nohuge {
            Some(PmdRefusal::Nohugepage)
        } else if !pmd.is_aligned(fault.vma.index_of(Vpn(first))) {
            Some(PmdRefusal::Misaligned)
        } else if first < fault.vma.start.0 || first + pmd.nr_pages() > fault.vma.end.0 {
            Some(PmdRefusal::VmaTooSmall)
        } else if !self.is_pmd_empty(fault) {
            Some(PmdRefusal::TablePresent)
        } else {
            None
        }
    }
}
