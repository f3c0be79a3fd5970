//! fallocate, and the end of a file without a name.
//!
//! Corresponds to: `ext4_fallocate`, `xfs_file_fallocate`, `shmem_fallocate`, `evict_inode`.
//!
//! Allocated blocks without data read as zeroes, like a hole. Only shared memory allocates pages.

use crate::core::open_file::OpenFile;
use crate::mapping::FileName;
use crate::mapping::disk::NewEnd;
use crate::mapping::reserve::{BLOCK_BYTES, Reservations};
use crate::memory::Memory;
use crate::shmem::Need;
use crate::units::{ByteRange, MappingId, PageIndex, PageRange};

/// What fallocate does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates it.
    Allocate,
    /// Makes it a hole.
    PunchHole,
    /// Makes it read as zeroes.
    Zero,
    /// Removes it; the rest of the file moves down.
    Remove,
    /// Inserts it; the rest of the file moves up.
    Insert,
}

/// Whether fallocate can change the file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSize {
    /// It grows to contain the range.
    Grows,
    /// It stays (`FALLOC_FL_KEEP_SIZE`).
    Kept,
}

impl Memory {
    /// Calls fallocate on a file.
    pub fn fallocate(
        &mut self,
        file: MappingId,
        range: ByteRange,
        what: Fallocate,
        size: FileSize,
    ) {
        let ByteRange { pos, len_bytes } = range;
        let end = pos.saturating_add(len_bytes);
        let old_bytes = self.core.mapping(file).size_bytes;
        self.allocate_blocks(file, range, what);
        match what {
            Fallocate::Allocate => {}
            Fallocate::PunchHole | Fallocate::Zero => self.clear_range(file, range),
            Fallocate::Remove => {
                self.drop_from(file, self.start_of_shift(file, pos));
                self.shift_holes(file, end, pos);
                self.core.mapping_mut(file).size_bytes = old_bytes.saturating_sub(len_bytes);
                return;
            }
            Fallocate::Insert => {
                self.drop_from(file, self.start_of_shift(file, pos));
                self.core.mapping_mut(file).size_bytes = old_bytes.saturating_add(len_bytes);
                self.shift_holes(file, pos, end);
                return;
            }
        }
        // The pages come before the new size (Q.1.4).
        if what == Fallocate::Allocate && self.core.mapping(file).is_zero_filled {
            self.allocate_pages(file, self.pages_of(range), end);
        }
        if size == FileSize::Grows && end > old_bytes && what != Fallocate::PunchHole {
            self.truncate(file, end);
        }
    }

