//! Counts a mapping's folios page by page, with one read each: slow, but too simple to be wrong.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use largefolio_linux::census::folios::{Size, Tally};

const PAGE: u64 = 4096;

/// Aligned, unaligned and partial bytes, by order.
pub(crate) type ByOrder = BTreeMap<u32, [u64; 3]>;

pub(crate) fn by_order(tally: &Tally) -> ByOrder {
    let mut counted = ByOrder::new();
    for (_, size, cell) in tally.cells() {
        let Size::Order(order) = size else { panic!("sizes are known") };
        let bytes = counted.entry(order).or_default();
        bytes[0] += cell.aligned_bytes;
        bytes[1] += cell.unaligned_bytes;
        bytes[2] += cell.partial_bytes;
    }
    counted
}

struct Flags {
    file: File,
    known: BTreeMap<u64, u64>,
}

impl Flags {
    fn has(&mut self, pfn: u64, bit: u32) -> bool {
        let flags = *self.known.entry(pfn).or_insert_with(|| entry(&self.file, pfn));
        flags >> bit & 1 == 1
    }

    /// Returns the head and order of a page's folio: bit 15 marks a head, 16 a tail.
    fn folio(&mut self, pfn: u64) -> (u64, u32) {
        let mut head = pfn;
        while self.has(head, 16) {
            head -= 1;
        }
        let mut nr = 1;
        while self.has(head, 15) && self.has(head + nr, 16) {
            nr += 1;
        }
        (head, nr.ilog2())
    }
}

fn entry(file: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    let nr = file.read_at(&mut bytes, at * 8).unwrap();
    if nr == 8 { u64::from_ne_bytes(bytes) } else { 0 }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) counted: ByOrder,
    /// Each present page's PFN. Two counts with equal PFNs saw unchanged memory.
    pfns: BTreeMap<u64, u64>,
}

pub(crate) fn snapshot(pid: u32, range: &Range<u64>) -> Snapshot {
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let file = File::open("/proc/kpageflags").unwrap();
    let mut flags = Flags { file, known: BTreeMap::new() };
    let mut pfns = BTreeMap::new();
    for page in range.start / PAGE..range.end / PAGE {
        let entry = entry(&pagemap, page);
        if entry >> 63 == 1 {
            pfns.insert(page, entry & ((1 << 55) - 1));
        }
    }
    let mut counted = ByOrder::new();
    for (&page, &pfn) in &pfns {
        let (head, order) = flags.folio(pfn);
        let first = page.wrapping_sub(pfn - head);
        let is_whole =
            (0..1 << order).all(|at| pfns.get(&(first.wrapping_add(at))) == Some(&(head + at)));
        let class = match (is_whole, first % (1 << order) == 0) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        };
        counted.entry(order).or_default()[class] += PAGE;
    }
    Snapshot { counted, pfns }
}
