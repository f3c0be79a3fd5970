//! Calls that move data past the page cache: `O_DIRECT`, and copies that share blocks.
//!
//! Corresponds to: `kiocb_write_and_wait`, `kiocb_invalidate_pages`,
//! `invalidate_inode_pages2_range`, `generic_remap_file_range_prep`.
//!
//! Cached pages in the range are written back first. A write then unmaps and drops all folios that
//! it touches. No rule in the book covers these calls.

use crate::mapping::reserve::{BLOCK_BYTES, ExtentKind};
use crate::memory::Memory;
use crate::units::{ByteRange, MappingId, PageRange};
use crate::vma::OpenId;

impl Memory {
    /// Reads a range without the page cache.
    pub fn read_direct(&mut self, open: OpenId, range: ByteRange) {
        let file = self.open_file(open).mapping;
        let pages = self.pages_of(range);
        self.write_back(file, pages);
        let nr_read = self.core.mapping(file).nr_stored(pages, self.rules.page);
        self.core.counters.nr_read += nr_read;
    }

    /// Writes a range without the page cache, growing the file.
    pub fn write_direct(&mut self, open: OpenId, range: ByteRange) {
        let file = self.open_file(open).mapping;
        self.supply(file, range);
    }

    /// Gives a range of a file the blocks of another file (`FICLONERANGE`), growing the file.
    pub fn share_blocks(&mut self, file: MappingId, range: ByteRange) {
        self.supply(file, range);
    }

    fn supply(&mut self, file: MappingId, range: ByteRange) {
        let pages = self.pages_of(range);
        if range.len_bytes == 0 {
            return;
        }
        self.write_back(file, pages);
        for entry in self.entries_in(file, pages) {
            self.unmap_file_pages(entry);
            let _ = self.core.remove_unmapped(file, entry.index);
        }
        let end = range.pos.saturating_add(range.len_bytes);
        let size_bytes = self.core.mapping(file).size_bytes;
        if size_bytes < range.pos {
            self.add_hole(file, ByteRange { pos: size_bytes, len_bytes: range.pos - size_bytes });
        }
        let mapping = self.core.mapping_mut(file);
        mapping.size_bytes = size_bytes.max(end);
        mapping.stored_bytes = mapping.stored_bytes.max(end);
        if let Some(space) = &mut mapping.reservations {
            space.set(
                range.pos / BLOCK_BYTES,
                end.div_ceil(BLOCK_BYTES),
                Some(ExtentKind::Written),
            );
        }
        self.fill_holes(file, range);
    }

    /// Returns the pages that a range touches.
    pub(crate) fn pages_of(&self, ByteRange { pos, len_bytes }: ByteRange) -> PageRange {
        let page = self.rules.page;
        PageRange { first: pos >> page.shift(), end: page.pages_in(pos.saturating_add(len_bytes)) }
    }
}
