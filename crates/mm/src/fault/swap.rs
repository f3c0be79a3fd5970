//! The fault that swaps pages in (docs/behaviour P.5).
//!
//! Corresponds to: `do_swap_page`, `alloc_swap_folio`, `should_try_to_free_swap`.
//!
//! ```text
//!   in the swap cache ------------------------------------------> map it
//!   one user, device reads within the call (to 6.19) --> own folio, never in the cache
//!   device reads within the call (7.0+) ---------------> folio into the cache
//!   else -----------------------------------------------> window into the cache (`swap_ahead`)
//! ```
//!
//! Invariants:
//! - I1: while a folio is being mapped, the fault holds a reference, so freeing its slots does not
//!   free the folio.

use super::cow::Hold;
use super::{Access, Fault, FaultError, FaultOutcome};
use crate::core::mapped::Level;
use crate::core::space::SwapEntry;
use crate::folio::frames::Flag;
use crate::folio::{Content, FolioId};
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, PteFlags};
use crate::route::Place;
use crate::rules::anon::{Effort, Orders};
use crate::rules::reclaim::{FaultDrains, StoreFrees, SwapDevice, SwapIn};
use crate::rules::zswap::ZswapLoad;
use crate::units::{Order, PageIndex, Pfn, SwapSlot, Vpn};

#[derive(Clone, Copy)]
struct SwapRun {
    first: Vpn,
    nr: u64,
    pfn: Pfn,
    entry: SwapEntry,
}

impl Memory {
    pub(super) fn swap_fault(
        &mut self,
        fault: &Fault,
        slot: SwapSlot,
    ) -> Result<FaultOutcome, FaultError> {
        let (outcome, is_own) = self.swap_in(fault, slot)?;
        if fault.access == Access::Write && !is_own {
            self.write_protect_fault(fault)?;
        } else {
            self.core.counters.nr_swap_in += 1;
        }
        Ok(outcome)
    }

    /// Reclaim unmapped the page while the fault allocated a copy.
    pub(super) fn swap_fault_again(
        &mut self,
        fault: &Fault,
        slot: SwapSlot,
    ) -> Result<FaultOutcome, FaultError> {
        self.core.counters.pgfault += 1;
        let (outcome, is_own) = self.swap_in(fault, slot)?;
        if is_own {
            return Ok(outcome);
        }
        self.write_protect_fault_holding(fault, Hold::Lock)
    }

    pub(crate) fn swap_in(
        &mut self,
        fault: &Fault,
        slot: SwapSlot,
    ) -> Result<(FaultOutcome, bool), FaultError> {
        let (id, outcome) = if let Some(id) = self.core.cached_in(slot) {
            self.note_ahead_used(fault, id);
            (id, FaultOutcome::Minor)
        } else {
            self.core.counters.pgmajfault += 1;
            let nr_read = self.core.counters.reclaim.pswpin;
            let id = self.read_from_swap(fault, slot)?;
            let counters = &mut self.core.counters.reclaim;
            counters.nr_swap_waits += u64::from(counters.pswpin > nr_read);
            (id, FaultOutcome::Major)
        };
        self.core.folios.get_mut(id).refs += 1;
        let is_own = self.map_swapped(fault, id);
        self.core.put(id, 1);
        Ok((outcome, is_own))
    }

    fn read_from_swap(&mut self, fault: &Fault, slot: SwapSlot) -> Result<FolioId, FaultError> {
        let rules = &self.rules.reclaim;
        let is_within = rules.swap_device == SwapDevice::Zram;
        let is_cached = rules.swap_in == SwapIn::Cached;
        let nr_users = self.core.pressure.swap.as_ref().map_or(0, |swap| swap.nr_users(slot));
        if !is_within || !is_cached && nr_users > 1 {
            return self.swap_in_ahead(fault, slot);
        }
        let orders = self.swapped_orders(fault, slot);
        let orders = self.decided_swapin(fault, orders);
        let effort = self.rules.anon.effort(fault.vma.advice.huge);
        for order in orders.descending().chain([Order::ZERO]) {
            let effort = if order == Order::ZERO { Effort::None } else { effort };
            let first = Vpn(order.round_down(fault.vpn.0));
            let place = Place { mm: fault.mm, vma: &fault.vma, first };
            if let Some(id) = self.alloc_swapped(order, effort, place) {
                let first = SwapSlot(slot.0 - (fault.vpn.0 - first.0));
                if is_cached {
                    self.core.add_to_swap_cache(id, first);
                }
                self.read_slots(id, first);
                return Ok(id);
            }
        }
        Err(fault.error(FaultError::OutOfMemory, self.rules.page.shift()))
    }

