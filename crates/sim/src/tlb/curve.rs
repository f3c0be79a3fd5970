//! Misses over the number of entries, for every number at once.
//!
//! The buffer is fully associative and replaces the least recently used entry. Its entries are those
//! that walks of the machine give: base pages, what the machine coalesces, contpte blocks, PMD
//! entries, one entry each. Sides and threads have buffers of their own; entries go where the TLB
//! of the machine must let them go.
//!
//! A larger LRU buffer holds what a smaller one holds, so that one stack, the last used entry on
//! top, stands for buffers of all sizes: a reference found at depth `d` hits in buffers of `d` and
//! more entries and misses in the others (stack distances after Mattson and others, 1970).
//!
//! ```text
//!   depth   1   2   3   4   5   6          a reference to d:   hits from 5 entries on
//!         ┌───┬───┬───┬───┬───┬───┐      ┌───┬───┬───┬───┬───┬───┐
//!         │ a │ b │   │ c │ d │ e │  ->  │ d │ a │ b │ c │   │ e │   the place that was left free
//!         └───┴───┴───┴───┴───┴───┘      └───┴───┴───┴───┴───┴───┘   at 3 takes up the shift
//!                   └ invalidated: buffers of 3 and more entries have a free one
//! ```
//!
//! An invalidated entry leaves its place free: a buffer that held it has room for one more, and
//! evicts nothing at its next miss. Without these free places, what smaller buffers had evicted
//! would come back into them.
//!
//! `Differs`: what an entry covers must not depend on the number of entries, or no single stack
//! could tell. It is what the machine's last walk of it found, or the page table at the first
//! reference that the largest buffer misses. Where neighbours came to be mapped since, a small
//! buffer would find more to coalesce when it walks again.
//!
//! A write that finds a read-only entry is no miss in the buffers that hold it, as in
//! [`super::Tlb`]; the entry goes.
//!
//! Reading order: `slots` (places on the stack by time), `stack`, then [`Distances`] here.

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

pub use stack::{Found, LruStack, Then, Violation};

/// The largest buffer: more than twice the largest level 2 of the machines (Zen 4: 3,072 entries).
pub const NR_ENTRIES_MAX: usize = 1 << 13;

/// Sizes an octave, so that a curve has a few points more than a picture can show apart.
const PER_OCTAVE: usize = 16;

/// References by the depth at which the stack had their entry.
#[derive(Clone, Debug)]
pub struct Distances {
    /// `by_depth[d]`, `1 <= d <= NR_ENTRIES_MAX`.
    by_depth: Vec<u64>,
    /// References that miss in buffers of any size.
    nr_beyond: u64,
}

impl Default for Distances {
    fn default() -> Self {
        Self { by_depth: vec![0; NR_ENTRIES_MAX + 1], nr_beyond: 0 }
    }
}

impl Distances {
    /// Counts a reference.
    pub fn count(&mut self, found: Found) {
        match found {
            Found::Entry { depth } | Found::ReadOnly { depth } => {
                let depth = depth.min(NR_ENTRIES_MAX);
                self.by_depth[depth] += 1;
            }
            Found::Nothing => self.nr_beyond += 1,
        }
    }

    /// Misses of buffers of `sizes`, which ascend, within [`NR_ENTRIES_MAX`].
    ///
    /// ```
    /// use largefolio_sim::tlb::curve::{Distances, Found};
    /// let mut distances = Distances::default();
    /// for depth in [1, 3, 3, 40] {
    ///     distances.count(Found::Entry { depth });
    /// }
    /// distances.count(Found::Nothing);
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

/// Misses of one number of entries. As JSON: `[entries, misses]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Entries of the buffer.
    pub entries: usize,
    /// References that it missed.
    pub misses: u64,
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.entries, self.misses).serialize(serializer)
    }
}

/// Entries of a machine's own levels, in the structures that hold what the cell's walks found;
/// `None`: no such level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnSizes {
    /// Level 1, instruction side.
    pub l1_instruction: Option<usize>,
    /// Level 1, data side.
    pub l1_data: Option<usize>,
    /// Level 2 as the instruction side sees it, which may share it.
    pub l2_instruction: Option<usize>,
    /// Level 2 as the data side sees it.
    pub l2_data: Option<usize>,
}

impl OwnSizes {
    /// The sizes of a machine with `page` as the base page; bit `k` of `orders`: walks found
    /// entries of order `k`.
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

    /// Level 1 and level 2 of a side.
    #[must_use]
    pub const fn of(&self, side: Side) -> [Option<usize>; 2] {
        match side {
            Side::Instruction => [self.l1_instruction, self.l2_instruction],
            Side::Data => [self.l1_data, self.l2_data],
        }
    }
}

/// Entries of the structures where entries of `orders` go: the first that holds the largest part.
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

/// The curves of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Curve {
    /// Instruction side: entries ascend, misses never do.
    pub instruction: Vec<Point>,
    /// Data side.
    pub data: Vec<Point>,
    /// What the machine itself has.
    pub own: OwnSizes,
}

impl Curve {
    /// The curves from the distances of both sides; the machine's own sizes are among their points.
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

    /// The points of a side.
    #[must_use]
    pub fn of(&self, side: Side) -> &[Point] {
        match side {
            Side::Instruction => &self.instruction,
            Side::Data => &self.data,
        }
    }
}

/// Every number up to [`PER_OCTAVE`], then as many in each octave.
fn grid() -> impl Iterator<Item = usize> {
    let step = |entries: usize| ((1 << entries.ilog2()) / PER_OCTAVE).max(1);
    std::iter::successors(Some(1), move |&entries| Some(entries + step(entries)))
        .take_while(|&entries| entries <= NR_ENTRIES_MAX)
}
