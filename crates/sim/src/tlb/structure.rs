//! The shape of one structure: where its sets are and which orders it holds.

use std::ops::Range;

use largefolio_mm::units::PageSize;

use super::config::StructureConfig;

/// One array of a level: `nr_sets x ways` slots of the level from `offset`.
#[derive(Clone, Debug)]
pub(super) struct Structure {
    pub(super) offset: usize,
    pub(super) nr_sets: usize,
    pub(super) ways: usize,
    /// Bit `k`: can hold entries of order `k`.
    pub(super) orders: u32,
}

impl Structure {
    pub(super) fn new(config: &StructureConfig, page: PageSize, offset: usize) -> Self {
        let ways = config.nr_ways() as usize;
        let nr_sets = config.entries as usize / ways;
        Self { offset, nr_sets, ways, orders: config.sizes.orders(page) }
    }

    pub(super) fn slots(&self) -> Range<usize> {
        self.offset..self.offset + self.nr_sets * self.ways
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a usize")]
    pub(super) fn set_of(&self, block: u64) -> Range<usize> {
        let set = if self.nr_sets == 1 { 0 } else { (block % self.nr_sets as u64) as usize };
        let first = self.offset + set * self.ways;
        first..first + self.ways
    }

    pub(super) const fn holds(&self, order: u8) -> bool {
        self.orders >> order & 1 == 1
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 31")]
    pub(super) const fn largest_within(&self, order: u8) -> Option<u8> {
        let within = self.orders & (u32::MAX >> (31 - order));
        if within == 0 { None } else { Some(31 - within.leading_zeros() as u8) }
    }
}
