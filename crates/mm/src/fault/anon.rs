//! First touches of private anonymous memory (docs/behaviour D.2).
//!
//! Corresponds to: `do_anonymous_page`, `alloc_anon_folio`, `thp_vma_suitable_orders`.
//!
//! ```text
//!   PMD slot empty, PMD order allowed --> huge: PMD folio or huge zero folio
//!     | no, or none free
//!     v
//!   read --> shared zero page, one PTE
//!   write -> largest enabled, suitable, free order with empty PTEs;
//!            otherwise one base page
//! ```
//!
//! Folio sizes that a fault on anonymous memory may try (docs/behaviour D.1, D.2.3 .. D.2.5).

use crate::core::groups::ChargeEffort;
use crate::core::mapped::Level;
use crate::fault::{Access, Fault, FaultError, FaultOutcome};
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, PteFlags};
use crate::ram::StretchWork;
use crate::route::Place;
use crate::rules::anon::{Effort, Orders};
use crate::units::{Order, PageIndex, Vpn};

impl Memory {
    pub(super) fn anon_fault(&mut self, fault: &Fault) -> Result<FaultOutcome, FaultError> {
        let orders = self.possible_orders(fault);
        let orders = self.decided_orders(fault, orders);
        let pmd = self.rules.page.pmd_order();
        if orders.contains(pmd) && self.huge_fault(fault) {
            return Ok(FaultOutcome::Minor);
        }
        if fault.access != Access::Write {
            self.map_zero_page(fault);
            return Ok(FaultOutcome::Minor);
        }
        let id = match self.alloc_large(fault, orders.below(pmd)) {
            Some(id) => id,
            None => self.alloc_base_page(fault)?,
        };
        self.map_anon(fault, id);
        self.core.counters.nr_anon_faults += 1;
        Ok(FaultOutcome::Minor)
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
    }
}

pub(super) fn new_flags(fault: &Fault) -> PteFlags {
    let writable = if fault.vma.prot.can_write { PteFlags::WRITABLE } else { PteFlags::NONE };
    PteFlags::YOUNG | PteFlags::DIRTY | writable
}

impl Memory {
    pub(super) fn suitable_orders(&self, fault: &Fault) -> Orders {
        let vma = &fault.vma;
        // A userfaultfd handler must see each missing page (D.2.3).
        if vma.is_armed {
            return Orders::NONE;
        }
        let enabled = self.rules.anon.enabled(self.rules.page, self.thp_advice(fault.mm, vma));
        let fits = |order: &Order| {
            let first = order.round_down(fault.vpn.0);
            *order <= self.core.buddy.max_order()
                && vma.start.0 <= first
                && first + order.nr_pages() <= vma.end.0
        };
        enabled.descending().filter(fits).fold(Orders::NONE, Orders::with)
    }

    /// Keeps the orders from the first one down whose block has only empty PTEs (D.2.4).
    pub(super) fn empty_orders(&self, fault: &Fault, orders: Orders) -> Orders {
        let space = self.space(fault.mm);
        let is_empty =
            |order: &Order| space.is_none(Vpn(order.round_down(fault.vpn.0)), order.nr_pages());
        orders
            .descending()
            .find(is_empty)
            .map_or(Orders::NONE, |order| orders.below(order).with(order))
    }

    pub(super) fn alloc_large(&mut self, fault: &Fault, orders: Orders) -> Option<FolioId> {
        let effort = self.rules.anon.effort(fault.vma.advice.huge);
        for order in orders.descending() {
            if let Some(id) = self.alloc_zeroed(fault, order, effort) {
                self.core.counters.size_mut(order).anon_fault_alloc += 1;
                return Some(id);
            }
            self.core.counters.size_mut(order).anon_fault_fallback += 1;
        }
        None
    }

    pub(super) fn alloc_zeroed(
        &mut self,
        fault: &Fault,
        order: Order,
        effort: Effort,
    ) -> Option<FolioId> {
        let first = Vpn(order.round_down(fault.vpn.0));
        let id =
            self.alloc_in_area(Place { mm: fault.mm, vma: &fault.vma, first }, order, effort)?;
        let pfn = self.core.folios.get(id).pfn;
        let fault_page = fault.vpn.0 - first.0;
        let plan = self.rules.clear.plan(self.arch, self.rules.page, order, fault_page);
        self.core.ram.clear_folio(pfn, &plan);
        self.core.stretches.plan(StretchWork::Clear, &plan);
        self.core.folios.forget_writes(pfn, order.nr_pages());
        Some(id)
    }

    pub(crate) fn alloc_anon(
        &mut self,
        order: Order,
        effort: Effort,
        index: PageIndex,
    ) -> Option<FolioId> {
        if !self.may_have_anon(order, effort) {
            return None;
        }
        self.core.alloc_anon(order, index)
    }

    pub(super) fn may_have_anon(&mut self, order: Order, effort: Effort) -> bool {
        if order > Order::ZERO && !self.prepare_large(order, effort) {
            return false;
        }
        let charge = if order == Order::ZERO { ChargeEffort::Full } else { effort.into() };
        self.charge(order.nr_pages(), charge)
    }
}
