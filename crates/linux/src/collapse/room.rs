//! The memory that a collapse needs, and the memory that is available.
//!
//! A block with a single page takes a whole folio, so a sparse mapping can grow 512-fold. Each
//! block's need is counted first; then the densest blocks are collapsed until the available memory
//! is used up.
//!
//! Invariant R1: the chosen blocks fit in the available memory and leave a reserve for other
//! processes.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::CollapseKind;
use crate::census::block::FileBlock;
use crate::proc::cgroup::{self, Room};
use crate::proc::{Task, host};
use crate::system::entry::PRESENT;
use crate::system::{Entries, Present, System};

/// Pages per scan. Their ranges take at most 12 MiB.
const WINDOW_PAGES: u64 = 1 << 20;
const READ_PAGES: usize = 1 << 13;
/// Fraction of the machine and of a cgroup that stays free for other processes, as for copies of
/// text.
const FREE_PART: u64 = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Available {
    pub bytes: u64,
    /// The cgroup that sets the limit, `None` if the machine does.
    pub group: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    pub wanted_bytes: u64,
    pub taken_bytes: u64,
    pub available: Available,
    pub nr_blocks: u64,
    pub nr_left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) kind: CollapseKind,
    /// The block of a file, which several mappings can share.
    pub(super) file: Option<FileBlock>,
    pub(super) resident_bytes: u64,
    /// Memory that collapsing it takes in addition to the resident pages.
    pub(super) takes_bytes: u64,
}

pub(super) fn available(system: &dyn System, task: &Task<'_>) -> Available {
    let less_free = |bytes: u64, all: u64| bytes.saturating_sub(all / FREE_PART);
    let all = host::memory_bytes(system).unwrap_or(0);
    let of_machine = host::available_bytes(system).map_or(u64::MAX, |bytes| less_free(bytes, all));
    let own = task.cgroups().unwrap_or_default();
    let groups = cgroup::limits_of(system, &own).into_iter().map(|limit| Available {
        bytes: less_free(limit.room_bytes(Room::WithColdFiles), limit.max_bytes),
        group: Some(limit.group),
    });
    let machine = Available { bytes: of_machine, group: None };
    groups.chain([machine.clone()]).min_by_key(|room| room.bytes).unwrap_or(machine)
}

/// Calls `each` with every present range in `pages`. A scan also finds swapped pages, which only
/// their entries show. Before Linux 6.7, this reads the entries of all pages.
fn present(
    entries: &dyn Entries,
    pages: Range<u64>,
    each: &mut dyn FnMut(&Present),
) -> io::Result<()> {
    let (mut present, mut buffer) = (Vec::new(), vec![0; READ_PAGES]);
    let mut first = pages.start;
    while first < pages.end {
        let window = first..pages.end.min(first.saturating_add(WINDOW_PAGES));
        present.clear();
        match entries.scan(window.clone(), &mut present) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                present.push(Present { pages: window.clone(), is_pmd: false });
            }
            scanned => scanned?,
        }
        for range in &present {
            if range.is_pmd {
                each(range);
            } else {
                read(entries, range.pages.clone(), &mut buffer, each)?;
            }
        }
        first = window.end;
    }
    Ok(())
}

fn read(
    entries: &dyn Entries,
    pages: Range<u64>,
    buffer: &mut [u64],
    each: &mut dyn FnMut(&Present),
) -> io::Result<()> {
    let mut first = pages.start;
    while first < pages.end {
        let left = usize::try_from(pages.end - first).unwrap_or(usize::MAX);
        let nr = left.min(buffer.len());
        let nr_read = entries.read(first, &mut buffer[..nr])?;
        let is_alike = |a: &u64, b: &u64| (a ^ b) & PRESENT == 0;
        let mut page = first;
        for alike in buffer[..nr_read].chunk_by(is_alike) {
            let pages = page..page + alike.len() as u64;
            page = pages.end;
            if alike[0] & PRESENT != 0 {
                each(&Present { pages, is_pmd: false });
            }
        }
        if nr_read < nr {
            break;
        }
        first += nr as u64;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) kind: CollapseKind,
    pub(super) first_address: u64,
    pub(super) nr_blocks: u64,
    pub(super) resident_bytes: u64,
    /// The part shared with other processes. Collapse copies private memory of this kind.
    pub(super) shared_bytes: u64,
}

pub(super) fn read_again(
    entries: &dyn Entries,
    area: &Area,
    mut tried: Vec<Block>,
    [page_bytes, block_bytes]: [u64; 2],
) -> io::Result<Vec<Block>> {
    let block_now = blocks(entries, area, page_bytes, block_bytes)?;
    for block in &mut tried {
        if let Ok(at) =
            block_now.binary_search_by_key(&block.address, |block_now| block_now.address)
        {
            *block = Block { file: block.file, ..block_now[at] };
        }
    }
    Ok(tried)
}

