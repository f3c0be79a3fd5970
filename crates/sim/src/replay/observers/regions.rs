//! Where the page walks and faults are: by block of recorded addresses.
//!
//! Kept only if [`super::CellSpec::has_regions`] asks for it. A block has the same address in every
//! cell, so columns can be compared.

use std::collections::HashMap;

use largefolio_trace::{FileId, Meta};
use serde::Serialize;

use crate::replay::observers::detail::AreaKind;
use crate::replay::observers::keeper::kind_of;
use crate::replay::observers::programs::ProgramNr;
use crate::replay::program::space::AddressSpace;
use crate::tlb::Side;

/// Blocks of this size: what one PMD entry maps with pages of 4K.
const BLOCK_SHIFT: u32 = 21;
/// Blocks in a result, those with the most walks.
const NR_BLOCKS_MAX: usize = 1 << 12;
/// More blocks are not told apart.
const NR_COUNTED_MAX: usize = 1 << 20;

/// Where the walks and faults of a cell are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Regions {
    pub block_bytes: u64,
    /// Blocks with a walk.
    pub nr_blocks: u64,
    pub walks: u64,
    /// Fewest blocks that together have half, three quarters and nine tenths of the walks.
    pub nr_for_half: u64,
    pub nr_for_three_quarters: u64,
    pub nr_for_nine_tenths: u64,
    /// The blocks with the most walks, in descending order.
    pub blocks: Vec<Block>,
}

/// What happened in a block of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Number of the program, as in `processes.programs`.
    pub program: ProgramNr,
    /// Recorded address.
    pub start: u64,
    pub kind: AreaKind,
    /// The mapped file; empty for private memory.
    pub path: String,
    pub data_walks: u64,
    pub instruction_walks: u64,
    pub faults: u64,
}

impl Block {
    #[must_use]
    pub const fn walks(&self) -> u64 {
        self.data_walks + self.instruction_walks
    }
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    kind: AreaKind,
    file: Option<FileId>,
    /// By side.
    walks: [u64; 2],
    faults: u64,
}

#[derive(Debug, Default)]
pub(crate) struct RegionCounter(HashMap<(ProgramNr, u64), Counted>);

impl RegionCounter {
    pub(crate) fn restart(&mut self) {
        self.0.clear();
    }

    /// Counts a walk for `addr`, and a fault if the page had no entry.
    pub(crate) fn count(
        &mut self,
        (program, space): (ProgramNr, &AddressSpace),
        addr: u64,
        side: Side,
        is_fault: bool,
    ) {
        let key = (program, addr >> BLOCK_SHIFT);
        if self.0.len() >= NR_COUNTED_MAX && !self.0.contains_key(&key) {
            return;
        }
        let block = self.0.entry(key).or_insert_with(|| {
            let (kind, file) = place_of(space, addr);
            Counted { kind, file, walks: [0; 2], faults: 0 }
        });
        block.walks[side as usize] += 1;
        block.faults += u64::from(is_fault);
    }

    pub(crate) fn finish(&self, meta: &Meta) -> Regions {
        let path = |file: Option<FileId>| {
            let file = file.and_then(|file| meta.files.get(file as usize));
            file.map_or_else(String::new, |file| file.path.clone())
        };
        let mut blocks: Vec<_> = self.0.iter().map(|(&key, &counted)| (key, counted)).collect();
        // The order of a hash map is arbitrary, that of a result is not.
        blocks.sort_by_key(|&(key, Counted { walks, .. })| {
            (u64::MAX - walks.iter().sum::<u64>(), key)
        });
        let sums: Vec<u64> = blocks
            .iter()
            .scan(0, |sum, (_, Counted { walks, .. })| {
                *sum += walks.iter().sum::<u64>();
                Some(*sum)
            })
            .collect();
        let walks = sums.last().copied().unwrap_or(0);
        let nr_for = |tenths: u64| {
            let nr_less = sums.partition_point(|&sum| sum * 20 < walks * tenths);
            (nr_less + 1).min(sums.len()) as u64
        };
        Regions {
            block_bytes: 1 << BLOCK_SHIFT,
            nr_blocks: blocks.len() as u64,
            walks,
            nr_for_half: nr_for(10),
            nr_for_three_quarters: nr_for(15),
            nr_for_nine_tenths: nr_for(18),
            blocks: blocks
                .into_iter()
                .take(NR_BLOCKS_MAX)
                .map(|((program, block), Counted { kind, file, walks, faults })| Block {
                    program,
                    start: block << BLOCK_SHIFT,
                    kind,
                    path: path(file),
                    data_walks: walks[Side::Data as usize],
                    instruction_walks: walks[Side::Instruction as usize],
                    faults,
                })
                .collect(),
        }
    }
}

/// The area of an address: its kind, and the mapped file.
pub(super) type Place = (AreaKind, Option<FileId>);

pub(super) fn place_of(space: &AddressSpace, addr: u64) -> Place {
    let Some(segment) = space.segments.find(addr) else { return (AreaKind::Private, None) };
    match segment.file {
        Some((file, _)) => (AreaKind::File, Some(file)),
        None => (kind_of(space, segment.start), None),
    }
}
