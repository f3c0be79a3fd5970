//! Whether memory has bytes.
//!
//! Owns the seam between the decisions of the memory manager and the bytes they move. [`Counted`]
//! keeps no bytes: it counts what would be read, zeroed and copied.

use crate::units::Pfn;

/// Physical memory as the memory manager uses it.
pub trait Ram {
    /// Fills `nr_pages` frames from `pfn` with zeroes.
    fn zero(&mut self, pfn: Pfn, nr_pages: u64);
    /// Copies one frame.
    fn copy_page(&mut self, from: Pfn, to: Pfn);
    /// Reads `nr_pages` frames from a file.
    fn read_in(&mut self, pfn: Pfn, nr_pages: u64);
}

/// Memory without bytes: counts pages only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Pages filled with zeroes.
    pub nr_zeroed: u64,
    /// Pages copied.
    pub nr_copied: u64,
    /// Pages read from files.
    pub nr_read: u64,
}

impl Ram for Counted {
    fn zero(&mut self, _pfn: Pfn, nr_pages: u64) {
        self.nr_zeroed += nr_pages;
    }

    fn copy_page(&mut self, _from: Pfn, _to: Pfn) {
        self.nr_copied += 1;
    }

    fn read_in(&mut self, _pfn: Pfn, nr_pages: u64) {
        self.nr_read += nr_pages;
    }
}
