//! What looks on while a cell runs: pictures, and who waits for which read.
//!
//! Owns when they hear of a touch, a call, a collapse. Nothing of it goes back into the memory
//! manager or a TLB, and without pictures it costs a test.

use largefolio_mm::folio::Owner;
use largefolio_mm::units::MmId;
use largefolio_mm::units::{Order, Pfn, Vpn};
use largefolio_trace::{Event, Op};

use super::causes::FaultMark;
use super::cell::Cell;
use super::detail::{Detail, Origin};
use super::hardware::Slot;
use super::keeper::Seen;
use super::reads::{Pages, Wait, requests};
use super::reference::{Reference, walk_of};
use crate::tlb::curve::Then;
use crate::tlb::{self, Lookup, Side, Walk};

impl Cell {
    /// Before a touch: what tells faults apart, where somebody wants to know.
    pub(super) fn before_touch(&self) -> Option<FaultMark> {
        self.pictures.is_some().then(|| FaultMark::of(self.memory.counters()))
    }

    /// After a touch that found a page: who caused its folio, and the reads that are waited for.
    pub(super) fn watch_touch(
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

    /// After a call: what it collapsed, the reads it started, and what a read call covers.
    pub(super) fn watch_call(&mut self, event: &Event) {
        if matches!(event.op, Op::Madvise | Op::Collapse) {
            self.note_collapsed(Origin::Collapse);
        }
        self.settle_call(event);
        self.count_pictures();
    }

    /// After khugepaged ran.
    pub(super) fn watch_khugepaged(&mut self) {
        self.note_collapsed(Origin::Khugepaged);
    }

    /// After a fault or a call: what it added to the counters.
    pub(super) fn count_pictures(&mut self) {
        let Some(keeper) = &self.pictures else { return };
        let now = Seen::of(self.memory.counters());
        if keeper.has_seen(now) {
            return;
        }
        let (references, page_bytes) = (self.references(), self.page().bytes());
        if let Some(keeper) = &mut self.pictures {
            keeper.count(now, references, page_bytes);
        }
    }

    /// Forgets the run that filled the page cache.
    pub(super) fn restart_pictures(&mut self) {
        if let Some(keeper) = &mut self.pictures {
            keeper.restart(Seen::of(&self.counted.base.counters));
        }
    }

    /// Forgets the times of faults and reads before the recording, but keeps their effects.
    pub(super) fn begin_pictures(&mut self) {
        let references = self.hardware.nr_references;
        if let Some(keeper) = &mut self.pictures {
            keeper.begin(Seen::of(&self.counted.base.counters), references);
        }
    }

    /// The detail at the end.
    pub(super) fn take_detail(&mut self) -> Option<Detail> {
        self.count_pictures();
        let keeper = self.pictures.take()?;
        let curve = keeper.measured.curve(&self.spec.machine.tlb, self.page());
        let references = self.hardware.nr_references;
        Some(keeper.finish(&self.memory, &self.program.files.mappings(), curve, references))
    }

    /// References of all threads so far.
    fn references(&self) -> u64 {
        self.count_steps(1);
        self.hardware.nr_references
    }

    /// After a touch that faulted: what it got, if that is a new folio of private memory.
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

    /// After khugepaged or `MADV_COLLAPSE`, whose flushes are the blocks they tried: the folios that
    /// fill a block now.
    fn note_collapsed(&mut self, origin: Origin) {
        let Some(keeper) = &mut self.pictures else { return };
        for flush in &self.flushes {
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

    /// The reads that a call started, and what a read call covers.
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

    /// Hands the reads since the last call to the device; `cause` started them.
    fn settle(&mut self, wait: Wait, cause: Origin) {
        let observed = self.memory.take_observed();
        if observed.is_empty() {
            return;
        }
        if let Some(keeper) = &mut self.pictures {
            keeper.hear(&observed, cause);
        }
        let (shift, references) = (self.page().shift(), self.references());
        for request in requests(&observed, &self.memory, wait) {
            self.counted.reads.submit(&request, request.nr_pages << shift, references);
        }
    }

    /// What a walk found, for the stack as well.
    pub(super) fn fill_stack(&mut self, slot: Slot, side: Side, walk: &Walk) {
        let cpu = self.hardware.cpu_mut(slot);
        let walk = Walk { vpn: cpu.tlb.tagged(walk.vpn), ..*walk };
        let walked = cpu.tlb.coalescing().entry(&walk);
        if let (Some(stacks), Some(keeper)) = (&mut cpu.stacks, &mut self.pictures) {
            stacks.of_mut(side).fill(&walked);
            keeper.measured.orders[side as usize] |= 1 << walked.order.get();
        }
    }

    /// A reference that the entry on top of its stack does not serve; `found` is what the TLB said.
    /// Where that walks, the walk fills the stack as well.
    #[inline(never)]
    pub(super) fn measure(&mut self, slot: Slot, kind: Reference, vpn: Vpn, found: Lookup) {
        let space = self.hardware[slot].space;
        let cpu = self.hardware.cpu_mut(slot);
        let (Some(stacks), Some(keeper)) = (&mut cpu.stacks, &mut self.pictures) else { return };
        let then = if found.needs_walk() { Then::Fill } else { Then::Use };
        let measured = stacks.of_mut(kind.side).lookup(cpu.tlb.tagged(vpn), kind.tlb, then);
        keeper.measured.distances[kind.side as usize].count(measured);
        if !measured.needs_walk() || found.needs_walk() {
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
