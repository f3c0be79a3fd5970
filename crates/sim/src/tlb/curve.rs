//! TLB misses as a function of the number of entries, computed for every number in one pass.
//!
//! The modelled buffer is fully associative with LRU replacement. It holds the entries of the
//! machine's walks: base pages, coalesced pages, contpte blocks and PMD entries. Each side and
//! thread has its own buffer. The TLB's flushes also apply to it.
//!
//! A larger LRU buffer holds everything that a smaller one holds. So one stack, with the last used
//! entry on top, represents buffers of all sizes: a reference found at depth `d` hits in buffers
//! with at least `d` entries and misses in the others (stack distances, Mattson et al., 1970).
//!
//! ```text
//!   depth   1   2   3   4   5   6          a reference to d:   hits from 5 entries on
//!         ┌───┬───┬───┬───┬───┬───┐      ┌───┬───┬───┬───┬───┬───┐
//!         │ a │ b │   │ c │ d │ e │  ->  │ d │ a │ b │ c │   │ e │   the place that was left free
//!         └───┴───┴───┴───┴───┴───┘      └───┴───┴───┴───┴───┴───┘   at 3 takes up the shift
//!                   └ invalidated: buffers of 3 and more entries have a free one
//! ```
//!
//! An invalidated entry leaves its place free: a buffer that held it evicts nothing on its next
//! miss. Without free places, entries that smaller buffers had evicted would return to them. A
//! write that finds a read-only entry removes it and is not a miss, as in [`super::Tlb`].
//!
//! `Differs`: the range of an entry must not depend on the number of entries, or one stack could
//! not represent all sizes. The range comes from the machine's last walk of the entry, or from the
//! page table at the first reference that misses the largest buffer. If neighbours are mapped
//! later, a small buffer would coalesce more at its next walk.

mod slots;
mod stack;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use largefolio_mm::units::PageSize;
use serde::{Serialize, Serializer};

use super::access::Side;
use super::config::{StructureConfig, TlbConfig};
use super::resident::Orders;

pub use stack::{LruStack, StackHit, Then, Violation};

/// Size of the largest buffer: more than twice the largest level 2 (Zen 4: 3,072 entries).
pub const NR_ENTRIES_MAX: usize = 1 << 13;

/// Sizes per octave: slightly more points than a picture can show.
const PER_OCTAVE: usize = 16;

#[derive(Clone, Debug)]
pub struct Distances {
    by_depth: Vec<u64>,
    nr_beyond: u64,
}

impl Default for Distances {
    fn default() -> Self {
        Self { by_depth: vec![0; NR_ENTRIES_MAX + 1], nr_beyond: 0 }
    }
}

impl Distances {
    pub fn count(&mut self, hit: StackHit) {
        match hit {
            StackHit::Entry { depth } | StackHit::ReadOnly { depth } => {
                let depth = depth.min(NR_ENTRIES_MAX);
                self.by_depth[depth] += 1;
            }
            StackHit::Nothing => self.nr_beyond += 1,
        }
    }

    /// Returns the misses of buffers of `sizes`, which ascend up to [`NR_ENTRIES_MAX`].
    ///
    /// ```
    /// use largefolio_sim::tlb::curve::{Distances, StackHit};
    /// let mut distances = Distances::default();
    /// for depth in [1, 3, 3, 40] {
    ///     distances.count(StackHit::Entry { depth });
    /// }
    /// distances.count(StackHit::Nothing);
    /// let misses: Vec<u64> = distances.misses(&[1, 2, 3, 64]).iter().map(|p| p.misses).collect();
    /// assert_eq!(misses, [4, 4, 2, 1]);
    /// ```
    #[must_use]
    pub fn misses(&self, sizes: &[usize]) -> Vec<Point> {
        let mut points = Vec::with_capacity(sizes.len());
        let (mut misses, mut smallest) = (self.nr_beyond, NR_ENTRIES_MAX);
        for &entries in sizes.iter().rev() {
            misses += self.by_depth[entries + 1..=smallest].iter().sum::<u64>();
            smallest = entries;
            points.push(Point { entries, misses });
        }
        points.reverse();
        points
    }
}

/// Misses of a buffer. As JSON: `[entries, misses]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub entries: usize,
    pub misses: u64,
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.entries, self.misses).serialize(serializer)
    }
}

/// Entries of the machine's own structures that hold orders of the cell's walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnSizes {
    pub l1_instruction: Option<usize>,
    pub l1_data: Option<usize>,
    pub l2_instruction: Option<usize>,
    pub l2_data: Option<usize>,
}

impl OwnSizes {
    /// Computes the sizes. Bit `k` of `orders`: walks found entries of order `k`.
    #[must_use]
    pub fn new(config: &TlbConfig, page: PageSize, orders: u32) -> Self {
        let of = |level: &[StructureConfig]| entries_for(level, page, orders);
        let l2 = of(&config.l2);
        Self {
            l1_instruction: of(&config.l1_instruction),
            l1_data: of(&config.l1_data),
            l2_instruction: l2.or_else(|| of(&config.l2_instruction)),
            l2_data: l2.or_else(|| of(&config.l2_data)),
        }
    }

    #[must_use]
    pub const fn of(&self, side: Side) -> [Option<usize>; 2] {
        match side {
            Side::Instruction => [self.l1_instruction, self.l2_instruction],
            Side::Data => [self.l1_data, self.l2_data],
        }
    }
}

/// Sums the structures that hold `orders`: for each order, the first with its largest part.
fn entries_for(level: &[StructureConfig], page: PageSize, orders: u32) -> Option<usize> {
    let within = |config: &StructureConfig, order: u8| {
        let held = config.sizes.orders(page) & (u32::MAX >> (31 - order));
        31_u32.checked_sub(held.leading_zeros())
    };
    let home = |order: u8| {
        let all = level.iter().enumerate();
        let held = all.filter_map(|(nr, config)| Some((within(config, order)?, nr)));
        held.max_by_key(|&(held, nr)| (held, std::cmp::Reverse(nr))).map(|(_, nr)| nr)
    };
    let homes: BTreeSet<usize> = Orders(orders).filter_map(home).collect();
    let sum: usize = homes.into_iter().map(|nr| level[nr].entries as usize).sum();
    (sum > 0).then_some(sum)
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Curve {
    /// Instruction side, in ascending order of entries; misses never increase.
    pub instruction: Vec<Point>,
    pub data: Vec<Point>,
    pub own: OwnSizes,
}

impl Curve {
    #[must_use]
    pub fn new(distances: &[Distances; 2], own: OwnSizes) -> Self {
        let points = |side: Side| {
            let own = own.of(side).into_iter().flatten().filter(|&size| size <= NR_ENTRIES_MAX);
            let mut sizes: Vec<usize> = grid().chain(own).collect();
            sizes.sort_unstable();
            sizes.dedup();
            distances[side as usize].misses(&sizes)
        };
        Self { instruction: points(Side::Instruction), data: points(Side::Data), own }
    }

    #[must_use]
    pub fn of(&self, side: Side) -> &[Point] {
        match side {
            Side::Instruction => &self.instruction,
            Side::Data => &self.data,
        }
    }
}

fn grid() -> impl Iterator<Item = usize> {
    let step = |entries: usize| ((1 << entries.ilog2()) / PER_OCTAVE).max(1);
    std::iter::successors(Some(1), move |&entries| Some(entries + step(entries)))
        .take_while(|&entries| entries <= NR_ENTRIES_MAX)
}
