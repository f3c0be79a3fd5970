//! Observes a running cell for pictures and for waits on reads.
//!
//! Owns when these observers see a touch, a call or a collapse. They never influence the memory
//! manager or a TLB. Without pictures, their only cost is one test.

pub(crate) mod causes;
pub(crate) mod charges;
pub mod detail;
pub mod fault_times;
pub(crate) mod keeper;
pub mod programs;
pub(crate) mod reads;
pub mod regions;
pub mod requested;
pub mod sizes;
pub mod statistics;
pub mod timeline;

use largefolio_mm::folio::Owner;
use largefolio_mm::units::{MmId, Order, Pfn, Vpn};
use largefolio_trace::{Event, Op};

use crate::replay::cell::Cell;
use crate::replay::hardware::{HardwareThread, Reference, Slot, walk_of};
use crate::replay::observers::causes::FaultMark;
use crate::replay::observers::detail::{Detail, Origin};
use crate::replay::observers::fault_times::{FaultStart, Seen};
use crate::replay::observers::keeper::Counted;
use crate::replay::observers::reads::{Pages, Wait, requests};
use crate::replay::observers::regions::CountedWalk;
use crate::tlb;
use crate::tlb::curve::Then;
use crate::tlb::{Lookup, Side, Walk};

impl Cell {
    pub(crate) fn before_touch(&self) -> Option<FaultMark> {
        self.pictures.is_some().then(|| FaultMark::of(self.memory.counters()))
    }

    /// Handles a touch that found a page: records its folio's cause and waits for its reads.
    pub(crate) fn watch_touch(
        &mut self,
        mm: MmId,
        kind: Reference,
        pfn: Pfn,
        before: Option<FaultMark>,
    ) {
        if let Some(before) = before {
            self.note_fault(mm, pfn, before);
        }
        self.settle(Wait::AtOnce, Origin::of_fault(kind.side, kind.tlb == tlb::Access::Write));
        if self.counted.reads.is_idle() {
            return;
        }
        if let Some((Owner::File { mapping, index }, order)) = self.memory.owner_of(pfn) {
            let references = self.references();
            let pages = Pages { file: mapping, first: index.0, end: index.0 + order.nr_pages() };
            self.counted.reads.need(pages, references);
        }
    }

    /// Submits the reads of the first program's execve.
    pub(crate) fn watch_start(&mut self) {
        self.settle(Wait::AtOnce, Origin::of_call(Op::Execve));
    }

    /// Records a call's collapses and submits its reads. A read call also waits for its pages.
    pub(crate) fn watch_call(&mut self, event: &Event) {
        if matches!(event.op, Op::Madvise | Op::Collapse) {
            self.note_collapsed(Origin::Collapse);
        }
        self.settle_call(event);
        self.count_pictures();
    }

    pub(crate) fn watch_khugepaged(&mut self) {
        self.note_collapsed(Origin::Khugepaged);
    }

    pub(crate) fn count_pictures(&mut self) {
        let Some(keeper) = &mut self.pictures else { return };
        keeper.flushed.clear();
        let now = Counted::of(self.memory.counters());
        if keeper.has_counted(now) {
            return;
        }
        let (references, page_bytes) = (self.references(), self.page().bytes());
        if let Some(keeper) = &mut self.pictures {
            keeper.count(now, references, page_bytes);
        }
    }

    pub(crate) fn restart_pictures(&mut self) {
        if let Some(keeper) = &mut self.pictures {
            keeper.restart(Counted::of(&self.counted.base.counters));
        }
        self.restart_counts();
    }

    /// Drops the times of faults and reads before the recording, but keeps their effects.
    pub(crate) fn begin_pictures(&mut self) {
        let references = self.hardware.nr_references;
        if let Some(keeper) = &mut self.pictures {
            keeper.begin(Counted::of(&self.counted.base.counters), references);
        }
        self.restart_counts();
    }

    fn restart_counts(&mut self) {
        if let Some(regions) = &mut self.regions {
            regions.restart();
        }
        if let Some(work) = &mut self.fault_work {
            work.restart();
        }
    }

    pub(crate) fn count_region(&mut self, slot: Slot, addr: u64, side: Side, is_fault: bool) {
        let Some(regions) = &mut self.regions else { return };
        let HardwareThread { thread, program, space, .. } = self.hardware[slot];
        let walk = CountedWalk { thread, program, addr, side, is_fault };
        regions.count(walk, &self.program.spaces[space]);
    }

    pub(crate) fn before_fault(&self) -> Option<Box<FaultStart>> {
        let start = || FaultStart { mark: self.mark(), reads: self.counted.reads.counts() };
        self.fault_work.is_some().then(|| Box::new(start()))
    }

