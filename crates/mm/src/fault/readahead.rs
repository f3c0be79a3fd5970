//! Chooses what a cold fault reads, and computes the window for that choice (docs/behaviour B.4).
//!
//! Corresponds to: `do_sync_mmap_readahead`.
//!
//! The area's preferred size comes first, then the file's control, then the kernel's rules.
//!
//! Differs: no kernel has the orders for executable memory that are proposed for series 000
//! (docs/behaviour K.1.4, [`crate::rules::order`]).

use super::Fault;
use super::decide::{Decided, Planned};
use crate::core::observed::{EntryKind, Observed};
use crate::core::open_file::{MissGate, OpenFile, RaState};
use crate::memory::Memory;
use crate::policy::Point;
use crate::readahead::sync::{self, ReadRequest, prev_index};
use crate::readahead::{Fill, Plan, ReadTarget};
use crate::rules::order::PressureOrder;
use crate::rules::{Exec, ExecMiss, Forced, ForcedGate};
use crate::units::Order;
use crate::vma::{AccessAdvice, HugeAdvice, Vma};

/// Cap of a forced window that does not follow the PMD size (B.4.4, B.4.5).
const FORCED_CAP_BYTES: u64 = 2 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Nothing,
    /// Like a buffered read of a whole window (B.4.1 step 4).
    Sequential,
    /// `MADV_HUGEPAGE`: blocks of this order around the fault (B.4.6).
    Forced(Order),
    /// Text: the one block of this order that contains the fault (B.4.9).
    ExecBlock(Order),
    /// Text: a window forward from that block (B.4.7).
    ExecWindow(Order),
    /// A window around the fault (B.4.8).
    Around,
    /// Text: a window around the fault in whole folios of this order (K.1.4).
    AroundInFolios(Order),
}

impl Memory {
    pub(super) fn sync_step(&mut self, fault: &Fault) {
        let open = fault.open();
        let target = self.fault_target(fault);
        let nr_gated = self.core.counters.nr_gated;
        let choice = self.choose(fault, target);
        let choice = self.with_exec_min(fault, choice);
        let planned = self.plan(fault, choice);
        let mut decided = Decided::Own;
        if self.policy_handles(Point::Window) {
            let is_gated = self.core.counters.nr_gated > nr_gated;
            decided = self.decided_window(fault, planned, is_gated);
        }
        match (decided, planned) {
            (Decided::Nothing, _) | (Decided::Own, None) => {}
            (Decided::Read(plan), _) => self.read(open, target, plan),
            (Decided::Own, Some(Planned { plan, state })) => {
                if choice == Choice::Sequential {
                    let OpenFile { mapping, state, .. } = *self.open_file(open);
                    let (kind, index) = (EntryKind::Sync, fault.index());
                    let nr_pages = state.ra_pages;
                    self.core.observe(Observed::Entry { kind, mapping, index, nr_pages, state });
                }
                self.open_file_mut(open).state = state;
                self.read(open, target, plan);
            }
        }
    }

    fn plan(&self, fault: &Fault, choice: Choice) -> Option<Planned> {
        let mut state = self.open_file(fault.open()).state;
        let plan = match choice {
            Choice::Nothing => return None,
            Choice::Sequential => self.sequential(fault, &mut state),
            Choice::Forced(order) => forced_window(fault, &mut state, order),
            Choice::ExecBlock(order) => exec_block(fault, &mut state, order),
            Choice::ExecWindow(order) => exec_window(fault, &mut state, order),
            Choice::Around => around(fault, &mut state, self.start_order(fault)),
            Choice::AroundInFolios(order) => around_in_folios(fault, &mut state, order),
        };
        Some(Planned { plan, state })
    }

    pub(super) fn fault_target(&self, fault: &Fault) -> ReadTarget {
        let file = self.open_file(fault.open()).mapping;
        let mapping = self.core.mapping(file);
        let vma = &fault.vma;
        let preferred = vma.advice.preferred.filter(|&order| order <= mapping.orders.max);
        let preferred = preferred.or(mapping.control.exec.filter(|_| vma.prot.can_exec));
        let always = mapping.control.always;
        let allowed = preferred.map_or(always, |order| always.with(order));
        ReadTarget { file, allowed, preferred }
    }

