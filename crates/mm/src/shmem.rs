//! Shared memory: the folio of an absent page (docs/behaviour Q.2).
//!
//! Corresponds to: `shmem_get_folio_gfp`, `shmem_alloc_and_add_folio`, `shmem_suitable_orders`.
//!
//! ```text
//!   allowed orders (rules/shmem.rs)
//!     --> fits the area, with the file's offset        faults, from 6.11
//!     --> no page of it is cached or in swap space     from the largest order down
//!     --> free and charged                             else the next smaller order
//!     --> otherwise one base page
//! ```
//!
//! Owns the choice and the allocation. `fault/file.rs` maps the folio, `io/` writes to it.

use crate::core::NewFolio;
use crate::core::groups::ChargeEffort;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::policy::{Context, Point};
use crate::ram::{Stretch, StretchWork};
use crate::rules::anon::{Effort, Orders};
use crate::rules::shmem::{ShmemArea, ShmemPage, ShmemUser};
use crate::units::{MappingId, MmId, Order, PageIndex, Vpn};
use crate::vma::{HugeAdvice, MappedShmem, Vma};

/// What needs an absent page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need<'a> {
    /// A fault of a process.
    Fault { mm: MmId, vma: &'a Vma, vpn: Vpn },
    /// A write call or fallocate that continues to this byte of the file.
    Call { end: u64 },
}

impl Memory {
    /// Allocates the absent page `index` of shared memory in the largest folio that it may have.
    /// `None` if not even a base page is available.
    pub(crate) fn insert_shmem(
        &mut self,
        file: MappingId,
        index: PageIndex,
        need: Need<'_>,
    ) -> Option<FolioId> {
        let orders = self.shmem_orders(file, index, need);
        let orders = self.decided_shmem(file, index, (orders, need));
        let is_swapped = self.core.mapping(file).swapped.contains_key(&index);
        let large = if orders.is_empty() {
            None
        } else {
            self.insert_large_shmem(file, index, (orders, need))
        };
        let base = NewFolio::new(file, index, Order::ZERO);
        let id = large.or_else(|| {
            let route = self.shmem_route(file, index, Order::ZERO);
            self.on_route(route, |memory| memory.insert(base, ChargeEffort::Full).ok())
        })?;
        // A fault, or the end of a write, zeroes what was not written.
        self.core.folios.get_mut(id).is_uptodate = is_swapped;
        Some(id)
    }

    /// Lets the policy choose. Differs: no kernel has this ([`crate::policy`]).
    fn decided_shmem(
        &mut self,
        file: MappingId,
        index: PageIndex,
        (orders, need): (Orders, Need<'_>),
    ) -> Orders {
        if orders.is_empty() || !self.policy_handles(Point::ShmemOrder) {
            return orders;
        }
        let of_need = match need {
            Need::Fault { mm, vma, vpn } => Context { page: vpn.0, ..self.context_of(mm, vma) },
            Need::Call { .. } => self.context(self.core.groups.current()),
        };
        let file_pages = self.core.mapping(file).nr_file_pages(self.rules.page);
        let file = u64::from(file.0) + 1;
        let context = Context { file, index: index.0, file_pages, ..of_need };
        self.decided_among(Point::ShmemOrder, &context, orders)
    }

    /// Zeroes a folio that is not up to date (Q.2.4).
    pub(crate) fn zero_shmem(&mut self, id: FolioId) {
        let folio = self.core.folios.get_mut(id);
        if std::mem::replace(&mut folio.is_uptodate, true) {
            return;
        }
        let (pfn, nr_pages) = (folio.pfn, folio.nr_pages());
        self.core.ram.zero(pfn, nr_pages);
        let mut stretch = Stretch::default();
        stretch.add(StretchWork::Clear, nr_pages, 1);
        self.core.stretches.stretch(stretch);
    }

    fn insert_large_shmem(
        &mut self,
        file: MappingId,
        index: PageIndex,
        (orders, need): (Orders, Need<'_>),
    ) -> Option<FolioId> {
        let advice = match need {
            Need::Fault { vma, .. } => vma.advice.huge,
            Need::Call { .. } => HugeAdvice::Default,
        };
        let effort = self.rules.anon.effort(advice);
        let pmd = self.rules.page.pmd_order();
        for order in orders.descending() {
            let first = PageIndex(order.round_down(index.0));
            let inserted = self.insert_on_route(NewFolio::new(file, first, order), effort);
            let counters = &mut self.core.counters;
            if let Some(id) = inserted {
                counters.size_mut(order).shmem_alloc += 1;
                counters.thp_file_alloc += u64::from(order == pmd);
                return Some(id);
            }
            counters.size_mut(order).shmem_fallback += 1;
            counters.thp_file_fallback += u64::from(order == pmd);
        }
        None
    }

    fn insert_on_route(&mut self, new: NewFolio, effort: Effort) -> Option<FolioId> {
        let insert = |memory: &mut Self, effort: Effort| {
            let is_ready = memory.prepare_large(new.order, effort);
            is_ready.then(|| memory.insert(new, effort.into())).and_then(Result::ok)
        };
        match self.shmem_route(new.file, new.index, new.order) {
            Some(route) => self.alloc_on_route(route, new.order, effort, insert),
            None => insert(self, effort),
        }
    }

    /// Orders to try: those that the settings allow, from the largest one that fits (Q.2.1, Q.2.3).
    fn shmem_orders(&self, file: MappingId, index: PageIndex, need: Need<'_>) -> Orders {
        if self.rules.shmem.has_only_base_pages() {
            return Orders::NONE;
        }
        let mapping = self.core.mapping(file);
        let user = match need {
            Need::Call { end } => ShmemUser::Call { end },
            Need::Fault { mm, vma, .. } => ShmemUser::Fault {
                advice: self.thp_advice(mm, vma),
                is_unnamed: vma.shmem == MappedShmem::Unnamed,
            },
        };
        let wanted = ShmemPage {
            index,
            size_bytes: mapping.size_bytes,
            is_mounted: mapping.is_mounted(),
            is_large: mapping.orders.is_large(),
            user,
        };
        let max = self.rules.max_pagecache_order().min(self.core.buddy.max_order());
        let orders = self.rules.shmem.orders(wanted, self.rules.page, max);
        let fits = |order: &Order| {
            let fits_area = match need {
                Need::Fault { vma, vpn, .. } if self.rules.shmem.area == ShmemArea::Fits => {
                    fits_area(vma, vpn, *order)
                }
                _ => true,
            };
            fits_area && self.is_absent(file, index, *order)
        };
        let first = orders.descending().find(fits);
        first.map_or(Orders::NONE, |order| orders.below(order).with(order))
    }

    /// Whether no page of the folio around `index` is cached or in swap space (Q.2.3).
    fn is_absent(&self, file: MappingId, index: PageIndex, order: Order) -> bool {
        let mapping = self.core.mapping(file);
        let first = PageIndex(order.round_down(index.0));
        let end = first.plus(order.nr_pages());
        mapping.tree.first_in(first, PageIndex(end.0 - 1)).is_none()
            && mapping.swapped.range(first..end).next().is_none()
    }
}

/// Whether the folio lies in the area, at an address congruent to its offset in the file (Q.2.1).
fn fits_area(vma: &Vma, vpn: Vpn, order: Order) -> bool {
    let first = order.round_down(vpn.0);
    order.is_aligned(vma.index_of(Vpn(first)))
        && vma.start.0 <= first
        && first + order.nr_pages() <= vma.end.0
}
