//! Physical memory and storage.
//!
//! Counts the pages that the memory manager reads, zeroes and copies. With [`Ram::new`], it also
//! moves real bytes, on which no decision depends.
//!
//! A [`Plan`] gives the order in which a folio is zeroed or copied; the kernel's choice among plans
//! is a rule ([`crate::rules::clear`]).

mod bytes;
mod stretches;

pub use bytes::stored_byte;
pub use stretches::{ByUnit, Stretch, StretchWork, Stretches};

use largefolio_bulk::plan::Plan;

use bytes::Bytes;

use crate::buddy::has_room;
use crate::units::{MappingId, PageIndex, PageSize, Pfn};

/// Pages of a file, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePages {
    /// File that they belong to.
    pub file: MappingId,
    /// Index of the first page.
    pub index: PageIndex,
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

/// Counts of pages zeroed, copied, read and written.
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

/// Physical memory and storage: counts of what moved and, if asked for, the bytes themselves.
#[derive(Clone, Debug, Default)]
pub struct Ram {
    /// What has moved so far.
    pub counted: Counted,
    bytes: Option<Bytes>,
}

impl Ram {
    /// `ram_bytes` of real memory in frames of `page`; the host backs it as it is used.
    #[must_use]
    pub fn new(page: PageSize, ram_bytes: u64) -> Self {
        Self { counted: Counted::default(), bytes: Some(Bytes::new(page, ram_bytes)) }
    }

    /// As [`Ram::new`], or `None` if the host has no room, as under `ulimit -v`.
    #[must_use]
    pub fn try_new(page: PageSize, ram_bytes: u64) -> Option<Self> {
        has_room(ram_bytes).then(|| Self::new(page, ram_bytes))
    }

    /// One frame's bytes.
    ///
    /// # Panics
    /// If this memory only counts.
    #[must_use]
    pub fn frame(&self, pfn: Pfn) -> &[u8] {
        let Some(bytes) = &self.bytes else { panic!("this memory only counts") };
        bytes.frame(pfn)
    }

    /// One frame's bytes, to store to.
    ///
    /// # Panics
    /// If this memory only counts.
    pub fn frame_mut(&mut self, pfn: Pfn) -> &mut [u8] {
        let Some(bytes) = &mut self.bytes else { panic!("this memory only counts") };
        bytes.frame_mut(pfn)
    }

    /// Zeroes `nr_pages` frames in ascending order.
    pub(crate) fn zero(&mut self, pfn: Pfn, nr_pages: u64) {
        self.counted.nr_zeroed += nr_pages;
        self.counted.zeroed_by_unit[0] += nr_pages;
        if let Some(bytes) = &mut self.bytes {
            bytes.zero(pfn, nr_pages);
        }
    }

    /// Zeroes bytes `from .. to`, counted from the start of frame `pfn`.
    pub(crate) fn zero_bytes(&mut self, pfn: Pfn, from: u64, to: u64) {
        if let Some(bytes) = &mut self.bytes {
            bytes.zero_bytes(pfn, from, to);
        }
    }

    /// Zeroes the folio at `pfn` in the order of `plan` (D.4).
    pub fn clear_folio(&mut self, pfn: Pfn, plan: &Plan) {
        self.counted.nr_zeroed += plan.shape().nr_pages;
        add_units(&mut self.counted.zeroed_by_unit, plan);
        self.counted.cleared.add(pfn, plan);
        if let Some(bytes) = &mut self.bytes {
            bytes.clear_folio(pfn, plan);
        }
    }

    pub(crate) fn copy_page(&mut self, from: Pfn, to: Pfn) {
        self.counted.nr_copied += 1;
        self.counted.copied_by_unit[0] += 1;
        if let Some(bytes) = &mut self.bytes {
            bytes.copy_page(from, to);
        }
    }

    /// Copies as many frames as `plan` has, in its order (D.4.5).
    pub fn copy_folio(&mut self, from: Pfn, to: Pfn, plan: &Plan) {
        self.counted.nr_copied += plan.shape().nr_pages;
        add_units(&mut self.counted.copied_by_unit, plan);
        self.counted.copied.add(to, plan);
        if let Some(bytes) = &mut self.bytes {
            bytes.copy_folio(from, to, plan);
        }
    }

    pub(crate) fn read_in(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages) {
        self.counted.nr_read += nr_pages;
        if let Some(bytes) = &mut self.bytes {
            bytes.read_in(pfn, nr_pages, pages);
        }
    }

    pub(crate) fn write_out(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages) {
        self.counted.nr_written += nr_pages;
        if let Some(bytes) = &mut self.bytes {
            bytes.write_out(pfn, nr_pages, pages);
        }
    }

    pub(crate) fn swap_out(&mut self, pfn: Pfn, slot: u64) {
        self.counted.nr_swapped_out += 1;
        if let Some(bytes) = &mut self.bytes {
            bytes.swap_out(pfn, slot);
        }
    }

    pub(crate) fn swap_in(&mut self, slot: u64, pfn: Pfn) {
        self.counted.nr_swapped_in += 1;
        if let Some(bytes) = &mut self.bytes {
            bytes.swap_in(slot, pfn);
        }
    }

    pub(crate) fn swap_free(&mut self, slot: u64) {
        if let Some(bytes) = &mut self.bytes {
            bytes.swap_free(slot);
        }
    }

    /// Adds a file of `size_bytes` to storage.
    pub(crate) fn add_file(&mut self, file: MappingId, size_bytes: u64) {
        if let Some(bytes) = &mut self.bytes {
            bytes.add_file(file, size_bytes);
        }
    }

    /// Removes bytes `from .. to` of a file from storage: they read as zeroes.
    pub(crate) fn punch(&mut self, file: MappingId, from: u64, to: u64) {
        if let Some(bytes) = &mut self.bytes {
            bytes.punch(file, from, to);
        }
    }
}
