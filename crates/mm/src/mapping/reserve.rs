//! Space that XFS reserves for what is written, before it chooses blocks.
//!
//! A write is handed to the page cache in parts, and folios are made for a part, not for the
//! write. A part ends where the space reserved so far ends:
//!
//! ```text
//!   writes of 1 MiB      |   1   |   2   |   3   |   4   |   5   |  ...
//!   reserved by the 1st  |-------|
//!   by the 2nd           |       |-------|-------|-----|            ends 64 KiB before a MiB
//!   by the 4th           |       |       |       |     |------------------ ...
//!   parts                |   1   |   2   |   3   |  4a |4b|   5   |  ...
//! ```
//!
//! Owns the reservations of one file ([`Reservations`]). Does not own the size of the file nor
//! the folios.
//!
//! Differs: nothing is written back, so a reservation stays one; what the file held when it was
//! added counts as a hole; no reservation is cut because the filesystem is nearly full.
//!
//! Invariants:
//! - I1: reservations are sorted, not empty, and neither overlap nor touch.

use crate::units::PageSize;

/// Block of the filesystem (the default of `mkfs.xfs`).
const BLOCK_BYTES: u64 = 4 << 10;
/// Smallest reservation ahead of the end of the file, and what its end is aligned to.
const AHEAD_BYTES: u64 = 64 << 10;
/// Pages that one part holds at most.
const PART_PAGES: u64 = 1024;

/// Blocks `first ..= end - 1` of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    first: u64,
    end: u64,
}

/// A write, or what is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// First byte.
    pub pos: u64,
    /// Byte after the last.
    pub end: u64,
    /// Size of the file now, in bytes.
    pub file_bytes: u64,
}

/// What is reserved for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    extents: Vec<Extent>,
}

impl Reservations {
    /// Reserves space for the start of `write`; the byte at which the part it belongs to ends.
    ///
    /// ```
    /// use largefolio_mm::mapping::reserve::{Reservations, Write};
    /// use largefolio_mm::units::PageSize;
    /// let mut file = Reservations::default();
    /// let mut part = |pos: u64, file_bytes: u64| {
    ///     let end = (pos >> 20 << 20) + (1 << 20);
    ///     file.part_end(Write { pos, end, file_bytes }, PageSize::K4)
    /// };
    /// assert_eq!(part(0, 0), 1 << 20);
    /// assert_eq!(part(1 << 20, 1 << 20), 2 << 20);
    /// assert_eq!(part(2 << 20, 2 << 20), 3 << 20);
    /// assert_eq!(part(3 << 20, 3 << 20), (4 << 20) - (64 << 10));
    /// assert_eq!(part((4 << 20) - (64 << 10), (4 << 20) - (64 << 10)), 4 << 20);
    /// ```
    pub fn part_end(&mut self, write: Write, page: PageSize) -> u64 {
        let first = write.pos / BLOCK_BYTES;
        let at = self.extents.partition_point(|extent| extent.end <= first);
        if let Some(extent) = self.extents.get(at).filter(|extent| extent.first <= first) {
            return write.end.min(byte_of(extent.end));
        }
        let part_end = write.end.min(write.pos.saturating_add(PART_PAGES * page.bytes()));
        let wanted = part_end.div_ceil(BLOCK_BYTES);
        let end = match self.extents.get(at) {
            Some(next) => wanted.min(next.first),
            None if write.end > write.file_bytes => {
                wanted.max(self.end_ahead(first, part_end, write.file_bytes))
            }
            None => wanted,
        };
        self.insert(at, Extent { first, end });
        write.end.min(byte_of(end))
    }

    /// Block up to which a write that extends the file reserves: twice what lies before it, as a
    /// power of two, beyond the aligned end of the part; 0 for a small file.
    fn end_ahead(&self, first: u64, part_end: u64, file_bytes: u64) -> u64 {
        if file_bytes < AHEAD_BYTES {
            return 0;
        }
        let before = self.extents.last().filter(|last| last.end == first);
        let doubled = before.map_or(1, |last| 2 * (last.end - last.first));
        let ahead = (1 << doubled.ilog2()).max(AHEAD_BYTES / BLOCK_BYTES);
        (part_end - 1) / AHEAD_BYTES * (AHEAD_BYTES / BLOCK_BYTES) + ahead
    }

    /// Adds an extent before the one at `at`, merged with the neighbours it touches.
    fn insert(&mut self, at: usize, mut extent: Extent) {
        let (mut from, mut to) = (at, at);
        if let Some(before) = at.checked_sub(1).map(|before| self.extents[before])
            && before.end == extent.first
        {
            (from, extent.first) = (at - 1, before.first);
        }
        if let Some(after) = self.extents.get(at)
            && after.first == extent.end
        {
            (to, extent.end) = (at + 1, after.end);
        }
        self.extents.splice(from..to, [extent]);
    }

    /// Ranges kept.
    pub(crate) const fn nr_extents(&self) -> usize {
        self.extents.len()
    }

    /// Checks I1; the first block of the extent that breaks it.
    ///
    /// # Errors
    /// When reservations overlap, touch, or are empty.
    pub fn validate(&self) -> Result<(), u64> {
        let mut end = None;
        for extent in &self.extents {
            let is_apart = end.is_none_or(|end| end < extent.first);
            if !is_apart || extent.end <= extent.first {
                return Err(extent.first);
            }
            end = Some(extent.end);
        }
        Ok(())
    }
}

/// First byte of a block; that of the block after the last possible offset saturates.
fn byte_of(block: u64) -> u64 {
    block.saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of the parts of writes of `len` bytes, one after the other from the start.
    fn appended(len: u64, nr: u64) -> Vec<u64> {
        let (mut file, mut ends) = (Reservations::default(), Vec::new());
        for write in 0..nr {
            let (mut pos, end) = (write * len, (write + 1) * len);
            while pos < end {
                pos = file.part_end(Write { pos, end, file_bytes: pos }, PageSize::K4);
                assert_eq!(file.validate(), Ok(()));
                ends.push(pos);
            }
        }
        ends
    }

    #[test]
    fn parts_end_64_kib_before_every_doubling() {
        let ends = appended(1 << 20, 9);
        let cuts: Vec<_> = ends.into_iter().filter(|end| end & 0xf_ffff != 0).collect();
        assert_eq!(cuts, [0x3f_0000, 0x7f_0000]);
    }

    #[test]
    fn a_long_write_is_cut_every_1024_pages_until_reserved_ahead() {
        assert_eq!(appended(9 << 20, 1), [4 << 20, 9 << 20]);
    }

    #[test]
    fn a_hole_between_reservations_is_filled_exactly() {
        let mut file = Reservations::default();
        let mut part =
            |pos, end, file_bytes| file.part_end(Write { pos, end, file_bytes }, PageSize::K4);
        assert_eq!(part(1 << 20, 2 << 20, 2 << 20), 2 << 20);
        assert_eq!(part(0, 4096, 2 << 20), 4096);
        assert_eq!(part(4096, 3 << 20, 2 << 20), 1 << 20);
        assert_eq!(part(1 << 20, 3 << 20, 2 << 20), 2 << 20);
        assert_eq!(file.extents, [Extent { first: 0, end: 512 }]);
    }
}