    fn swapped_orders(&self, fault: &Fault, slot: SwapSlot) -> Orders {
        // P.7.5: zswap may hold a part of the folio.
        if self.rules.reclaim.swap_in == SwapIn::Pages || self.core.pressure.zswap.was_on {
            return Orders::NONE;
        }
        let swapped = &self.space(fault.mm).swapped;
        let Some(entry) = swapped.entry(fault.vpn) else { return Orders::NONE };
        let is_whole = |order: &Order| {
            let first = Vpn(order.round_down(fault.vpn.0));
            let by = fault.vpn.0 - first.0;
            if slot.0 < by || !order.is_aligned(slot.0 - by) {
                return false;
            }
            let entry = SwapEntry { slot: SwapSlot(slot.0 - by), ..entry };
            let mut slots = (0..order.nr_pages()).map(|by| entry.slot.plus(by));
            swapped.is_run(first, order.nr_pages(), entry)
                && slots.all(|slot| self.core.cached_in(slot).is_none())
        };
        let pmd = self.rules.page.pmd_order();
        let orders = self.suitable_orders(fault).below(pmd);
        orders.descending().filter(is_whole).fold(Orders::NONE, Orders::with)
    }

    pub(super) fn alloc_swapped(
        &mut self,
        order: Order,
        effort: Effort,
        place: Place<'_>,
    ) -> Option<FolioId> {
        let index = PageIndex(place.vma.index_of(place.first));
        let route = (!self.core.buddy.is_single()).then(|| self.route_in(place, order));
        self.on_route(route, |memory| {
            let is_ready = memory.may_have_anon(order, effort);
            is_ready.then(|| memory.core.alloc_unlisted(order, index)).flatten()
        })
    }

    pub(super) fn read_slots(&mut self, id: FolioId, first: SwapSlot) {
        self.copy_from_slots(id, first);
        let is_cached = self.core.folios.get(id).slot().is_some();
        for by in 0..self.core.folios.get(id).nr_pages() {
            self.core.count_read(first.plus(by));
            // The compressed copy would only take memory as long as the folio exists.
            let is_exclusive = is_cached && self.rules.zswap.load == ZswapLoad::Exclusive;
            if is_exclusive && self.core.pressure.zswap.get(first.plus(by)).is_some() {
                self.core.take_from_pool(first.plus(by));
                self.core.folios.get_mut(id).is_dirty = true;
            }
        }
        let swap = self.core.pressure.swap.as_ref();
        if let Some(shadow) = swap.and_then(|swap| swap.stored(first)?.shadow) {
            self.core.refault(id, shadow);
        }
        self.core.folios.enlist(id);
    }

    pub(crate) fn copy_from_slots(&mut self, id: FolioId, first: SwapSlot) {
        let folio = self.core.folios.get(id);
        let (pfn, nr) = (folio.pfn, folio.nr_pages());
        for by in 0..nr {
            self.core.ram.swap_in(first.plus(by).0, pfn.plus(by));
            let swap = self.core.pressure.swap.as_ref();
            let stored = swap.and_then(|swap| swap.stored(first.plus(by)));
            let content = stored.map_or(Content::Zero, |stored| stored.content);
            self.core.folios.set_content(pfn.plus(by), content);
        }
    }

