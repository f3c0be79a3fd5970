//! Where the page walks and faults are, and which code causes them.
//!
//! Kept only if [`super::CellSpec::has_regions`] asks for it. Blocks of memory and pages of code have
//! the same recorded addresses in every cell, so columns can be compared.
//!
//! A data walk belongs to the page of code that its thread executed last: a trace has one row for
//! several instructions on a page, so functions that share a page are not told apart.

use std::collections::HashMap;

use largefolio_trace::validate::REFERENCE_PAGE_BYTES;
use largefolio_trace::{FileId, Meta, ThreadId};
use serde::Serialize;

use crate::replay::observers::detail::AreaKind;
use crate::replay::observers::keeper::kind_of;
use crate::replay::observers::programs::ProgramNr;
use crate::replay::program::space::AddressSpace;
use crate::tlb::Side;

/// Blocks of this size: what one PMD entry maps with pages of 4K.
const BLOCK_SHIFT: u32 = 21;
/// Code is counted in pages of this size, as traces have it.
pub const CODE_BYTES: u64 = REFERENCE_PAGE_BYTES;
/// Blocks and pages of code in a result, those with the most walks.
const NR_BLOCKS_MAX: usize = 1 << 12;
/// Further blocks and pages of code are not counted.
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
    /// The pages of code with the most walks, in descending order.
    pub code: Vec<CodePage>,
}

/// The walks and faults that a page of code causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CodePage {
    /// Number of the program, as in `processes.programs`.
    pub program: ProgramNr,
    /// Recorded address.
    pub start: u64,
    /// The mapped file; empty for generated code.
    pub path: String,
    /// The page's position in the file, in bytes.
    pub pos: u64,
    pub data_walks: u64,
    /// For the page itself.
    pub instruction_walks: u64,
    pub faults: u64,
}

impl CodePage {
    #[must_use]
    pub const fn walks(&self) -> u64 {
        self.data_walks + self.instruction_walks
    }
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

/// The program, and a block or a page of code.
type Key = (ProgramNr, u64);

/// What was counted at a place.
#[derive(Clone, Copy, Debug)]
struct Counted<P> {
    place: P,
    /// By side.
    walks: [u64; 2],
    faults: u64,
}

impl<P> Counted<P> {
    const fn at(place: P) -> Self {
        Self { place, walks: [0; 2], faults: 0 }
    }

    fn add(&mut self, side: Side, is_fault: bool) {
        self.walks[side as usize] += 1;
        self.faults += u64::from(is_fault);
    }

    fn walks(&self) -> u64 {
        self.walks.iter().sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct RegionCounter {
    blocks: HashMap<Key, Counted<Place>>,
    /// With the file and the position in it.
    code: HashMap<Key, Counted<Option<(FileId, u64)>>>,
    /// The address that each thread executed last.
    executed: Vec<u64>,
}

/// A page walk, and whether it ended in a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedWalk {
    pub(crate) thread: ThreadId,
    pub(crate) program: ProgramNr,
    pub(crate) addr: u64,
    pub(crate) side: Side,
    pub(crate) is_fault: bool,
}

impl RegionCounter {
    pub(crate) fn restart(&mut self) {
        self.blocks.clear();
        self.code.clear();
    }

    /// Notes the code that a thread executes.
    pub(crate) fn execute(&mut self, thread: ThreadId, addr: u64) {
        let nr = thread as usize;
        if nr >= self.executed.len() {
            self.executed.resize(nr + 1, 0);
        }
        self.executed[nr] = addr;
    }

    /// Counts a walk, and a fault if the page had no entry.
    pub(crate) fn count(&mut self, walk: CountedWalk, space: &AddressSpace) {
        let CountedWalk { thread, program, addr, side, is_fault } = walk;
        let block = || place_of(space, addr);
        if let Some(block) = slot(&mut self.blocks, (program, addr >> BLOCK_SHIFT), block) {
            block.add(side, is_fault);
        }
        let executed = self.executed.get(thread as usize).copied().unwrap_or(0);
        let code = if side == Side::Instruction { addr } else { executed } & !(CODE_BYTES - 1);
        if let Some(page) = slot(&mut self.code, (program, code), || file_of(space, code)) {
            page.add(side, is_fault);
        }
    }

    pub(crate) fn finish(&self, meta: &Meta) -> Regions {
        Regions { code: self.code(meta), ..self.blocks(meta) }
    }

    fn code(&self, meta: &Meta) -> Vec<CodePage> {
        let page = |((program, start), counted): (Key, Counted<Option<(FileId, u64)>>)| {
            let [data_walks, instruction_walks] = by_side(counted.walks);
            let (file, pos) = counted.place.unzip();
            CodePage {
                program,
                start,
                path: path(meta, file),
                pos: pos.unwrap_or(0),
                data_walks,
                instruction_walks,
                faults: counted.faults,
            }
        };
        sorted(&self.code).into_iter().take(NR_BLOCKS_MAX).map(page).collect()
    }

    fn blocks(&self, meta: &Meta) -> Regions {
        let blocks = sorted(&self.blocks);
        let sums: Vec<u64> = blocks
            .iter()
            .scan(0, |sum, (_, counted)| {
                *sum += counted.walks();
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
                .map(|((program, block), counted)| {
                    let [data_walks, instruction_walks] = by_side(counted.walks);
                    let (kind, file) = counted.place;
                    Block {
                        program,
                        start: block << BLOCK_SHIFT,
                        kind,
                        path: path(meta, file),
                        data_walks,
                        instruction_walks,
                        faults: counted.faults,
                    }
                })
                .collect(),
            code: Vec::new(),
        }
    }
}

/// Returns the entry of `key`, a new one at `place` if there is room.
fn slot<P>(
    counted: &mut HashMap<Key, Counted<P>>,
    key: Key,
    place: impl FnOnce() -> P,
) -> Option<&mut Counted<P>> {
    if counted.len() >= NR_COUNTED_MAX && !counted.contains_key(&key) {
        return None;
    }
    Some(counted.entry(key).or_insert_with(|| Counted::at(place())))
}

/// Returns the entries by walks, most first. The order of a hash map is arbitrary, that of a result
/// is not.
fn sorted<P: Copy>(counted: &HashMap<Key, Counted<P>>) -> Vec<(Key, Counted<P>)> {
    let mut all: Vec<_> = counted.iter().map(|(&key, &counted)| (key, counted)).collect();
    all.sort_by_key(|(key, counted)| (u64::MAX - counted.walks(), *key));
    all
}

/// Returns the walks for data and for instructions.
const fn by_side(walks: [u64; 2]) -> [u64; 2] {
    [walks[Side::Data as usize], walks[Side::Instruction as usize]]
}

pub(super) fn path(meta: &Meta, file: Option<FileId>) -> String {
    let file = file.and_then(|file| meta.files.get(file as usize));
    file.map_or_else(String::new, |file| file.path.clone())
}

/// Returns the file that `addr` maps, and the position in it.
fn file_of(space: &AddressSpace, addr: u64) -> Option<(FileId, u64)> {
    let segment = space.segments.find(addr)?;
    let (file, pos) = segment.file?;
    Some((file, pos + (addr - segment.start)))
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
