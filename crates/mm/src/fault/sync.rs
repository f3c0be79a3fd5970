//! The sync step of a cold fault: which window to read (docs/behaviour B.4).
//!
//! Corresponds to: `do_sync_mmap_readahead`.

use super::Fault;
use super::choice::{Choice, Sequential};
use super::decide::Decided;
use super::reading::Reading;
use super::window::window_of;
use crate::core::observed::{EntryKind, Observed};
use crate::core::open_file::{MissGate, OpenFile};
use crate::memory::Memory;
use crate::policy::Point;
use crate::readahead::Issue;
use crate::readahead::issue::Run;
use crate::readahead::sync::{self, Request, prev_index};
use crate::rules::{Exec, ExecMiss, Forced, ForcedGate};
use crate::units::Order;
use crate::vma::{AccessAdvice, HugeAdvice, Vma};

/// Cap of a forced window that does not follow the PMD size (B.4.4, B.4.5).
const FORCED_CAP_BYTES: u64 = 2 << 20;

impl Memory {
    pub(super) fn sync_step(&mut self, fault: &Fault) {
        let open = fault.open();
        let reading = self.reading(fault);
        let nr_gated = self.core.counters.nr_gated;
        let choice = self.choose(fault, reading);
        let choice = self.with_exec_min(fault, choice);
        if self.policy_handles(Point::Window) {
            let is_gated = self.core.counters.nr_gated > nr_gated;
            match self.decided_window(fault, &choice, is_gated) {
                Decided::Own => {}
                Decided::Nothing => return,
                Decided::Read(issue) => return self.read(open, reading.target, issue),
            }
        }
        let issue = match choice {
            Choice::Nothing => return,
            Choice::Sequential => match self.chosen_sequential(fault) {
                Some(issue) => issue,
                None => return,
            },
            other => {
                let start_order = self.start_order(fault);
                window_of(fault, &mut self.open_file_mut(open).state, &other, start_order)
            }
        };
        self.read(open, reading.target, issue);
    }

    pub(super) fn start_order(&self, fault: &Fault) -> Option<Order> {
        let of_kernel = self.rules.fault.start_order.order(self.rules.page);
        self.open_file(fault.open()).start_order.or(of_kernel)
    }

    pub(super) fn sequential(&self, fault: &Fault) -> Sequential {
        let (index, io_pages) = (fault.index(), self.rules.io_pages());
        let OpenFile { state, is_random, .. } = *self.open_file(fault.open());
        let nr_pages = state.ra_pages;
        if is_random {
            // `POSIX_FADV_RANDOM` forces every read, whatever the area's advice is (A.1.4).
            let nr_pages = nr_pages.min(io_pages.max(state.ra_pages));
            return Sequential::Forced(Run { start: index, nr_pages });
        }
        let prev_index = prev_index(&state, self.rules.page.shift());
        Sequential::Asked(Request { index, nr_pages, prev_index, io_pages })
    }

    fn chosen_sequential(&mut self, fault: &Fault) -> Option<Issue> {
        let (open, index) = (fault.open(), fault.index());
        let OpenFile { mapping: file, state, .. } = *self.open_file(open);
        let (kind, nr_pages) = (EntryKind::Sync, state.ra_pages);
        self.core.observe(Observed::Entry { kind, mapping: file, index, nr_pages, state });
        match self.sequential(fault) {
            Sequential::Forced(run) => {
                self.read_forced(file, run);
                None
            }
            Sequential::Asked(request) => {
                let ra = self.readahead(open);
                Some(sync::choose(ra.state, ra.tree, request, ra.rules))
            }
        }
    }

    /// Tests in the order of B.4.1 .. B.4.5.
    fn choose(&mut self, fault: &Fault, reading: Reading) -> Choice {
        let rules = self.rules.fault;
        let vma = &fault.vma;
        let forced = self.forced_order(fault, reading);
        // The program requested huge pages: ignore other advice and misses (B.4.1 step 1).
        if let (Some(order), ForcedGate::Ungated) = (forced, rules.forced_gate) {
            return Choice::Forced(order);
        }
        // Text in folios of a size that the TLB can fold, even with readahead off (B.4.9).
        if let Exec::Block { bytes } = rules.exec
            && vma.prot.can_exec
            && reading.order.is_none()
        {
            let limit = self.rules.max_pagecache_order();
            let order = self.rules.page.order_of_bytes(bytes).min(limit);
            return Choice::ExecBlock(self.exec_order_now(order));
        }
        let of_kernel = self.rules.exec_window_order(self.arch).filter(|_| vma.prot.can_exec);
        let of_kernel = of_kernel.map(|order| self.exec_order_now(order));
        let exec_order = reading.order.or(of_kernel);
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

    fn forced_order(&self, fault: &Fault, reading: Reading) -> Option<Order> {
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
        let allowed = reading.target.allowed.up_to(order);
        (allowed > Order::ZERO || order == Order::ZERO).then_some(allowed)
    }
}

fn is_gated(vma: &Vma, exec_miss: ExecMiss) -> bool {
    let is_exempt = vma.prot.can_exec && exec_miss != ExecMiss::Counted;
    vma.advice.access != AccessAdvice::Sequential && !is_exempt
}
