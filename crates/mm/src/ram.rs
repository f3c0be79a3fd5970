//! Memory with or without bytes.
//!
//! [`Counted`] keeps no bytes and only counts reads, zeroing and copies. [`Bytes`] is real memory.
//! No decision may depend on the implementation.
//!
//! A [`Plan`] sets the order in which a folio is zeroed or copied.

mod bytes;
mod stretches;

pub use bytes::{Bytes, stored_byte};
pub use stretches::{ByUnit, Stretch, Stretches, Work};

use largefolio_bulk::plan::Plan;

use crate::units::{MappingId, PageIndex, Pfn};

/// Pages of a file, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePages {
    /// The pages' file.
    pub file: MappingId,
    /// Index of the first page.
    pub index: PageIndex,
}

/// Physical memory and file storage, as the memory manager uses them.
pub trait Ram {
    /// Zeroes `nr_pages` frames from `pfn` in ascending order; no program waits for one of them.
    fn zero(&mut self, pfn: Pfn, nr_pages: u64);
    /// Zeroes bytes `from .. to`, counted from the start of frame `pfn`, for truncation.
    fn zero_bytes(&mut self, pfn: Pfn, from: u64, to: u64);
    /// Zeroes the folio at `pfn` in the order of `plan`, which covers its frames (D.4).
    fn clear_folio(&mut self, pfn: Pfn, plan: &Plan);
    /// Copies one frame.
    fn copy_page(&mut self, from: Pfn, to: Pfn);
    /// Copies frames from `from` on to frames from `to` on, in the order of `plan` (D.4.5).
    fn copy_folio(&mut self, from: Pfn, to: Pfn, plan: &Plan);
    /// Reads `nr_pages` frames from a file.
    fn read_in(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages);
    /// Writes `nr_pages` frames to a file's storage.
    fn write_out(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages);
    /// Writes one frame to a slot of swap space.
    fn swap_out(&mut self, pfn: Pfn, slot: u64);
    /// Reads one frame from a slot of swap space.
    fn swap_in(&mut self, slot: u64, pfn: Pfn);
    /// Frees a slot of swap space.
    fn swap_free(&mut self, slot: u64);
    /// Adds a file of `size_bytes` to storage.
    fn add_file(&mut self, file: MappingId, size_bytes: u64);
    /// Removes bytes `from .. to` of a file from storage: they read as zeroes.
    fn punch(&mut self, file: MappingId, from: u64, to: u64);
}

/// Totals of executed plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Folios moved by plans.
    pub nr_folios: u64,
    /// Units: consecutive pages moved in one call.
    pub nr_units: u64,
    /// Bytes zeroed or copied.
    pub nr_bytes: u64,
    /// Reschedule points passed.
    pub nr_points: u64,
    /// The last plan and its first frame, for the order of its units.
    pub last: Option<(Pfn, Plan)>,
}

impl Moved {
    fn add(&mut self, pfn: Pfn, plan: &Plan) {
        self.nr_folios += 1;
        self.nr_units += plan.nr_units();
        self.nr_bytes += plan.shape().len_bytes();
        self.nr_points += plan.nr_points();
        self.last = Some((pfn, *plan));
    }
}

/// Unit sizes in [`Counted::zeroed_by_unit`]: up to 2^20 pages, the largest folio.
pub const NR_UNITS: usize = 21;

/// Memory without bytes: counts only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Pages filled with zeroes.
    pub nr_zeroed: u64,
    /// Pages copied, in huge pages or singly.
    pub nr_copied: u64,
    /// Pages read from files.
    pub nr_read: u64,
    /// Pages written to files.
    pub nr_written: u64,
    /// Pages written to swap space.
    pub nr_swapped_out: u64,
    /// Pages read from swap space.
    pub nr_swapped_in: u64,
    /// Pages of `nr_zeroed` by log2 of their unit, rounded to the nearest power of two. The unit is
    /// the plan's if the architecture has a primitive for it; background zeroing uses single pages.
    /// The last entry counts all larger units.
    pub zeroed_by_unit: [u64; NR_UNITS],
    /// Folios zeroed around a page.
    pub cleared: Moved,
    /// Pages of `nr_copied` by log2 of their unit, as in `zeroed_by_unit`.
    pub copied_by_unit: [u64; NR_UNITS],
    /// Copies by a plan: huge pages, and pages moved by compaction or gathered by collapse.
    pub copied: Moved,
}

fn add_units(by_unit: &mut [u64; NR_UNITS], plan: &Plan) {
    for unit in plan.units() {
        by_unit[log2_of(plan.at_once(unit))] += unit.nr;
    }
}

fn log2_of(nr: u64) -> usize {
    let log2 = (nr + nr / 2).checked_ilog2().unwrap_or(0) as usize;
    log2.min(NR_UNITS - 1)
}

impl Ram for Counted {
    fn zero(&mut self, _pfn: Pfn, nr_pages: u64) {
        self.nr_zeroed += nr_pages;
        self.zeroed_by_unit[0] += nr_pages;
    }

    fn zero_bytes(&mut self, _pfn: Pfn, _from: u64, _to: u64) {}

    fn clear_folio(&mut self, pfn: Pfn, plan: &Plan) {
        self.nr_zeroed += plan.shape().nr_pages;
        add_units(&mut self.zeroed_by_unit, plan);
        self.cleared.add(pfn, plan);
    }

    fn copy_page(&mut self, _from: Pfn, _to: Pfn) {
        self.nr_copied += 1;
        self.copied_by_unit[0] += 1;
    }

    fn copy_folio(&mut self, _from: Pfn, to: Pfn, plan: &Plan) {
        self.nr_copied += plan.shape().nr_pages;
        add_units(&mut self.copied_by_unit, plan);
        self.copied.add(to, plan);
    }

    fn read_in(&mut self, _pfn: Pfn, nr_pages: u64, _pages: FilePages) {
        self.nr_read += nr_pages;
    }

    fn write_out(&mut self, _pfn: Pfn, nr_pages: u64, _pages: FilePages) {
        self.nr_written += nr_pages;
    }

    fn swap_out(&mut self, _pfn: Pfn, _slot: u64) {
        self.nr_swapped_out += 1;
    }

    fn swap_in(&mut self, _slot: u64, _pfn: Pfn) {
        self.nr_swapped_in += 1;
    }

    fn swap_free(&mut self, _slot: u64) {}

    fn add_file(&mut self, _file: MappingId, _size_bytes: u64) {}

    fn punch(&mut self, _file: MappingId, _from: u64, _to: u64) {}
}
