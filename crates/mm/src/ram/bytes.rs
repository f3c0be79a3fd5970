//! Memory that holds real bytes, and the storage behind files.
//!
//! Owns one buffer for all frames and, for each file, the record of which bytes are still in
//! storage. Storage contents are a pattern computed from file and position ([`stored_byte`]), so
//! any byte in any file can be checked without keeping a copy.

use std::collections::BTreeMap;
use std::ops::Range;

use largefolio_bulk::plan::Plan;
use largefolio_bulk::{Residency, clear_extent, clear_folio, copy_extent, copy_folio};

use super::FilePages;
use crate::units::{MappingId, PageSize, Pfn};

/// Real memory: what is stored is read back.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    page: PageSize,
    memory: Vec<u8>,
    files: BTreeMap<MappingId, Stored>,
    /// Swap space, slot by slot.
    slots: BTreeMap<u64, Box<[u8]>>,
}

/// What storage holds of a file.
#[derive(Clone, Debug, Default)]
struct Stored {
    size_bytes: u64,
    /// Ranges that were punched or truncated away.
    holes: Vec<(u64, u64)>,
    /// Pages written back, by index.
    written: BTreeMap<u64, Box<[u8]>>,
}

/// The byte that storage holds at `pos` of a file: never 0, so that a byte that should have been
/// zeroed is seen.
#[must_use]
pub const fn stored_byte(file: MappingId, pos: u64) -> u8 {
    let mixed = (pos ^ ((file.0 as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 | 1
}

impl Bytes {
    /// `ram_bytes` of memory in frames of `page`; backed by the host where it is used.
    pub(super) fn new(page: PageSize, ram_bytes: u64) -> Self {
        let memory = vec![0; ram_bytes as usize];
        Self { page, memory, files: BTreeMap::new(), slots: BTreeMap::new() }
    }

    /// The bytes of one frame.
    pub(super) fn frame(&self, pfn: Pfn) -> &[u8] {
        &self.memory[self.range(pfn, 0, self.page.bytes())]
    }

    /// The bytes of one frame, to store to.
    pub(super) fn frame_mut(&mut self, pfn: Pfn) -> &mut [u8] {
        let range = self.range(pfn, 0, self.page.bytes());
        &mut self.memory[range]
    }

    /// The bytes of `len` from frame `from`, and those from frame `to` to copy them over.
    ///
    /// # Panics
    /// When the two overlap: a copy has frames of its own.
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

    /// Bytes `from .. to` from the start of frame `pfn`.
    fn range(&self, pfn: Pfn, from: u64, to: u64) -> Range<usize> {
        let first = pfn.0 << self.page.shift();
        (first + from) as usize..(first + to) as usize
    }

    pub(super) fn zero(&mut self, pfn: Pfn, nr_pages: u64) {
        let range = self.range(pfn, 0, nr_pages << self.page.shift());
        clear_extent(&mut self.memory[range], Residency::Unknown);
    }

    pub(super) fn zero_bytes(&mut self, pfn: Pfn, from: u64, to: u64) {
        let range = self.range(pfn, from, to);
        clear_extent(&mut self.memory[range], Residency::Unknown);
    }

    pub(super) fn clear_folio(&mut self, pfn: Pfn, plan: &Plan) {
        let range = self.range(pfn, 0, plan.shape().len_bytes());
        let Ok(()) = clear_folio(&mut self.memory[range], plan, || {}) else {
            unreachable!("the range matches the plan")
        };
    }

    pub(super) fn copy_page(&mut self, from: Pfn, to: Pfn) {
        let (source, target) = self.pair(from, to, self.page.bytes());
        let Ok(()) = copy_extent(target, source, Residency::TouchedNow) else {
            unreachable!("a frame is as long as another")
        };
    }

    pub(super) fn copy_folio(&mut self, from: Pfn, to: Pfn, plan: &Plan) {
        let (source, target) = self.pair(from, to, plan.shape().len_bytes());
        let Ok(()) = copy_folio(target, source, plan, || {}) else {
            unreachable!("both ranges match the plan")
        };
    }

    pub(super) fn read_in(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages) {
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

    pub(super) fn write_out(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages) {
        for by in 0..nr_pages {
            let page = Box::from(self.frame(pfn.plus(by)));
            let stored = self.files.entry(pages.file).or_default();
            stored.written.insert(pages.index.0 + by, page);
        }
    }

    pub(super) fn swap_out(&mut self, pfn: Pfn, slot: u64) {
        let page = Box::from(self.frame(pfn));
        self.slots.insert(slot, page);
    }

    pub(super) fn swap_in(&mut self, slot: u64, pfn: Pfn) {
        let range = self.range(pfn, 0, self.page.bytes());
        if let Some(page) = self.slots.get(&slot) {
            self.memory[range].copy_from_slice(page);
        }
    }

    pub(super) fn swap_free(&mut self, slot: u64) {
        self.slots.remove(&slot);
    }

    pub(super) fn add_file(&mut self, file: MappingId, size_bytes: u64) {
        self.files.insert(file, Stored { size_bytes, ..Stored::default() });
    }

    pub(super) fn punch(&mut self, file: MappingId, from: u64, to: u64) {
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
        // A file that is cut at its end does not get a hole each time.
        if to >= stored.size_bytes {
            stored.size_bytes = stored.size_bytes.min(from);
        } else {
            stored.holes.push((from, to));
        }
    }
}