    /// Changes the extents of a file, if its filesystem's are known.
    fn allocate_blocks(&mut self, file: MappingId, range: ByteRange, what: Fallocate) {
        let (pos, end) = (range.pos, range.pos.saturating_add(range.len_bytes));
        let nr = self.core.mapping(file).reservations.as_ref().map_or(0, Reservations::nr_extents);
        self.core.work.add(nr as u64 / 16);
        let Some(space) = &mut self.core.mapping_mut(file).reservations else { return };
        let touched = (pos / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let inside = (pos.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        if matches!(what, Fallocate::PunchHole | Fallocate::Zero) && inside.0 < inside.1 {
            space.set(inside.0, inside.1, None);
        }
        match what {
            Fallocate::Allocate | Fallocate::Zero => space.fill(touched.0, touched.1),
            Fallocate::Remove => space.shift(end / BLOCK_BYTES, pos / BLOCK_BYTES),
            Fallocate::Insert => space.shift(pos / BLOCK_BYTES, end / BLOCK_BYTES),
            Fallocate::PunchHole => {}
        }
    }

    /// Drops the pages and data of a range. The pages that it covers in part stay.
    fn clear_range(&mut self, file: MappingId, range: ByteRange) {
        match self.core.mapping(file).disk.new_end {
            // Nothing is written back first.
            NewEnd::ZeroedLast => {
                self.punch_hole(file, range.pos, range.len_bytes);
                self.zero_edges(file, range);
            }
            // It drops the pages at the edges too, and reads them again to zero them.
            NewEnd::ZeroedFirst => {
                let pages = self.pages_of(range);
                self.write_back(file, pages);
                self.drop_cached(file, pages);
                self.zero_edges(file, range);
                self.punch_hole(file, range.pos, range.len_bytes);
            }
            NewEnd::Untouched => {
                self.write_back(file, self.pages_of(range));
                self.zero_edges(file, range);
                self.punch_hole(file, range.pos, range.len_bytes);
            }
        }
    }

    fn zero_edges(&mut self, file: MappingId, range: ByteRange) {
        for edge in [range.pos, range.pos.saturating_add(range.len_bytes)] {
            let mapping = self.core.mapping(file);
            // It looks for data first.
            let is_skipped = mapping.disk.new_end == NewEnd::Untouched
                && mapping.holes.contains(edge >> self.rules.page.shift());
            if edge < mapping.size_bytes && !is_skipped {
                self.zero_tail(file, edge);
            }
        }
    }

    /// Returns where the range starts that a filesystem drops before it moves extents at `pos`.
    fn start_of_shift(&self, file: MappingId, pos: u64) -> u64 {
        let start = pos & !(self.rules.page.bytes() - 1);
        let more = if self.core.mapping(file).disk.shifts_from_before { BLOCK_BYTES } else { 0 };
        start.saturating_sub(more)
    }

    fn shift_holes(&mut self, file: MappingId, from: u64, to: u64) {
        let shift = self.rules.page.shift();
        self.core.mapping_mut(file).holes.shift(from >> shift, to >> shift);
    }

    /// Allocates the absent pages of shared memory up to byte `end`. They are zeroed at their first
    /// use.
    fn allocate_pages(&mut self, file: MappingId, pages: PageRange, end: u64) {
        let mut at = pages.first;
        while at < pages.end {
            self.core.work.add(1);
            if self.core.work.is_spent() {
                return;
            }
            if let Some(entry) = self.core.find(file, PageIndex(at)) {
                // Allocated before: zeroed now (Q.2.4).
                self.zero_shmem(entry.folio);
                self.core.set_dirty(entry.folio);
                at = entry.end();
                continue;
            }
            let Some(id) = self.insert_shmem(file, PageIndex(at), Need::Call { end }) else {
                return;
            };
            self.core.set_dirty(id);
            at = self.core.find(file, PageIndex(at)).map_or(at + 1, |entry| entry.end());
        }
    }

    /// Allocates a memory file's pages outside its holes, with data.
    pub fn fill_memory_file(&mut self, file: MappingId) {
        let mapping = self.core.mapping(file);
        let all = PageRange { first: 0, end: mapping.nr_file_pages(self.rules.page) };
        for pages in mapping.holes.data_in(all).collect::<Vec<_>>() {
            self.allocate_pages(file, pages, self.rules.page.bytes() * pages.end);
            for entry in self.entries_in(file, pages) {
                self.core.folios.get_mut(entry.folio).is_uptodate = true;
            }
        }
    }

    /// Removes a file's last name. It exists until its last user.
    pub fn unlink(&mut self, file: MappingId) {
        self.core.mapping_mut(file).name = FileName::Unnamed;
    }

    /// Frees a file without a name after its last user.
    pub fn delete_file(&mut self, file: MappingId) {
        self.truncate(file, 0);
    }

    /// Returns whether a descriptor or a mapping uses a file.
    #[must_use]
    pub fn is_in_use(&self, file: MappingId) -> bool {
        let is_open = |opened: &OpenFile| opened.mapping == file && opened.nr_descriptors > 0;
        self.core.work.add(self.nr_opens() as u64 / 16);
        self.opens().any(|(_, opened)| is_open(opened))
            || !self.mapped_ranges(file, PageRange { first: 0, end: u64::MAX }).is_empty()
    }
}
