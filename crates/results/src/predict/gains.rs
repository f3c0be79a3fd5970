//! The regions of memory that save page walks in another column, and how much each adds.

use std::collections::HashMap;

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::detail::AreaKind;
use largefolio_sim::replay::regions::{Block, Regions};

/// Neighbouring blocks of one mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gain<'a> {
    pub(super) first: &'a Block,
    pub(super) nr_blocks: u64,
    /// Fewer page walks than in the first column.
    pub(super) saved: u64,
}

/// What a column saves, compared with the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gains<'a> {
    /// The column with the fewest walks.
    pub(super) column: usize,
    /// The largest saving first.
    pub(super) regions: Vec<Gain<'a>>,
    /// Saved walks of all regions that save some.
    pub(super) saved: u64,
    /// Fewer walks in all: what `saved` leaves after the regions that need more.
    pub(super) net: u64,
    /// Blocks with a walk in the first column.
    pub(super) nr_blocks: u64,
}

impl<'a> Gains<'a> {
    /// Returns `None` if no column saves walks.
    pub(super) fn of(rows: &'a [Outcome]) -> Option<Self> {
        let base = rows.first()?.regions.as_ref()?;
        let others = rows.iter().enumerate().skip(1);
        let others = others.filter_map(|(column, row)| Some((column, row.regions.as_ref()?)));
        let (column, best) = others.min_by_key(|(_, regions)| regions.walks)?;
        let mut regions = saved_regions(base, best);
        regions.sort_by_key(|gain| (u64::MAX - gain.saved, gain.first.program, gain.first.start));
        let saved = regions.iter().map(|gain| gain.saved).sum();
        let net = base.walks.checked_sub(best.walks).filter(|net| *net > 0)?;
        (saved > 0).then_some(Self { column, regions, saved, net, nr_blocks: base.nr_blocks })
    }

    /// Returns the fewest regions that save `percent` of the walks, and their blocks.
    pub(super) fn nr_for(&self, percent: u64) -> (usize, u64) {
        let (mut saved, mut nr_blocks) = (0, 0);
        for (nr, gain) in self.regions.iter().enumerate() {
            saved += gain.saved;
            nr_blocks += gain.nr_blocks;
            if saved * 100 >= self.saved * percent {
                return (nr + 1, nr_blocks);
            }
        }
        (self.regions.len(), nr_blocks)
    }
}

fn saved_regions<'a>(base: &'a Regions, best: &Regions) -> Vec<Gain<'a>> {
    let after: HashMap<(usize, u64), u64> =
        best.blocks.iter().map(|block| ((block.program, block.start), block.walks())).collect();
    // A result lists the blocks with the most walks; another one has at most as many as the last.
    let is_cut = best.nr_blocks > best.blocks.len() as u64;
    let unlisted = best.blocks.last().filter(|_| is_cut).map_or(0, Block::walks);
    let mut blocks: Vec<(&Block, u64)> = base
        .blocks
        .iter()
        .filter_map(|block| {
            let left = after.get(&(block.program, block.start)).copied().unwrap_or(unlisted);
            let saved = block.walks().saturating_sub(left);
            (saved > 0).then_some((block, saved))
        })
        .collect();
    blocks.sort_by_key(|(block, _)| (block.program, block.start));
    let mut regions: Vec<Gain<'_>> = Vec::new();
    for (block, saved) in blocks {
        match regions.last_mut() {
            Some(last) if continues(last, block, base.block_bytes) => {
                last.nr_blocks += 1;
                last.saved += saved;
            }
            _ => regions.push(Gain { first: block, nr_blocks: 1, saved }),
        }
    }
    regions
}

fn continues(last: &Gain<'_>, next: &Block, block_bytes: u64) -> bool {
    let of = |block: &Block| -> (usize, AreaKind) { (block.program, block.kind) };
    of(last.first) == of(next)
        && last.first.path == next.path
        && last.first.start + last.nr_blocks * block_bytes == next.start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(nr: u64, kind: AreaKind, data_walks: u64) -> Block {
        let (program, path, instruction_walks, faults) = (0, String::new(), 0, 0);
        Block { program, start: nr << 21, kind, path, data_walks, instruction_walks, faults }
    }

    fn regions(blocks: Vec<Block>) -> Regions {
        let walks = blocks.iter().map(Block::walks).sum();
        let nr_blocks = blocks.len() as u64;
        Regions { block_bytes: 2 << 20, nr_blocks, walks, blocks, ..Regions::default() }
    }

    #[test]
    fn neighbouring_blocks_of_one_kind_are_a_region() {
        use AreaKind::{Heap, Private};
        let base = regions(vec![
            block(9, Private, 500),
            block(1, Heap, 300),
            block(2, Heap, 100),
            block(3, Private, 100),
            block(5, Private, 7),
        ]);
        let best = regions(vec![block(1, Heap, 50), block(9, Private, 20), block(5, Private, 9)]);
        let found = saved_regions(&base, &best);
        let shown: Vec<_> =
            found.iter().map(|gain| (gain.first.start >> 21, gain.nr_blocks, gain.saved)).collect();
        assert_eq!(shown, [(1, 2, 350), (3, 1, 100), (9, 1, 480)]);
        let mut gains = Gains { column: 1, regions: found, saved: 930, net: 928, nr_blocks: 5 };
        gains.regions.sort_by_key(|gain| u64::MAX - gain.saved);
        assert_eq!(gains.nr_for(50), (1, 1), "480 of 930");
        assert_eq!(gains.nr_for(75), (2, 3), "830 of 930");
        assert_eq!(gains.nr_for(100), (3, 4));
        let cut = Regions { nr_blocks: 100, ..best };
        let saved: u64 = saved_regions(&base, &cut).iter().map(|gain| gain.saved).sum();
        assert_eq!(saved, 930 - 2 * 9, "a block that is not listed may have 9 walks");
    }
}