    fn swapped_run(&self, fault: &Fault, id: FolioId) -> SwapRun {
        let folio = self.core.folios.get(id);
        let swapped = &self.space(fault.mm).swapped;
        let Some(entry) = swapped.entry(fault.vpn) else {
            unreachable!("I16: the fault's page is swapped")
        };
        let by = match folio.slot() {
            Some(first) => entry.slot.0 - first.0,
            None => fault.vpn.0 - folio.order.round_down(fault.vpn.0),
        };
        let single = SwapRun { first: fault.vpn, nr: 1, pfn: folio.pfn.plus(by), entry };
        let nr = folio.nr_pages();
        let pmd = self.rules.page.pmd_order();
        let start = fault.vma.start.0.max(pmd.round_down(fault.vpn.0));
        let end = fault.vma.end.0.min(pmd.round_down(fault.vpn.0) + pmd.nr_pages());
        let is_inside = fault.vpn.0 >= start + by && fault.vpn.0 - by + nr <= end;
        if nr == 1 || !is_inside {
            return single;
        }
        let first = Vpn(fault.vpn.0 - by);
        let first_entry = SwapEntry { slot: SwapSlot(entry.slot.0 - by), ..entry };
        if swapped.is_run(first, nr, first_entry) {
            SwapRun { first, nr, pfn: folio.pfn, entry: first_entry }
        } else {
            single
        }
    }

    fn map_swapped(&mut self, fault: &Fault, id: FolioId) -> bool {
        let run = self.swapped_run(fault, id);
        let was_cached = self.core.folios.get(id).slot().is_some();
        for by in 0..run.nr {
            self.space_mut(fault.mm).swapped.remove(run.first.plus(by));
            let _ = self.core.put_user(run.entry.slot.plus(by));
        }
        let drains = self.rules.reclaim.fault_drains == FaultDrains::ForStores;
        if drains && was_cached && fault.access == Access::Write {
            // A batch's reference would prevent the reuse (P.2.1).
            if self.core.folios.lru().list_of(id).is_none() {
                self.core.drain_lru();
            }
        }
        if was_cached && self.gives_slots_up(fault, id, run.entry) {
            let _ = self.core.free_swap_cache(id);
        }
        let folio = self.core.folios.get(id);
        let (refs, span, nr_pages) = (folio.refs, folio.span(), folio.nr_pages());
        let is_own = !was_cached || run.entry.is_exclusive || refs == 1;
        if folio.maps() == 0 && run.nr == nr_pages && is_own {
            self.core.map_new_anon(id, fault.mm, Level::Ptes);
        } else {
            self.core.add_ptes(id, fault.mm, run.pfn, run.nr);
            if is_own {
                self.core.folios.frames_mut().set(Flag::Exclusive, run.pfn, run.nr);
            }
        }
        let span = if nr_pages == 1 { FolioSpan::single(run.pfn) } else { span };
        let flags = flags_of(fault, is_own);
        let batch = Batch { vpn: run.first, pfn: run.pfn, nr: run.nr, flags };
        self.space_mut(fault.mm).table.map_ptes(batch, span);
        is_own
    }

    fn gives_slots_up(&self, fault: &Fault, id: FolioId, entry: SwapEntry) -> bool {
        let rules = &self.rules.reclaim;
        let folio = self.core.folios.get(id);
        let is_at_once = rules.swap_device == SwapDevice::Zram && rules.swap_in == SwapIn::Cached;
        // Only the cache and this fault refer to it, so a store can reuse it.
        let is_alone = folio.refs == 1 + folio.cache_refs();
        let is_wanted = rules.store_frees == StoreFrees::Alone || !entry.is_exclusive;
        let is_reused = fault.access == Access::Write && is_alone && is_wanted;
        is_at_once || self.core.is_swap_full() || is_reused
    }
}

fn flags_of(fault: &Fault, is_own: bool) -> PteFlags {
    let mut flags = PteFlags::YOUNG;
    if is_own && fault.vma.prot.can_write {
        flags |= PteFlags::WRITABLE;
    }
    if is_own && fault.access == Access::Write {
        flags |= PteFlags::DIRTY;
    }
    flags
}