    fn start_order(&self, fault: &Fault) -> Option<Order> {
        let of_kernel = self.rules.fault.start_order.order(self.rules.page);
        self.open_file(fault.open()).start_order.or(of_kernel)
    }

    fn sequential(&self, fault: &Fault, state: &mut RaState) -> Plan {
        let index = fault.index();
        let OpenFile { mapping, is_random, .. } = *self.open_file(fault.open());
        let io_pages = self.device(mapping).io_pages;
        let nr_pages = state.ra_pages;
        if is_random {
            // `POSIX_FADV_RANDOM` forces every read, whatever the area's advice is (A.1.4).
            return Plan::chunks(index, nr_pages.min(io_pages.max(nr_pages)));
        }
        let prev_index = prev_index(state, self.rules.page.shift());
        let request = ReadRequest { index, nr_pages, prev_index, io_pages };
        sync::choose(state, &self.core.mapping(mapping).tree, request, &self.rules.readahead)
    }

    /// Tests in the order of B.4.1 .. B.4.5.
    fn choose(&mut self, fault: &Fault, target: ReadTarget) -> Choice {
        let rules = self.rules.fault;
        let vma = &fault.vma;
        let forced = self.forced_order(fault, target);
        // The program requested huge pages: ignore other advice and misses (B.4.1 step 1).
        if let (Some(order), ForcedGate::Ungated) = (forced, rules.forced_gate) {
            return Choice::Forced(order);
        }
        // Text in folios of a size that the TLB can fold, even with readahead off (B.4.9).
        if let Exec::Block { bytes } = rules.exec
            && vma.prot.can_exec
            && target.preferred.is_none()
        {
            let limit = self.rules.max_pagecache_order();
            let order = self.rules.page.order_of_bytes(bytes).min(limit);
            return Choice::ExecBlock(self.exec_order_now(order));
        }
        let of_kernel = self.rules.exec_window_order(self.arch).filter(|_| vma.prot.can_exec);
        let of_kernel = of_kernel.map(|order| self.exec_order_now(order));
        let exec_order = target.preferred.or(of_kernel);
        if forced.is_none() {
            // `MADV_RANDOM`: no readahead, except for text, whose folio size matters (B.4.1 step
            // 2).
            let is_random = vma.advice.access == AccessAdvice::Random && exec_order.is_none();
            if is_random || self.open_file(fault.open()).state.ra_pages == 0 {
                return Choice::Nothing;
            }
            // A sequential reader needs no pages before the fault: read like a read call (step 4).
            if vma.advice.access == AccessAdvice::Sequential {
                return Choice::Sequential;
            }
        }
        let state = &mut self.open_file_mut(fault.open()).state;
        if let (Some(order), Forced::Posted) = (forced, rules.forced) {
            // The posted form stores the order before it checks the counter (B.4.4 b).
            state.order = order;
        }
        // Earlier windows were hardly used, so another would be wasted (step 5).
        if is_gated(vma, rules.exec_miss) && state.count_miss() == MissGate::Closed {
            self.core.counters.nr_gated += 1;
            return Choice::Nothing;
        }
        match (forced, exec_order) {
            (Some(order), _) => Choice::Forced(order),
            (None, Some(order)) => Choice::ExecWindow(order),
            (None, None) => Choice::Around,
        }
    }

    fn forced_order(&self, fault: &Fault, target: ReadTarget) -> Option<Order> {
        if fault.vma.advice.huge != HugeAdvice::Huge {
            return None;
        }
        let page = self.rules.page;
        let file = self.open_file(fault.open()).mapping;
        let max = self.core.mapping(file).orders.max;
        // A PMD folio of large base pages would be 32 MiB or 512 MiB (B.4.5).
        let capped = max.min(page.order_of_bytes(FORCED_CAP_BYTES));
        let fits = page.pmd_order() <= self.rules.max_pagecache_order();
        let order = match self.rules.fault.forced {
            Forced::Pmd => fits.then_some(page.pmd_order()),
            Forced::Posted if fits => Some(page.pmd_order()),
            Forced::Posted => Some(capped),
            Forced::CappedAt2M => (max > Order::ZERO).then_some(capped),
        };
        let order = order?;
        let allowed = target.allowed.up_to(order);
        (allowed > Order::ZERO || order == Order::ZERO).then_some(allowed)
    }