fn blocks(
    entries: &dyn Entries,
    area: &Area,
    page_bytes: u64,
    block_bytes: u64,
) -> io::Result<Vec<Block>> {
    let block_pages = block_bytes / page_bytes;
    let first = area.first_address / page_bytes;
    let pages = first..first.saturating_add(area.nr_blocks.saturating_mul(block_pages));
    let mut blocks: Vec<Block> = Vec::new();
    let mut add = |block: u64, bytes: u64, is_pmd: bool| {
        let address = area.first_address + block * block_bytes;
        if blocks.last().is_none_or(|last| last.address != address) {
            let (resident_bytes, takes_bytes) = (0, 0);
            blocks.push(Block {
                address,
                kind: area.kind,
                file: None,
                resident_bytes,
                takes_bytes,
            });
        }
        let Some(last) = blocks.last_mut() else { return };
        last.resident_bytes = (last.resident_bytes + bytes).min(block_bytes);
        last.takes_bytes = if is_pmd { 0 } else { area.takes(last.resident_bytes, block_bytes) };
    };
    present(entries, pages, &mut |present| {
        let mut page = present.pages.start;
        while page < present.pages.end {
            let block = (page - first) / block_pages;
            let end = present.pages.end.min(first + (block + 1) * block_pages);
            add(block, (end - page) * page_bytes, present.is_pmd);
            page = end;
        }
    })?;
    Ok(blocks)
}

impl Area {
    fn takes(&self, resident_bytes: u64, block_bytes: u64) -> u64 {
        let shared = u128::from(resident_bytes) * u128::from(self.shared_bytes);
        let copied = shared.div_ceil(u128::from(self.resident_bytes.max(1)));
        let copied = u64::try_from(copied).unwrap_or(u64::MAX).min(resident_bytes);
        block_bytes - resident_bytes + copied
    }
}

/// Counts the memory of a file's block only once, because its mappings share the folio. The mapping
/// with the most pages decides. Returns the blocks densest first, with those of one folio together.
fn once(mut blocks: Vec<Block>) -> Vec<Block> {
    let mut least: BTreeMap<FileBlock, u64> = BTreeMap::new();
    for block in &blocks {
        if let Some(file) = block.file {
            let bytes = least.entry(file).or_insert(block.takes_bytes);
            *bytes = block.takes_bytes.min(*bytes);
        }
    }
    let least = |block: &Block| block.file.map_or(block.takes_bytes, |file| least[&file]);
    blocks.sort_by_key(|block| (least(block), block.file, block.address));
    let mut last_block = None;
    for block in &mut blocks {
        let is_again = block.file.is_some() && block.file == last_block;
        block.takes_bytes = if is_again { 0 } else { least(block) };
        last_block = block.file;
    }
    blocks
}

