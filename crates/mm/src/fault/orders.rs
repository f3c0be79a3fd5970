//! Folio sizes that a fault on anonymous memory may try (docs/behaviour D.1, D.2.3 .. D.2.5).
//!
//! Answers to: `alloc_anon_folio`, `thp_vma_suitable_orders`.

use super::Fault;
use crate::core::groups::ChargeEffort;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::ram::Work;
use crate::rules::anon::{Effort, Orders};
use crate::units::{Order, PageIndex, Vpn};

impl Memory {
    pub(super) fn suitable_orders(&self, fault: &Fault) -> Orders {
        let vma = &fault.vma;
        // A userfaultfd handler must see each missing page (D.2.3).
        if vma.is_armed {
            return Orders::NONE;
        }
        let enabled = self.rules.anon.enabled(self.rules.page, vma.advice.huge);
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
        let id = self.alloc_anon(order, effort, PageIndex(fault.vma.index_of(first)))?;
        let pfn = self.core.folios.get(id).pfn;
        let fault_page = fault.vpn.0 - first.0;
        let plan = self.rules.clear.plan(self.arch, self.rules.page, order, fault_page);
        self.core.ram.clear_folio(pfn, &plan);
        self.core.stretches.plan(Work::Clear, &plan);
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