    fn with_exec_min(&self, fault: &Fault, choice: Choice) -> Choice {
        let orders = self.core.mapping(self.open_file(fault.open()).mapping).orders;
        let min = self.rules.order.exec_min(self.rules.page, orders.max);
        if min == Order::ZERO || !fault.vma.prot.can_exec {
            return choice;
        }
        match choice {
            Choice::Nothing => Choice::ExecBlock(min),
            Choice::Around => Choice::AroundInFolios(min),
            Choice::ExecBlock(order) => Choice::ExecBlock(order.max(min)),
            Choice::ExecWindow(order) => Choice::ExecWindow(order.max(min)),
            Choice::Forced(_) | Choice::Sequential | Choice::AroundInFolios(_) => choice,
        }
    }

    fn exec_order_now(&self, order: Order) -> Order {
        if self.rules.order.pressure == PressureOrder::Ignored {
            return order;
        }
        let low = self.core.pressure.watermarks.low;
        let is_free = |&order: &Order| self.core.buddy.check_watermark(order, low).is_ok();
        let orders = (1..=order.get()).rev().map(Order::new);
        orders.filter(is_free).max().unwrap_or(Order::ZERO)
    }
}

fn is_gated(vma: &Vma, exec_miss: ExecMiss) -> bool {
    let is_exempt = vma.prot.can_exec && exec_miss != ExecMiss::Counted;
    vma.advice.access != AccessAdvice::Sequential && !is_exempt
}

fn around(fault: &Fault, state: &mut RaState, start_order: Option<Order>) -> Plan {
    state.start = fault.index().saturating_sub(state.ra_pages / 2);
    state.size = state.ra_pages;
    state.async_size = state.ra_pages / 4;
    let fill = start_order.map_or(Fill::Raise(Order::ZERO), Fill::Exactly);
    state.order = start_order.unwrap_or(Order::ZERO);
    Plan::window(state, state.start, fill)
}

/// The state's start is not updated (B.4.6).
fn forced_window(fault: &Fault, state: &mut RaState, order: Order) -> Plan {
    let nr_pages = order.nr_pages();
    let is_random = fault.vma.advice.access == AccessAdvice::Random;
    // Read the second block ahead, unless the caller advised `MADV_RANDOM`.
    state.size = if is_random { nr_pages } else { 2 * nr_pages };
    state.async_size = nr_pages;
    state.order = order;
    Plan::window(state, order.round_down(fault.index()), Fill::Exactly(order))
}

/// The state's start is not updated (B.4.9).
fn exec_block(fault: &Fault, state: &mut RaState, order: Order) -> Plan {
    state.size = order.nr_pages();
    state.async_size = 0;
    state.order = order;
    Plan::window(state, order.round_down(fault.index()), Fill::Raise(order))
}

fn exec_window(fault: &Fault, state: &mut RaState, order: Order) -> Plan {
    let (first, end) = fault.vma.file_range();
    // Forward only and inside the area: padding between segments is never executed (B.4.7).
    let start = order.round_down(fault.index()).max(first);
    state.start = start;
    state.size = order.round_up(start + state.ra_pages).min(end) - start;
    state.async_size = 0;
    state.order = order;
    Plan::window(state, start, Fill::Exactly(order))
}

fn around_in_folios(fault: &Fault, state: &mut RaState, order: Order) -> Plan {
    let first = fault.index().saturating_sub(state.ra_pages / 2);
    state.start = order.round_down(first);
    state.size = order.round_up(first + state.ra_pages.max(1)) - state.start;
    state.async_size = state.ra_pages / 4;
    state.order = order;
    Plan::window(state, state.start, Fill::Exactly(order))
}
