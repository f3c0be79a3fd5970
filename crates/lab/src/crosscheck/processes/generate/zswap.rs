//! Programs that page memory out on their own: what reclaim would take first does not matter.

use super::super::limit::Limit;
use super::super::program::ProcessOp;
use super::super::zswap::{Stuffing, ZswapLimits};
use super::{Generator, ZswapTopic};
use largefolio_mm::vma::Prot;
use largefolio_trace::generate::Rng;

/// More than the programs use.
pub(super) const LIMIT: Limit = Limit { kib: 64 << 10 };
/// A page of half noise takes half a page in zswap, so that these limits are reached.
const MAX_KIB: [u64; 5] = [0, 16, 64, 128, 256];

pub(super) fn limits(rng: &mut Rng, topic: ZswapTopic) -> Option<ZswapLimits> {
    let choice = rng.below(6) as usize;
    (topic == ZswapTopic::Groups)
        .then(|| ZswapLimits { max_kib: MAX_KIB.get(choice).copied(), writeback: rng.below(4) > 0 })
}

impl Generator {
    pub(super) fn zswap_step(&mut self, topic: ZswapTopic) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..28 => self.on_range(slot, |_, range| ProcessOp::Pageout(range)),
            28..44 => self.on_range(slot, |rng, range| {
                // One ratio holds for all pages of a program whose limit depends on it.
                let nr_kinds = if topic == ZswapTopic::Groups { 3 } else { 4 };
                let kinds = [Stuffing::Half, Stuffing::Noise, Stuffing::Zeroes, Stuffing::Same];
                ProcessOp::Stuff(range, kinds[rng.below(nr_kinds) as usize])
            }),
            44..62 => self.on_range(slot, |_, range| ProcessOp::Read(range)),
            62..70 if topic == ZswapTopic::Pages => {
                self.on_range(slot, |_, range| ProcessOp::Write(range));
            }
            70..76 => self.fork(slot, nr_alive),
            76..80 if nr_alive > 1 => self.emit(slot, ProcessOp::Exit),
            80..85 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            85..88 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            88..91 => self.on_range(slot, |rng, range| {
                ProcessOp::Protect(range, [Prot::READ, Prot::READ_WRITE][rng.below(2) as usize])
            }),
            91..94 => self.remap(slot),
            94..96 => {
                let is_on = self.chance(60);
                self.emit(slot, ProcessOp::Zswap(is_on));
            }
            _ => self.map_again(slot),
        }
    }
}
