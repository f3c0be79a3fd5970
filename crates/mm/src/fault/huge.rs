//! PMD-sized anonymous folios and the huge zero folio (docs/behaviour D.3, E.3.6).
//!
//! Corresponds to: `do_huge_pmd_anonymous_page`, `mm_get_huge_zero_folio`, `do_huge_pmd_wp_page`,
//! `do_huge_zero_wp_pmd`.
//!
//! Invariants:
//! - I1: the huge zero folio exists while a process uses it; it is not in the folio table, and its
//!   PMD entries are special.

use super::anon::new_flags;
use super::{Access, Fault};
use crate::buddy::MigrateType;
use crate::core::mapped::Level;
use crate::folio::FolioId;
use crate::folio::frames::Flag;
use crate::memory::Memory;
use crate::pgtable::{Leaf, PteFlags};
use crate::ram::{Stretch, StretchWork};
use crate::rules::anon::{HugeZeroWrite, Orders, Underused};
use crate::units::{MmId, Pfn, Vpn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HugeWrite {
    Done,
    Split,
}

impl Memory {
    pub(super) fn huge_fault(&mut self, fault: &Fault) -> bool {
        let pmd = self.rules.page.pmd_order();
        self.khugepaged_enter(fault.mm);
        // Loads share one huge folio of zeroes: no allocation, no clearing (D.3.1).
        if fault.access != Access::Write && self.rules.anon.use_zero_page {
            return self.map_huge_zero(fault);
        }
        let Some(id) = self.alloc_large(fault, Orders::NONE.with(pmd)) else {
            self.core.counters.thp_fault_fallback += 1;
            return false;
        };
        self.map_huge(fault, id);
        self.core.counters.nr_anon_faults += 1;
        true
    }

    fn map_huge(&mut self, fault: &Fault, id: FolioId) {
        self.core.counters.thp_fault_alloc += 1;
        self.core.map_new_anon(id, fault.mm, Level::Pmd);
        let folio = self.core.folios.get_mut(id);
        let pfn = folio.pfn;
        // So the shrinker can find it if it stays nearly empty (G.2.2).
        if self.rules.anon.shrink_underused == Underused::Queued {
            self.core.deferred.push(id, folio);
        }
        let first = Vpn(self.rules.page.pmd_order().round_down(fault.vpn.0));
        self.space_mut(fault.mm).table.map_pmd(first, pfn, new_flags(fault));
        self.mark_anon(fault.mm, fault.vpn);
    }

    fn map_huge_zero(&mut self, fault: &Fault) -> bool {
        let Some(pfn) = self.get_huge_zero(fault.mm) else {
            self.core.counters.thp_fault_fallback += 1;
            return false;
        };
        let first = Vpn(self.rules.page.pmd_order().round_down(fault.vpn.0));
        let flags = PteFlags::YOUNG | PteFlags::SPECIAL;
        self.space_mut(fault.mm).table.map_pmd(first, pfn, flags);
        // The huge fault prepares the area for anonymous pages before it needs any.
        self.mark_anon(fault.mm, fault.vpn);
        self.core.counters.nr_zero_page += 1;
        true
    }

    fn get_huge_zero(&mut self, mm: MmId) -> Option<Pfn> {
        let pfn = if let Some(pfn) = self.huge_zero {
            pfn
        } else {
            let order = self.rules.page.pmd_order();
            let Some(pfn) = self.core.buddy.alloc(order, MigrateType::Movable) else {
                self.core.counters.thp_zero_page_alloc_failed += 1;
                return None;
            };
            self.core.ram.zero(pfn, order.nr_pages());
            let mut stretch = Stretch::default();
            stretch.add(StretchWork::Clear, order.nr_pages(), 1);
            self.core.stretches.stretch(stretch);
            self.core.counters.thp_zero_page_alloc += 1;
            self.huge_zero = Some(pfn);
            pfn
        };
        self.space_mut(mm).uses_huge_zero = true;
        Some(pfn)
    }

    pub(crate) fn shrink_huge_zero(&mut self) -> u64 {
        if self.huge_zero.is_none() || self.spaces().any(|(_, space)| space.uses_huge_zero) {
            return 0;
        }
        let Some(pfn) = self.huge_zero.take() else { return 0 };
        let order = self.rules.page.pmd_order();
        self.core.buddy.free(pfn, order);
        order.nr_pages()
    }

    pub(super) fn huge_write(&mut self, fault: &Fault, leaf: &Leaf) -> HugeWrite {
        if leaf.flags.contains(PteFlags::SPECIAL) {
            return self.huge_zero_write(fault);
        }
        let Some(id) = self.core.folios.of_pfn(leaf.pfn) else {
            unreachable!("I3: an entry maps a folio or is special")
        };
        let is_own = self.core.folios.is_exclusive(leaf.pfn);
        // This entry holds the only reference, so the process owns the whole folio (E.3.6).
        let may_reuse = is_own || self.core.folios.get(id).refs == self.core.pmd_refs(id);
        if self.decided_reuse(fault, id, may_reuse) {
            self.core.folios.frames_mut().set(Flag::Exclusive, leaf.pfn, 1);
            self.core.folios.get_mut(id).is_lazyfree = false;
            self.flush(fault.mm, leaf.first_vpn, leaf.order.nr_pages());
            let flags = PteFlags::YOUNG | PteFlags::WRITABLE | PteFlags::DIRTY;
            self.space_mut(fault.mm).table.add_flags(fault.vpn, flags);
            self.core.counters.nr_wp_reuse += 1;
            return HugeWrite::Done;
        }
        self.split_pmd(fault.mm, fault.vpn);
        HugeWrite::Split
    }

    fn huge_zero_write(&mut self, fault: &Fault) -> HugeWrite {
        let pmd = self.rules.page.pmd_order();
        // Does not check again whether the area may have PMD folios: advice may have changed since.
        if self.rules.anon.huge_zero_write == HugeZeroWrite::Replace {
            if let Some(id) = self.alloc_large(fault, Orders::NONE.with(pmd)) {
                let first = Vpn(pmd.round_down(fault.vpn.0));
                self.flush(fault.mm, first, pmd.nr_pages());
                self.space_mut(fault.mm).table.clear_pmd(fault.vpn);
                self.map_huge(fault, id);
                self.core.counters.nr_anon_faults += 1;
                return HugeWrite::Done;
            }
            self.core.counters.thp_fault_fallback += 1;
        }
        self.split_pmd(fault.mm, fault.vpn);
        HugeWrite::Split
    }
}
