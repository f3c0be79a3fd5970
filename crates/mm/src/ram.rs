//! Whether memory has bytes.
//!
//! Owns the seam between the decisions of the memory manager and the bytes they move. [`Counted`]
//! keeps no bytes: it counts what would be read, zeroed and copied. [`Bytes`] is real memory. No
//! decision may depend on which of the two is used.

mod bytes;

pub use bytes::{Bytes, stored_byte};

use crate::folio::MappingId;
use crate::units::{PageIndex, Pfn};

/// Pages of a file, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePages {
    /// The file.
    pub file: MappingId,
    /// The first page.
    pub index: PageIndex,
}

/// Physical memory and the storage behind files, as the memory manager uses them.
pub trait Ram {
    /// Fills `nr_pages` frames from `pfn` with zeroes.
    fn zero(&mut self, pfn: Pfn, nr_pages: u64);
    /// Fills bytes `from .. to`, counted from the start of frame `pfn`, with zeroes: what
    /// truncation leaves of a folio.
    fn zero_bytes(&mut self, pfn: Pfn, from: u64, to: u64);
    /// Copies one frame.
    fn copy_page(&mut self, from: Pfn, to: Pfn);
    /// Reads `nr_pages` frames from a file.
    fn read_in(&mut self, pfn: Pfn, nr_pages: u64, pages: FilePages);
    /// A file of `size_bytes` appears in storage.
    fn add_file(&mut self, file: MappingId, size_bytes: u64);
    /// Bytes `from .. to` of a file are gone from storage: they read as zeroes.
    fn punch(&mut self, file: MappingId, from: u64, to: u64);
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

    fn zero_bytes(&mut self, _pfn: Pfn, _from: u64, _to: u64) {}

    fn copy_page(&mut self, _from: Pfn, _to: Pfn) {
        self.nr_copied += 1;
    }

    fn read_in(&mut self, _pfn: Pfn, nr_pages: u64, _pages: FilePages) {
        self.nr_read += nr_pages;
    }

    fn add_file(&mut self, _file: MappingId, _size_bytes: u64) {}

    fn punch(&mut self, _file: MappingId, _from: u64, _to: u64) {}
}
