//! First touches of private anonymous memory (docs/behaviour D.2).
//!
//! Answers to: `do_anonymous_page`.
//!
//! ```text
//!   PMD slot empty, PMD order allowed --> huge: PMD folio or huge zero folio
//!     | no, or none free
//!     v
//!   read --> shared zero page, one PTE
//!   write -> largest enabled, suitable, free order with empty PTEs;
//!            otherwise one base page
//! ```

use super::{Access, Fault, FaultError, Outcome};
use crate::core::mapped::Level;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, PteFlags};
use crate::rules::anon::{Effort, Orders};
use crate::units::{Order, Vpn};

impl Memory {
    pub(super) fn anon_fault(&mut self, fault: &Fault) -> Result<Outcome, FaultError> {
        let orders = self.possible_orders(fault);
        let orders = self.decided_orders(fault, orders);
        let pmd = self.rules.page.pmd_order();
        if orders.contains(pmd) && self.huge_fault(fault) {
            return Ok(Outcome::Minor);
        }
        if fault.access != Access::Write {
            self.map_zero_page(fault);
            return Ok(Outcome::Minor);
        }
        let id = match self.alloc_large(fault, orders.below(pmd)) {
            Some(id) => id,
            None => self.alloc_base_page(fault)?,
        };
        self.map_anon(fault, id);
        self.core.counters.nr_anon_faults += 1;
        Ok(Outcome::Minor)
    }

    /// One PMD entry for a whole slot is cheapest (D.3). Otherwise a load maps the zero page.
    fn possible_orders(&self, fault: &Fault) -> Orders {
        let (orders, pmd) = (self.suitable_orders(fault), self.rules.page.pmd_order());
        let parts = match fault.access {
            Access::Write => self.empty_orders(fault, orders.below(pmd)),
            Access::Read | Access::Exec => Orders::NONE,
        };
        if orders.contains(pmd) && self.is_pmd_empty(fault) { parts.with(pmd) } else { parts }
    }

    fn map_zero_page(&mut self, fault: &Fault) {
        let pfn = self.zero_pfn;
        let flags = PteFlags::YOUNG | PteFlags::SPECIAL;
        let batch = Batch { vpn: fault.vpn, pfn, nr: 1, flags };
        self.space_mut(fault.mm).table.map_ptes(batch, FolioSpan::single(pfn));
        self.core.counters.nr_zero_page += 1;
    }

    pub(super) fn alloc_base_page(&mut self, fault: &Fault) -> Result<FolioId, FaultError> {
        self.alloc_zeroed(fault, Order::ZERO, Effort::None)
            .ok_or_else(|| fault.error(FaultError::OutOfMemory, self.rules.page.shift()))
    }

    pub(super) fn map_anon(&mut self, fault: &Fault, id: FolioId) {
        self.core.map_new_anon(id, fault.mm, Level::Ptes);
        let folio = self.core.folios.get(id);
        let span = folio.span();
        let vpn = Vpn(folio.order.round_down(fault.vpn.0));
        let batch = Batch { vpn, pfn: folio.pfn, nr: folio.nr_pages(), flags: new_flags(fault) };
        self.space_mut(fault.mm).table.map_ptes(batch, span);
        self.mark_anon(fault.mm, fault.vpn);
        if fault.access == Access::Write {
            let pfn = self.space(fault.mm).table.pte(fault.vpn).pfn();
            self.core.folios.note_write(pfn);
        }
    }
}

pub(super) fn new_flags(fault: &Fault) -> PteFlags {
    let writable = if fault.vma.prot.can_write { PteFlags::WRITABLE } else { PteFlags::NONE };
    PteFlags::YOUNG | PteFlags::DIRTY | writable
}
