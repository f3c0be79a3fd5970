//! Programs about khugepaged.
//!
//! A program fills PMD ranges with base pages before any advice, then advises and scans them. The
//! results depend on the ranges' contents and on the order of the processes. Each program has its
//! own limits.

use largefolio_mm::map::Madvice;
use largefolio_mm::units::Order;
use largefolio_mm::vma::{Prot, Sharing};
use largefolio_trace::generate::Rng;

use super::super::khugepaged::ScanLimits;
use super::super::program::{AreaSource, OwnMapping, ProcessOp};
use super::super::range::PageRange;
use super::Generator;

pub(super) fn limits(rng: &mut Rng, pmd: Order) -> ScanLimits {
    let nr = pmd.nr_pages();
    let mut one_of = |values: [u64; 6]| values[rng.below(6) as usize];
    ScanLimits {
        none: one_of([nr - 1, nr - 1, nr - 1, nr / 2, nr / 8, 0]),
        shared: one_of([nr / 2, nr / 2, nr / 2, nr - 1, nr / 8, 0]),
        pages: one_of([0, 0, 0, nr, 2 * nr, 3 * nr]),
    }
}

impl Generator {
    /// Maps ranges of anonymous memory and of the file, touches most of them, then advises them.
    pub(super) fn map_first_blocks(&mut self) {
        let nr = self.pmd.nr_pages();
        for first in (0..self.program.nr_pages).step_by(nr as usize) {
            let range = PageRange { first, nr: nr.min(self.program.nr_pages - first) };
            let how = OwnMapping { sharing: Sharing::Shared, prot: Prot::READ_WRITE };
            match self.rng.below(20) {
                0..10 => self.emit(0, ProcessOp::Map(range, AreaSource::Anon, None)),
                10..12 => {
                    self.emit(0, ProcessOp::Map(range, AreaSource::Anon, Some(Madvice::Hugepage)));
                }
                12..19 => self.emit(0, ProcessOp::Share(range, first % (2 * nr), how)),
                _ => {}
            }
        }
        for _ in 0..=self.rng.below(4) {
            if self.chance(60) {
                self.touch_run(0);
            } else {
                self.touch_block(0);
            }
        }
        if self.chance(60) {
            let range = PageRange { first: 0, nr: self.program.nr_pages };
            self.emit(0, ProcessOp::Advise(range, Madvice::Hugepage));
        }
    }

    pub(super) fn khugepaged_step(&mut self) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..22 => self.touch_run(slot),
            22..32 => self.touch_block(slot),
            32..46 => self.advise_blocks(slot),
            46..61 => self.emit(slot, ProcessOp::Scan),
            61..66 => self.scan_idle(slot),
            66..74 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            74..77 => self.punch(slot),
            77..80 => self.on_range(slot, |_, range| ProcessOp::Free(range)),
            80..84 => self.on_range(slot, |rng, range| {
                let prots = [Prot::READ, Prot::READ_WRITE, Prot::READ_WRITE, Prot::NONE];
                ProcessOp::Protect(range, prots[rng.below(4) as usize])
            }),
            84..86 => self.pin(slot),
            86..89 => self.emit(slot, ProcessOp::Unpin),
            89..94 => self.fork(slot, nr_alive),
            94..96 if nr_alive > 1 => self.emit(slot, ProcessOp::Exit),
            96..97 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            97..98 => self.remap(slot),
            _ => self.map_or_share(slot),
        }
    }

    pub(super) fn advise_blocks(&mut self, slot: usize) {
        let advice = if self.chance(85) { Madvice::Hugepage } else { Madvice::Nohugepage };
        if self.chance(20) {
            return self.on_range(slot, |_, range| ProcessOp::Advise(range, advice));
        }
        let window = self.program.nr_pages;
        let first = self.pmd.round_down(self.rng.below(window));
        let nr = self.pmd.nr_pages() * (1 + self.rng.below(3));
        let range = PageRange { first, nr: nr.min(window - first) };
        self.emit(slot, ProcessOp::Advise(range, advice));
    }

    fn touch_block(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let page = area.first + self.rng.below(area.nr);
        let first = self.pmd.round_down(page).max(area.first);
        let end = (self.pmd.round_down(page) + self.pmd.nr_pages()).min(area.end());
        let cut = [0, 0, 1, 7][self.rng.below(4) as usize].min(end - first - 1);
        self.emit(slot, ProcessOp::Write(PageRange { first, nr: end - first - cut }));
    }

    fn scan_idle(&mut self, slot: usize) {
        self.emit(slot, ProcessOp::Idle);
        if self.chance(60) {
            self.touch_run(slot);
        }
        self.emit(slot, ProcessOp::Scan);
    }
}