    /// Counts the work since `start`, if there was any.
    pub(crate) fn count_fault(&mut self, slot: Slot, addr: u64, start: Option<Box<FaultStart>>) {
        let reads = self.counted.reads.counts();
        let rules = self.memory.rules();
        let Some(events) = start.and_then(|it| it.work_until(&self.mark(), &reads, rules)) else {
            return;
        };
        let HardwareThread { program, space, .. } = self.hardware[slot];
        let references = self.hardware.nr_references;
        let seen = Seen::at((program, &self.program.spaces[space]), addr, references);
        if let Some(work) = &mut self.fault_work {
            work.count(events, seen);
        }
    }

    pub(crate) fn take_detail(&mut self) -> Option<Detail> {
        self.count_pictures();
        let keeper = self.pictures.take()?;
        let curve = keeper.measured.curve(&self.spec.machine.tlb, self.page());
        let references = self.hardware.nr_references;
        Some(keeper.finish(&self.memory, &self.program.files.mappings(), curve, references))
    }

    fn references(&self) -> u64 {
        self.count_steps(1);
        self.hardware.nr_references
    }

    fn note_fault(&mut self, mm: MmId, pfn: Pfn, before: FaultMark) {
        let now = FaultMark::of(self.memory.counters());
        if now == before {
            return;
        }
        if let (Some(origin), Some((Owner::Anon { .. }, order)), Some(keeper)) =
            (before.origin(&now), self.memory.owner_of(pfn), &mut self.pictures)
        {
            keeper.causes.note(pfn, order, origin, mm);
        }
    }

    /// Records the folios that khugepaged or `MADV_COLLAPSE` created in the flushed ranges.
    fn note_collapsed(&mut self, origin: Origin) {
        let Some(keeper) = &mut self.pictures else { return };
        for flush in std::mem::take(&mut keeper.flushed) {
            let Some(leaf) = self.memory.space(flush.mm).table.leaf(flush.first) else { continue };
            let pfn = leaf.pfn_of(flush.first);
            if let Some((Owner::Anon { .. }, order)) = self.memory.owner_of(pfn)
                && order > Order::ZERO
                && order.nr_pages() == flush.nr_pages
                && order.round_down(pfn.0) == pfn.0
            {
                keeper.causes.note(pfn, order, origin, flush.mm);
            }
        }
    }

    fn settle_call(&mut self, event: &Event) {
        let wait = if event.op == Op::Fadvise { Wait::WhenNeeded } else { Wait::AtOnce };
        self.settle(wait, Origin::of_call(event.op));
        let (Op::Pread, Some(file)) = (event.op, event.file) else { return };
        if self.counted.reads.is_idle() || event.len == 0 {
            return;
        }
        let shift = self.page().shift();
        let last = event.pos.saturating_add(event.len - 1);
        let (file, references) = (self.program.files[file].mapping, self.references());
        let pages = Pages { file, first: event.pos >> shift, end: (last >> shift) + 1 };
        self.counted.reads.need(pages, references);
    }

    /// Submits the reads since the last call to the device. `cause` started them.
    fn settle(&mut self, wait: Wait, cause: Origin) {
        let observed = self.change(largefolio_mm::memory::Memory::take_observed);
        if observed.is_empty() {
            return;
        }
        if let Some(keeper) = &mut self.pictures {
            keeper.observe(&observed, cause);
        }
        let (shift, references) = (self.page().shift(), self.references());
        for request in requests(&observed, wait) {
            self.counted.reads.submit(&request, request.nr_pages << shift, references);
        }
    }

    pub(crate) fn fill_stack(&mut self, slot: Slot, side: Side, walk: &Walk) {
        let cpu = self.hardware.cpu_mut(slot);
        let walk = Walk { vpn: cpu.tlb.tagged(walk.vpn), ..*walk };
        let walked = cpu.tlb.coalescing().entry(&walk);
        if let (Some(stacks), Some(keeper)) = (&mut cpu.stacks, &mut self.pictures) {
            stacks.of_mut(side).fill(&walked);
            keeper.measured.orders[side as usize] |= 1 << walked.order.get();
        }
    }

    /// Measures a reference that the top entry of its stack does not serve. `found` is the TLB's
    /// result; if it needs a walk, that walk fills the stack too.
    #[inline(never)]
    pub(crate) fn measure(&mut self, slot: Slot, kind: Reference, vpn: Vpn, lookup: Lookup) {
        let space = self.hardware[slot].space;
        let cpu = self.hardware.cpu_mut(slot);
        let (Some(stacks), Some(keeper)) = (&mut cpu.stacks, &mut self.pictures) else { return };
        let then = if lookup.needs_walk() { Then::Fill } else { Then::Use };
        let measured = stacks.of_mut(kind.side).lookup(cpu.tlb.tagged(vpn), kind.tlb, then);
        keeper.measured.distances[kind.side as usize].count(measured);
        if !measured.needs_walk() || lookup.needs_walk() {
            return;
        }
        let table = &self.memory.space(self.program.spaces[space].mm).table;
        let coalescing = cpu.tlb.coalescing();
        if let Some(leaf) = table.leaf(vpn) {
            let walk = walk_of(table, &leaf, vpn, coalescing);
            self.fill_stack(slot, kind.side, &walk);
        }
    }
}
