//! Whether memory has bytes.
//!
//! Owns the seam between the decisions of the memory manager and the bytes they move. [`Counted`]
//! keeps no bytes: it counts what would be read, zeroed and copied. [`Bytes`] is real memory. No
//! decision may depend on which of the two is used.
//!
//! The order in which a folio is zeroed or copied comes as a [`Plan`]; the kernel's choice among
//! plans is a rule ([`crate::rules::clear`]).

mod bytes;
mod stretches;

pub use bytes::{Bytes, stored_byte};
pub use stretches::{ByUnit, Stretch, Stretches, Work};

use largefolio_bulk::plan::Plan;

use crate::units::{MappingId, PageIndex, Pfn};

/// Pages of a file, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePages {
    /// File that they belong to.
    pub file: MappingId,
    /// Index of the first page.
    pub index: PageIndex,
}

/// Physical memory and the storage behind files, as the memory manager uses them.
pub trait Ram {
    /// Fills `nr_pages` frames from `pfn` with zeroes, in ascending order: nobody waits for one of
    /// them.
    fn zero(&mut self, pfn: Pfn, nr_pages: u64);
    /// Fills bytes `from .. to`, counted from the start of frame `pfn`, with zeroes: what
    /// truncation leaves of a folio.
    fn zero_bytes(&mut self, pfn: Pfn, from: u64, to: u64);
    /// Fills the folio at `pfn` with zeroes in the order of `plan`, which is for its frames (D.4).
    fn clear_folio(&mut self, pfn: Pfn, plan: &Plan);
    /// Copies one frame.
    fn copy_page(&mut self, from: Pfn, to: Pfn);
    /// Copies the frames from `from` on over those from `to` on in the order of `plan`, which is for
    /// as many (D.4.5).
    fn copy_folio(&mut self, from: Pfn, to: Pfn, plan: &Plan);
    /// Reads `nr_pages` frames from a file.
    fn read_in(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages);
    /// Writes `nr_pages` frames to a file's storage.
    fn write_out(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages);
    /// Writes one frame to a slot of swap space.
    fn swap_out(&mut self, pfn: Pfn, slot: u64);
    /// Reads one frame from a slot of swap space.
    fn swap_in(&mut self, slot: u64, pfn: Pfn);
    /// Nobody needs a slot of swap space any more.
    fn swap_free(&mut self, slot: u64);
    /// A file of `size_bytes` appears in storage.
    fn add_file(&mut self, file: MappingId, size_bytes: u64);
    /// Bytes `from .. to` of a file are gone from storage: they read as zeroes.
    fn punch(&mut self, file: MappingId, from: u64, to: u64);
}

/// What plans came to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Folios that were moved by a plan.
    pub nr_folios: u64,
    /// Consecutive pages moved in one go.
    pub nr_units: u64,
    /// Bytes zeroed or copied.
    pub nr_bytes: u64,
    /// Reschedule points passed.
    pub nr_points: u64,
    /// The last plan and the first frame it was for: the order of its units.
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

/// Sizes of units that [`Counted::zeroed_by_unit`] tells apart: to 2^20 pages, the largest folio.
pub const NR_UNITS: usize = 21;

/// Memory without bytes: counts only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Pages filled with zeroes.
    pub nr_zeroed: u64,
    /// Pages copied, in huge pages or alone.
    pub nr_copied: u64,
    /// Pages read from files.
    pub nr_read: u64,
    /// Pages written to files.
    pub nr_written: u64,
    /// Pages written to swap space.
    pub nr_swapped_out: u64,
    /// Pages read from swap space.
    pub nr_swapped_in: u64,
    /// Of `nr_zeroed`, by log2 of the pages that were zeroed in one go, to the nearest power of
    /// two: a unit of a plan as far as the architecture has a primitive for it, and a page where
    /// nobody waits. The last counts all larger units.
    pub zeroed_by_unit: [u64; NR_UNITS],
    /// Folios cleared around a page.
    pub cleared: Moved,
    /// Of `nr_copied`, the same for what was copied in one go.
    pub copied_by_unit: [u64; NR_UNITS],
    /// What was copied by a plan: huge pages around a page, folios that compaction moved, runs of
    /// pages that collapse gathered.
    pub copied: Moved,
}

/// Adds the pages of `plan` to those of the units they are moved in.
fn add_units(by_unit: &mut [u64; NR_UNITS], plan: &Plan) {
    for unit in plan.units() {
        by_unit[log2_of(plan.at_once(unit))] += unit.nr;
    }
}

/// log2 of the power of two nearest to `nr` pages, as far as sizes are told apart.
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
