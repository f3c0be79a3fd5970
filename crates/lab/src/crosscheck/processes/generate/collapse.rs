//! Programs about `MADV_COLLAPSE`.
//!
//! A program works repeatedly on one or two PMD ranges (with 64K pages, one). It maps and unmaps
//! pages of different kinds, protections and owners. Then it requests a collapse of exactly one
//! range, of less, or of more.

use largefolio_mm::map::Madvice;
use largefolio_mm::units::Order;
use largefolio_mm::vma::{Prot, Sharing};
use largefolio_trace::generate::Rng;

use super::super::program::{AreaSource, FileKind, OwnFile, OwnMapping, ProcessOp};
use super::super::range::{NR_PAGES_MAX, PageRange};
use super::Generator;

/// Creates a file of two PMD ranges and part of a third, so that some requests pass the end of the
/// file. If the window is too small for two, the file has one range or less.
pub(super) fn own_file(rng: &mut Rng, pmd: Order) -> OwnFile {
    let kind = if rng.below(100) < 30 { FileKind::Tmpfs } else { FileKind::Memfd };
    let part = [0, 1, pmd.nr_pages() / 2, pmd.nr_pages() - 1][rng.below(4) as usize];
    let fits = 3 * pmd.nr_pages() <= NR_PAGES_MAX;
    OwnFile { kind, nr_pages: if fits { 2 * pmd.nr_pages() + part } else { pmd.nr_pages() - part } }
}

impl Generator {
    pub(super) fn collapse_step(&mut self) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..30 => self.touch_run(slot),
            30..54 => self.collapse(slot),
            54..58 => self.punch(slot),
            58..61 => self.on_range(slot, |_, range| ProcessOp::Free(range)),
            61..65 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            65..71 => self.on_range(slot, |rng, range| {
                let prots = [Prot::READ, Prot::READ_WRITE, Prot::READ_WRITE, Prot::NONE];
                ProcessOp::Protect(range, prots[rng.below(4) as usize])
            }),
            71..74 => self.on_range(slot, |rng, range| {
                ProcessOp::Advise(
                    range,
                    [Madvice::Hugepage, Madvice::Nohugepage][rng.below(2) as usize],
                )
            }),
            74..78 => self.pin(slot),
            78..82 => self.emit(slot, ProcessOp::Unpin),
            82..87 => self.fork(slot, nr_alive),
            87..89 if nr_alive > 1 => self.emit(slot, ProcessOp::Exit),
            89..91 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            91..93 => self.remap(slot),
            _ => self.map_or_share(slot),
        }
    }

    pub(super) fn touch_run(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let first = self.page_of(area);
        let longest = (area.end() - first).min(if self.chance(10) { 300 } else { 16 });
        let nr = if self.chance(60) { 1 + self.rng.below(longest) } else { 1 };
        let range = PageRange { first, nr };
        let op = if self.chance(30) { ProcessOp::Read(range) } else { ProcessOp::Write(range) };
        self.emit(slot, op);
    }

    pub(super) fn collapse(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let page = area.first + self.rng.below(area.nr);
        let (first, nr) = (self.pmd.round_down(page), self.pmd.nr_pages());
        let window = self.program.nr_pages;
        let (first, end) = match self.rng.below(20) {
            0..9 => (first, first + nr),
            9..11 => (first + self.rng.below(3), first + nr),
            11..13 => (first.saturating_sub(self.rng.below(2)), first + nr + self.rng.below(3)),
            13..16 => (area.first, area.end()),
            16..18 => {
                let part = self.part_of(area);
                (part.first, part.end())
            }
            _ => (0, window),
        };
        let end = end.min(window);
        self.emit(slot, ProcessOp::Collapse(PageRange { first, nr: end - first }));
    }

    pub(super) fn punch(&mut self, slot: usize) {
        let Some(file) = self.program.own_file else { return };
        let range = self.part_of(PageRange { first: 0, nr: file.nr_pages });
        self.emit(slot, ProcessOp::Punch(range));
    }

    pub(super) fn pin(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let page = self.page_of(area);
        self.emit(slot, ProcessOp::Pin(page));
    }

    pub(super) fn map_or_share(&mut self, slot: usize) {
        let Some(file) = self.program.own_file else { return };
        let Some(range) = self.some_free_range(slot, 60) else { return };
        if self.chance(45) {
            let advice = match self.rng.below(8) {
                0 => Some(Madvice::Nohugepage),
                1..4 => Some(Madvice::Hugepage),
                _ => None,
            };
            self.emit(slot, ProcessOp::Map(range, AreaSource::Anon, advice));
            return;
        }
        let nr_blocks = (file.nr_pages >> self.pmd.get()).max(1);
        let block = self.rng.below(nr_blocks) << self.pmd.get();
        let from = if self.chance(75) {
            block + range.first % self.pmd.nr_pages()
        } else {
            self.rng.below(file.nr_pages)
        };
        let sharing = if self.chance(70) { Sharing::Shared } else { Sharing::Private };
        self.emit(
            slot,
            ProcessOp::Share(range, from, OwnMapping { sharing, prot: Prot::READ_WRITE }),
        );
    }
}
