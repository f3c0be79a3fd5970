//! Programs about hugetlb: the pool is often too small for the processes' requests.
//!
//! Mappings move only before the first fork: a kernel that takes a page from a child searches for
//! it at the owner's address. Moved mappings are private and fully populated, and the pool is large
//! enough for all their pages. If part of an area moves, the kernel loses the rest of the area's
//! reservation for good (docs/behaviour O.5.3).

use largefolio_mm::vma::{Prot, Sharing};

use super::super::huge::{Edge, HugeMapping, HugePages, Trim, TrimCall};
use super::super::program::ProcessOp;
use super::super::range::PageRange;
use super::Generator;

pub(super) const WINDOW_PAGES: u64 = 8;
const POOL_MAX: u64 = 14;
const POOL_MIN: u64 = 2;

pub(super) fn pool_of(seed: u64, kib: u64) -> HugePages {
    // Neighbouring seeds share a pool size, so their programs can run together.
    let nr = POOL_MIN + (seed / super::NR_ALIKE).wrapping_mul(5) % (POOL_MAX - POOL_MIN + 1);
    let nr_pool = if moves(seed) { nr.max(WINDOW_PAGES) } else { nr };
    HugePages { kib, nr_pool, nr_lost: 0 }
}

const fn moves(seed: u64) -> bool {
    (seed / super::NR_ALIKE).is_multiple_of(3)
}

impl Generator {
    pub(super) fn huge_step(&mut self) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..46 => self.touch_huge(slot),
            46..57 => self.fork(slot, nr_alive),
            57..64 if nr_alive > 1 => self.emit(slot, ProcessOp::Exit),
            64..71 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            71..79 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            79..84 => self.on_range(slot, |rng, range| {
                let prots = [Prot::READ, Prot::READ_WRITE, Prot::READ_WRITE, Prot::NONE];
                ProcessOp::Protect(range, prots[rng.below(4) as usize])
            }),
            84..87 => self.trim(slot),
            _ if self.is_moving() && self.chance(40) => self.move_huge(slot),
            _ => self.map_huge(slot),
        }
    }

    fn is_moving(&self) -> bool {
        let steps = &self.program.steps;
        moves(self.program.seed) && !steps.iter().any(|step| matches!(step.op, ProcessOp::Fork(_)))
    }

    fn move_huge(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        self.emit(slot, ProcessOp::Protect(area, Prot::READ_WRITE));
        self.emit(slot, ProcessOp::Write(area));
        let range = self.part_of(area);
        let to = self.rng.below(self.program.nr_pages - range.nr + 1);
        if to >= range.end() || range.first >= to + range.nr {
            self.emit(slot, ProcessOp::Remap(range, to));
        }
    }

    pub(super) fn map_huge(&mut self, slot: usize) {
        let Some(range) = self.some_free_range(slot, 30) else { return };
        let is_moving = self.is_moving();
        let sharing =
            if !is_moving && self.chance(25) { Sharing::Shared } else { Sharing::Private };
        let is_reserved = is_moving || !self.chance(20);
        self.emit(slot, ProcessOp::MapHuge(range, HugeMapping { sharing, is_reserved }));
    }

    fn touch_huge(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let first = area.first + self.rng.below(area.nr);
        let nr = if self.chance(30) { 1 + self.rng.below(area.end() - first) } else { 1 };
        let range = PageRange { first, nr };
        let op = if self.chance(25) { ProcessOp::Read(range) } else { ProcessOp::Write(range) };
        self.emit(slot, op);
    }

    fn trim(&mut self, slot: usize) {
        let calls = [TrimCall::Unmap, TrimCall::Drop, TrimCall::Protect, TrimCall::Free];
        self.on_range(slot, |rng, range| {
            let call = calls[rng.below(4) as usize];
            let edge = match call {
                TrimCall::Free => Edge::None,
                _ => [Edge::First, Edge::Last][rng.below(2) as usize],
            };
            ProcessOp::Trim(range, Trim { call, edge })
        });
    }
}