/// Splits `blocks` into those that fit into the available memory, densest first, and the rest. Both
/// are sorted by address.
pub(super) fn choose(
    blocks: Vec<Block>,
    available: Available,
) -> (Vec<Block>, Vec<Block>, Forecast) {
    let mut blocks = once(blocks);
    let mut taken_bytes = 0_u64;
    let nr = blocks.iter().take_while(|block| {
        taken_bytes = taken_bytes.saturating_add(block.takes_bytes);
        taken_bytes <= available.bytes
    });
    let nr = nr.count();
    let sum = |blocks: &[Block]| blocks.iter().map(|block| block.takes_bytes).sum();
    let wanted_bytes = sum(&blocks);
    let mut left = blocks.split_off(nr);
    let forecast = Forecast {
        wanted_bytes,
        taken_bytes: sum(&blocks),
        available,
        nr_blocks: blocks.len() as u64,
        nr_left: left.len() as u64,
    };
    for blocks in [&mut blocks, &mut left] {
        blocks.sort_by_key(|block| block.address);
    }
    (blocks, left, forecast)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::census::block::BlockPlace;
    use crate::proc::maps::Vma;
    use crate::system::MemSystem;

    const M2: u64 = 2 << 20;
    const PAGE: u64 = 4096;

    /// Present pages, as a kernel with or without `PAGEMAP_SCAN` reports them.
    struct Pages {
        present: Vec<Range<u64>>,
        swapped: Vec<Range<u64>>,
        can_scan: bool,
    }

    impl Pages {
        fn of(present: Vec<Range<u64>>, can_scan: bool) -> Self {
            Self { present, swapped: Vec::new(), can_scan }
        }
    }

    impl Entries for Pages {
        fn read(&self, first: u64, entries: &mut [u64]) -> io::Result<usize> {
            for (page, entry) in (first..).zip(entries.iter_mut()) {
                let is_present = self.present.iter().any(|range| range.contains(&page));
                *entry = if is_present { PRESENT } else { 0 };
            }
            Ok(entries.len())
        }

        fn scan(&self, pages: Range<u64>, present: &mut Vec<Present>) -> io::Result<()> {
            if !self.can_scan {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let cut = |range: &Range<u64>| range.start.max(pages.start)..range.end.min(pages.end);
            let ranges = self.present.iter().chain(&self.swapped);
            let ranges = ranges.map(cut).filter(|range| !range.is_empty());
            present.extend(ranges.map(|pages| Present { pages, is_pmd: false }));
            Ok(())
        }
    }

    fn area(nr_blocks: u64, resident_bytes: u64, shared_bytes: u64) -> Area {
        Area {
            kind: CollapseKind::Anon,
            first_address: M2,
            nr_blocks,
            resident_bytes,
            shared_bytes,
        }
    }

    #[test]
    fn a_block_takes_what_it_lacks_and_one_without_a_page_is_none() {
        // The first block has one page, the second none, the third and the fourth are half full.
        let present = vec![600..601, 512 * 4 - 256..512 * 4 + 256];
        for can_scan in [true, false] {
            let pages = Pages::of(present.clone(), can_scan);
            let judged = blocks(&pages, &area(4, 513 * PAGE, 0), PAGE, M2).unwrap();
            let result: Vec<_> = judged.iter().map(|b| (b.address / M2, b.takes_bytes)).collect();
            assert_eq!(result, [(1, M2 - PAGE), (3, M2 / 2), (4, M2 / 2)], "{can_scan}");
        }
    }

    #[test]
    fn what_is_in_swap_space_is_not_in_memory() {
        for can_scan in [true, false] {
            let (present, swapped) = (vec![512..612; 1], vec![612..1024; 1]);
            let pages = Pages { present, swapped, can_scan };
            let judged = blocks(&pages, &area(1, 100 * PAGE, 0), PAGE, M2).unwrap();
            let bytes = (judged[0].resident_bytes, judged[0].takes_bytes);
            assert_eq!(bytes, (100 * PAGE, 412 * PAGE), "{can_scan}");
        }
    }

    #[test]
    fn shared_pages_are_copied() {
        let pages = Pages::of(vec![512..1024; 1], true);
        let judged = blocks(&pages, &area(1, M2, M2 / 2), PAGE, M2).unwrap();
        assert_eq!(judged[0].takes_bytes, M2 / 2);
        let all = blocks(&pages, &area(1, M2, M2), PAGE, M2).unwrap();
        assert_eq!(all[0].takes_bytes, M2);
    }

    #[test]
    fn chosen_blocks_fit_into_memory_and_the_densest_come_first() {
        for bytes in (0..200).map(|nr| nr * M2 / 3) {
            let blocks: Vec<Block> = (0..64)
                .map(|nr| Block {
                    address: nr * M2,
                    kind: CollapseKind::Anon,
                    file: None,
                    resident_bytes: M2 - nr * PAGE,
                    takes_bytes: (nr * 37 % 64) * PAGE,
                })
                .collect();
            let (taken, left, forecast) = choose(blocks, Available { bytes, group: None });
            assert!(forecast.taken_bytes <= bytes && taken.len() + left.len() == 64);
            assert!(forecast.wanted_bytes <= bytes || !left.is_empty());
            let most = taken.iter().map(|block| block.takes_bytes).max();
            assert!(left.iter().all(|block| Some(block.takes_bytes) >= most));
            assert!(taken.is_sorted_by_key(|block| block.address));
        }
    }

    /// Mappings of one file with different pages. They share a folio, and the mapping with the most
    /// pages decides how much it takes.
    #[test]
    fn a_block_of_a_file_takes_memory_once() {
        for bytes in (0..80).map(|nr| nr * PAGE) {
            let blocks = (0..4_u64).flat_map(|view| {
                let vma =
                    Vma { range: view << 40..(view << 40) + 8 * M2, inode: 1, ..Vma::default() };
                let place = BlockPlace::of(&vma).unwrap();
                (0..8).map(move |nr| {
                    let address = (view << 40) + nr * M2;
                    let file = Some(place.block(9, address / M2, M2));
                    let takes_bytes = (nr * 7 % 8 + 1 + (view + nr) % 4) * PAGE;
                    let kind = CollapseKind::Shmem;
                    Block { address, kind, file, resident_bytes: PAGE, takes_bytes }
                })
            });
            let (taken, left, forecast) =
                choose(blocks.collect(), Available { bytes, group: None });
            assert_eq!(forecast.wanted_bytes, (1..=8).sum::<u64>() * PAGE);
            assert!(forecast.taken_bytes <= bytes && taken.len() + left.len() == 32);
            let sum: u64 = taken.iter().map(|block| block.takes_bytes).sum();
            assert_eq!(sum, forecast.taken_bytes);
            let is_left = |block: &Block| left.iter().any(|other| other.file == block.file);
            assert!(!taken.iter().any(is_left), "a folio is taken or left as a whole");
        }
    }

    #[test]
    fn the_smallest_of_machine_and_groups_limits() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("page_bytes", "4096");
        put("meminfo", "MemTotal: 3200 kB\nMemAvailable: 1000 kB\n");
        put("7/cgroup", "0::/a/b\n");
        let system = MemSystem::from_dir(dir.path());
        let now = || available(&system, &Task::of(&system, 7));
        assert_eq!(now(), Available { bytes: 900 << 10, group: None });
        put("sys/fs/cgroup/a/memory.max", "65536");
        put("sys/fs/cgroup/a/memory.current", "32768");
        assert_eq!(now(), Available { bytes: 30 << 10, group: Some("/a".to_owned()) });
    }
}
