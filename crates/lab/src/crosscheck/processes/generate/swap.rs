//! Programs in a cgroup with a limit: they touch more memory than fits, and release memory with
//! madvise.

use largefolio_mm::map::Madvice;
use largefolio_mm::units::PageSize;
use largefolio_mm::vma::Prot;
use largefolio_trace::generate::Rng;

use super::super::limit::Limit;
use super::super::program::{AreaSource, ProcessOp};
use super::super::range::PageRange;
use super::super::zswap::Stuffing;
use super::{Generator, Topic};

pub(super) const WINDOW_PAGES: u64 = 256;

/// Chooses a limit of two to four fifths of the window. With PMD-sized folios, the window has two
/// of them, and the limit is four fifths or more.
pub(super) fn limit(rng: &mut Rng, page: PageSize, nr_pages: u64) -> Limit {
    let (least, most) = if nr_pages > WINDOW_PAGES { (4, 5) } else { (2, 4) };
    let least = nr_pages * least / 5;
    let pages = least + rng.below(nr_pages * most / 5 - least);
    Limit { kib: pages << page.shift() >> 10 }
}

impl Generator {
    pub(super) fn map_first_to_swap(&mut self) {
        let whole = PageRange { first: 0, nr: self.program.nr_pages };
        let advice = if self.chance(85) { Some(Madvice::Hugepage) } else { None };
        self.emit(0, ProcessOp::Map(whole, AreaSource::Anon, advice));
        let nr = whole.nr / 4 + self.rng.below(whole.nr / 2);
        let first = PageRange { first: 0, nr };
        self.emit(
            0,
            match self.topic {
                Topic::Swap => ProcessOp::Write(first),
                _ => ProcessOp::Stuff(first, Stuffing::Half),
            },
        );
    }

    pub(super) fn swap_step(&mut self) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..46 => self.touch_much(slot),
            46..60 => self.on_range(slot, |_, range| ProcessOp::Pageout(range)),
            60..64 => self.on_range(slot, |_, range| ProcessOp::Cold(range)),
            64..72 => self.fork(slot, nr_alive),
            72..76 if nr_alive > 1 => self.emit(slot, ProcessOp::Exit),
            76..81 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            81..84 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            84..87 => self.on_range(slot, |rng, range| {
                ProcessOp::Protect(range, [Prot::READ, Prot::READ_WRITE][rng.below(2) as usize])
            }),
            87..90 => self.on_range(slot, |_, range| ProcessOp::Free(range)),
            90..94 => self.remap(slot),
            94..96 => self.on_range(slot, |rng, range| {
                let advice = [Madvice::Hugepage, Madvice::Nohugepage][rng.below(2) as usize];
                ProcessOp::Advise(range, advice)
            }),
            _ => self.map_again(slot),
        }
    }

    fn touch_much(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let first = self.page_of(area);
        let left = area.end() - first;
        let nr = match self.rng.below(4) {
            0 => 1,
            1 => 1 + self.rng.below(left.min(16)),
            _ => 1 + self.rng.below((area.nr / 2 + 1).min(left)),
        };
        let range = PageRange { first, nr };
        let is_store = self.chance(55);
        self.emit(slot, if is_store { ProcessOp::Write(range) } else { ProcessOp::Read(range) });
    }

    pub(super) fn map_again(&mut self, slot: usize) {
        let Some(hole) = self.some_hole(slot) else { return };
        self.emit(slot, ProcessOp::Map(hole, AreaSource::Anon, Some(Madvice::Hugepage)));
    }
}
