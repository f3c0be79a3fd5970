//! Memory that holds its bytes, and the storage of files.
//!
//! Storage holds a pattern of file and position ([`stored_byte`]), so any byte of any file can be
//! checked without a copy.

use std::collections::BTreeMap;
use std::ops::Range;

use largefolio_bulk::plan::Plan;
use largefolio_bulk::{Residency, clear_extent, clear_folio, copy_extent, copy_folio};

use super::{Counted, FilePages, Ram};
use crate::buddy::has_room;
use crate::units::{MappingId, PageSize, Pfn};

/// Real memory: loads return the stored bytes.
#[derive(Clone, Debug)]
pub struct Bytes {
    page: PageSize,
    memory: Vec<u8>,
    files: BTreeMap<MappingId, Stored>,
    slots: BTreeMap<u64, Box<[u8]>>,
    /// The counts of memory without bytes.
    pub counted: Counted,
}

#[derive(Clone, Debug, Default)]
struct Stored {
    size_bytes: u64,
    holes: Vec<(u64, u64)>,
    written: BTreeMap<u64, Box<[u8]>>,
}

/// The byte that storage holds at `pos` of a file: never 0, so a missing zero is noticed.
#[must_use]
pub const fn stored_byte(file: MappingId, pos: u64) -> u8 {
    let mixed = (pos ^ ((file.0 as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 | 1
}

impl Bytes {
    /// Creates `ram_bytes` of memory in frames of `page`. The host allocates a page on first use.
    #[must_use]
    pub fn new(page: PageSize, ram_bytes: u64) -> Self {
        let memory = vec![0; ram_bytes as usize];
        Self {
            page,
            memory,
            files: BTreeMap::new(),
            slots: BTreeMap::new(),
            counted: Counted::default(),
        }
    }

    /// Like [`Bytes::new`]; `None` if the host has no room, for example under `ulimit -v`.
    #[must_use]
    pub fn try_new(page: PageSize, ram_bytes: u64) -> Option<Self> {
        has_room(ram_bytes).then(|| Self::new(page, ram_bytes))
    }

    /// Returns a frame's bytes.
    #[must_use]
    pub fn frame(&self, pfn: Pfn) -> &[u8] {
        &self.memory[self.range(pfn, 0, self.page.bytes())]
    }

    /// Returns a frame's bytes for stores.
    pub fn frame_mut(&mut self, pfn: Pfn) -> &mut [u8] {
        let range = self.range(pfn, 0, self.page.bytes());
        &mut self.memory[range]
    }

    /// Returns `len_bytes` from frame `from` to read, and from frame `to` to write.
    ///
    /// # Panics
    /// Panics if the two overlap: a copy needs separate frames.
    fn pair(&mut self, from: Pfn, to: Pfn, len_bytes: u64) -> (&[u8], &mut [u8]) {
        let (from, to) = (self.range(from, 0, len_bytes), self.range(to, 0, len_bytes));
        assert!(from.end <= to.start || to.end <= from.start, "a copy over its own source");
        if from.start < to.start {
            let (low, high) = self.memory.split_at_mut(to.start);
            (&low[from], &mut high[..to.len()])
        } else {
            let (low, high) = self.memory.split_at_mut(from.start);
            (&high[..from.len()], &mut low[to])
        }
    }

    fn range(&self, pfn: Pfn, from: u64, to: u64) -> Range<usize> {
        let first = pfn.0 << self.page.shift();
        (first + from) as usize..(first + to) as usize
    }
}

impl Ram for Bytes {
    fn zero(&mut self, pfn: Pfn, nr_pages: u64) {
        self.counted.zero(pfn, nr_pages);
        let range = self.range(pfn, 0, nr_pages << self.page.shift());
        clear_extent(&mut self.memory[range], Residency::Unknown);
    }

    fn zero_bytes(&mut self, pfn: Pfn, from: u64, to: u64) {
        let range = self.range(pfn, from, to);
        clear_extent(&mut self.memory[range], Residency::Unknown);
    }

    fn clear_folio(&mut self, pfn: Pfn, plan: &Plan) {
        self.counted.clear_folio(pfn, plan);
        let range = self.range(pfn, 0, plan.shape().len_bytes());
        let Ok(()) = clear_folio(&mut self.memory[range], plan, || {}) else {
            unreachable!("the range is that of the plan")
        };
    }

    fn copy_page(&mut self, from: Pfn, to: Pfn) {
        self.counted.copy_page(from, to);
        let (source, target) = self.pair(from, to, self.page.bytes());
        let Ok(()) = copy_extent(target, source, Residency::TouchedNow) else {
            unreachable!("a frame is as long as another")
        };
    }

    fn copy_folio(&mut self, from: Pfn, to: Pfn, plan: &Plan) {
        self.counted.copy_folio(from, to, plan);
        let (source, target) = self.pair(from, to, plan.shape().len_bytes());
        let Ok(()) = copy_folio(target, source, plan, || {}) else {
            unreachable!("both ranges are those of the plan")
        };
    }

    fn read_in(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages) {
        self.counted.read_in(pfn, nr_pages, pages);
        let FilePages { file, index } = pages;
        let first = index.0 << self.page.shift();
        let end = first + (nr_pages << self.page.shift());
        let range = self.range(pfn, 0, nr_pages << self.page.shift());
        let target = &mut self.memory[range];
        target.fill(0);
        let Some(stored) = self.files.get(&file) else { return };
        for (byte, pos) in target.iter_mut().zip(first..end.min(stored.size_bytes)) {
            *byte = stored_byte(file, pos);
        }
        for &(from, to) in &stored.holes {
            let (from, to) = (from.max(first), to.min(end));
            if from < to {
                target[(from - first) as usize..(to - first) as usize].fill(0);
            }
        }
        let page_bytes = self.page.bytes() as usize;
        for (&at, page) in stored.written.range(index.0..index.0 + nr_pages) {
            let from = (at - index.0) as usize * page_bytes;
            target[from..from + page_bytes].copy_from_slice(page);
        }
    }

    fn write_out(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages) {
        self.counted.write_out(pfn, nr_pages, pages);
        for by in 0..nr_pages {
            let page = Box::from(self.frame(pfn.plus(by)));
            let stored = self.files.entry(pages.file).or_default();
            stored.written.insert(pages.index.0 + by, page);
        }
    }

    fn swap_out(&mut self, pfn: Pfn, slot: u64) {
        self.counted.swap_out(pfn, slot);
        let page = Box::from(self.frame(pfn));
        self.slots.insert(slot, page);
    }

    fn swap_in(&mut self, slot: u64, pfn: Pfn) {
        self.counted.swap_in(slot, pfn);
        let range = self.range(pfn, 0, self.page.bytes());
        if let Some(page) = self.slots.get(&slot) {
            self.memory[range].copy_from_slice(page);
        }
    }

    fn swap_free(&mut self, slot: u64) {
        self.slots.remove(&slot);
    }

    fn add_file(&mut self, file: MappingId, size_bytes: u64) {
        self.files.insert(file, Stored { size_bytes, ..Stored::default() });
    }

    fn punch(&mut self, file: MappingId, from: u64, to: u64) {
        let Some(stored) = self.files.get_mut(&file) else { return };
        let shift = self.page.shift();
        for (&at, page) in stored.written.range_mut(from >> shift..) {
            let start = at << shift;
            let (from, to) = (from.max(start), to.min(start + page.len() as u64));
            if from >= to {
                break;
            }
            page[(from - start) as usize..(to - start) as usize].fill(0);
        }
        if to >= stored.size_bytes {
            stored.size_bytes = stored.size_bytes.min(from);
        } else {
            stored.holes.push((from, to));
        }
    }
}
