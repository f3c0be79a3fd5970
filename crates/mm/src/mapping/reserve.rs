//! Space that XFS reserves for a write before allocating blocks (docs/behaviour A.7.4).
//!
//! Corresponds to: `xfs_iomap_prealloc_size`, `xfs_bmapi_reserve_delalloc`.
//!
//! The filesystem passes a write to the page cache in parts, and the page cache allocates folios
//! per part. A part ends where the reserved space ends:
//!
//! ```text
//!   writes of 1 MiB      |   1   |   2   |   3   |   4   |   5   |  ...
//!   reserved by the 1st  |-------|
//!   by the 2nd           |       |-------|-------|-----|            ends 64 KiB before a MiB
//!   by the 4th           |       |       |       |     |------------------ ...
//!   parts                |   1   |   2   |   3   |  4a |4b|   5   |  ...
//! ```
//!
//! A part also ends at existing blocks: older data, or data already written back.
//!
//! Owns one file's extents ([`Reservations`]). Does not own the file's size or its folios.
//!
//! Differs: only sync calls write back, so a reservation stays until one or until
//! [`Reservations::report`] replaces it; the blocks of an existing file are contiguous; a nearly
//! full filesystem does not shorten reservations.
//!
//! Invariants:
//! - I1: extents are sorted, non-empty and do not overlap; no two reservations touch.

use std::ops::Range;

use crate::units::PageSize;

/// Block size (the default of `mkfs.xfs`).
pub const BLOCK_BYTES: u64 = 4 << 10;
/// Smallest reservation beyond the end of the file; its end is aligned to this.
const AHEAD_BYTES: u64 = 64 << 10;
const PART_PAGES: u64 = 1024;

/// Blocks `first ..= end - 1` of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub first: u64,
    /// Block after the last.
    pub end: u64,
    /// State of the blocks.
    pub kind: ExtentKind,
    /// Whether it follows the previous extent on the device without a gap.
    pub is_next: bool,
}

/// State of an extent's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Reserved space without blocks yet (delayed allocation).
    Reserved,
    /// Blocks with data.
    Written,
    /// Blocks that read as zeroes.
    Unwritten,
}

impl Extent {
    const fn reserved(first: u64, end: u64) -> Self {
        Self { first, end, kind: ExtentKind::Reserved, is_next: false }
    }

    const fn nr_blocks(self) -> u64 {
        self.end - self.first
    }
}

/// A write, or the rest of it.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Position of its first byte.
    pub pos: u64,
    /// Byte after the last.
    pub end: u64,
    /// Current file size, in bytes.
    pub file_bytes: u64,
}

/// The extents and reservations of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    extents: Vec<Extent>,
    /// Whether the kernel may have written back since.
    is_uncertain: bool,
}

impl Reservations {
    /// An existing file of `size_bytes`.
    #[must_use]
    pub fn of_file(size_bytes: u64) -> Self {
        let (first, end) = (0, size_bytes.div_ceil(BLOCK_BYTES));
        let all = Extent { first, end, kind: ExtentKind::Written, is_next: false };
        Self { extents: (end > 0).then_some(all).into_iter().collect(), is_uncertain: false }
    }

    /// Replaces all extents with the file's real ones. Skips overlapping and empty extents.
    pub fn report(&mut self, extents: impl IntoIterator<Item = Extent>) {
        *self = Self::default();
        for extent in extents {
            let after = self.extents.last().map_or(0, |last| last.end);
            if extent.first < after || extent.first >= extent.end {
                continue;
            }
            let at = self.extents.len();
            if extent.kind == ExtentKind::Reserved {
                self.insert(at, extent);
            } else {
                self.extents.push(extent);
            }
        }
    }

    /// The reservations; `None` if unknown, because the kernel may have written back.
    #[must_use]
    pub fn reserved(&self) -> Option<Vec<(u64, u64)>> {
        let reserved = self.extents.iter().filter(|extent| extent.kind == ExtentKind::Reserved);
        let reserved = reserved.map(|extent| (extent.first, extent.end)).collect();
        (!self.is_uncertain).then_some(reserved)
    }

    /// Whether the block with this byte has data that must be read: not a hole and not unwritten.
    #[must_use]
    pub fn has_data(&self, pos: u64) -> bool {
        let block = pos / BLOCK_BYTES;
        let at = self.extents.partition_point(|extent| extent.end <= block);
        self.extents
            .get(at)
            .is_some_and(|extent| extent.first <= block && extent.kind != ExtentKind::Unwritten)
    }

    /// Whether any block with these bytes has data that must be read.
    pub(crate) fn has_data_in(&self, bytes: Range<u64>) -> bool {
        let (first, end) = (bytes.start / BLOCK_BYTES, bytes.end.div_ceil(BLOCK_BYTES));
        let at = self.extents.partition_point(|extent| extent.end <= first);
        let mut within = self.extents[at..].iter().take_while(|extent| extent.first < end);
        within.any(|extent| extent.kind != ExtentKind::Unwritten)
    }

    /// Sets the file size and frees everything beyond it. The kernel may write back data for this.
    pub fn set_length(&mut self, size_bytes: u64) {
        let end = size_bytes.div_ceil(BLOCK_BYTES);
        self.extents.retain(|extent| extent.first < end);
        if let Some(last) = self.extents.last_mut() {
            last.end = last.end.min(end);
        }
        self.is_uncertain = true;
    }

    /// A write begins beyond the end of the file, at `file_bytes`: allocates blocks for the
    /// reservation there, including everything reserved together with it.
    pub fn jump(&mut self, file_bytes: u64) {
        let end = file_bytes.div_ceil(BLOCK_BYTES);
        let beyond = |extent: &&mut Extent| extent.end > end && extent.kind == ExtentKind::Reserved;
        for extent in self.extents.iter_mut().filter(beyond) {
            (extent.kind, extent.is_next) = (ExtentKind::Unwritten, true);
        }
        self.is_uncertain = true;
    }

    /// Writeback of blocks `[first, end)` allocates blocks for each reservation that it touches, as
    /// a whole. Those beyond the end of the file have no data.
    pub fn allocate(&mut self, first: u64, end: u64, file_bytes: u64) {
        let file_end = file_bytes.div_ceil(BLOCK_BYTES);
        let parts = |&extent: &Extent| {
            if extent.kind != ExtentKind::Reserved {
                return [extent, Extent { end: extent.first, ..extent }];
            }
            let cut = file_end.clamp(extent.first, extent.end);
            let data = Extent { end: cut, kind: ExtentKind::Written, ..extent };
            let ahead = Extent { first: cut, kind: ExtentKind::Unwritten, is_next: true, ..extent };
            [data, ahead]
        };
        self.replace(first, end, parts);
        self.is_uncertain = true;
    }

    /// Sets the state of blocks `[first, end)`; `None` makes them a hole.
    pub(crate) fn set(&mut self, first: u64, end: u64, kind: Option<ExtentKind>) {
        let rest = |&extent: &Extent| {
            let before = Extent { end: first.clamp(extent.first, extent.end), ..extent };
            let after = Extent { first: end.clamp(extent.first, extent.end), ..extent };
            [before, Extent { is_next: false, ..after }]
        };
        self.replace(first, end, rest);
        if let Some(kind) = kind.filter(|_| first < end) {
            let at = self.extents.partition_point(|extent| extent.end <= first);
            self.extents.insert(at, Extent { first, end, kind, is_next: false });
        }
        self.is_uncertain = true;
    }

    /// Allocates the blocks of `[first, end)` that have none. They read as zeroes.
    pub(crate) fn fill(&mut self, first: u64, end: u64) {
        let from = self.extents.partition_point(|extent| extent.end <= first);
        let within = self.extents[from..].iter().take_while(|extent| extent.first < end);
        let (mut at, mut gaps) = (first, Vec::new());
        for extent in within {
            gaps.push((at, extent.first));
            at = extent.end;
        }
        gaps.push((at, end));
        for (first, end) in gaps.into_iter().filter(|(first, end)| first < end) {
            self.set(first, end, Some(ExtentKind::Unwritten));
        }
    }

    /// Moves the blocks from `from` on to `to`, over those between them or away from a hole.
    pub(crate) fn shift(&mut self, from: u64, to: u64) {
        self.set(to.min(from), from, None);
        // An extent across `from` is cut there.
        let at = self.extents.partition_point(|extent| extent.end <= from);
        if let Some(over) = self.extents.get(at).copied().filter(|over| over.first < from) {
            self.extents[at].end = from;
            self.extents.insert(at + 1, Extent { first: from, is_next: false, ..over });
        }
        let by = |block: u64| block.saturating_sub(from).saturating_add(to);
        for extent in self.extents.iter_mut().filter(|extent| extent.first >= from) {
            (extent.first, extent.end) = (by(extent.first), by(extent.end));
        }
        self.extents.retain(|extent| extent.first < extent.end);
        self.is_uncertain = true;
    }

    /// Replaces each extent that touches blocks `[first, end)` with the non-empty ones of its parts.
    fn replace(&mut self, first: u64, end: u64, parts: impl Fn(&Extent) -> [Extent; 2]) {
        let from = self.extents.partition_point(|extent| extent.end <= first);
        let within = self.extents[from..].iter().take_while(|extent| extent.first < end);
        let nr = within.clone().count();
        let parts = within.flat_map(parts).filter(|part| part.first < part.end);
        let parts: Vec<Extent> = parts.collect();
        self.extents.splice(from..from + nr, parts);
    }

    /// Reserves space for the start of `write`. Returns the byte at which its part ends.
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
        self.insert(at, Extent::reserved(first, end));
        write.end.min(byte_of(end))
    }

    /// Block up to which a write that extends the file reserves: beyond the aligned end of the
    /// part, by twice the file's preceding blocks as a power of two. 0 for a small file.
    fn end_ahead(&self, first: u64, part_end: u64, file_bytes: u64) -> u64 {
        if file_bytes < AHEAD_BYTES {
            return 0;
        }
        let doubled = (2 * self.nr_before(first)).max(1);
        let ahead = (1 << doubled.ilog2()).max(AHEAD_BYTES / BLOCK_BYTES);
        (part_end - 1) / AHEAD_BYTES * (AHEAD_BYTES / BLOCK_BYTES) + ahead
    }

    /// Blocks directly before block `end` that are contiguous on the device or reserved together.
    fn nr_before(&self, end: u64) -> u64 {
        let (mut nr, mut end) = (0, end);
        let mut later: Option<&Extent> = None;
        for extent in self.extents.iter().rev() {
            let is_one =
                later.is_none_or(|later| later.is_next && extent.kind != ExtentKind::Reserved);
            if extent.end != end || !is_one {
                break;
            }
            (nr, end, later) = (nr + extent.nr_blocks(), extent.first, Some(extent));
        }
        nr
    }

    fn insert(&mut self, at: usize, mut extent: Extent) {
        let (mut from, mut to) = (at, at);
        if let Some(before) = at.checked_sub(1).map(|before| self.extents[before])
            && before.end == extent.first
            && before.kind == ExtentKind::Reserved
        {
            (from, extent.first) = (at - 1, before.first);
        }
        if let Some(after) = self.extents.get(at)
            && after.first == extent.end
            && after.kind == ExtentKind::Reserved
        {
            (to, extent.end) = (at + 1, after.end);
        }
        self.extents.splice(from..to, [extent]);
    }

    pub(crate) const fn nr_extents(&self) -> usize {
        self.extents.len()
    }

    /// Checks I1.
    ///
    /// # Errors
    /// The first block of an extent that overlaps or touches another, or is empty.
    pub fn validate(&self) -> Result<(), u64> {
        let mut before: Option<&Extent> = None;
        for extent in &self.extents {
            let touches = |before: &Extent| before.end == extent.first;
            let both_reserved = |before: &Extent| {
                (before.kind, extent.kind) == (ExtentKind::Reserved, ExtentKind::Reserved)
            };
            let is_apart = before.is_none_or(|before| {
                before.end <= extent.first && !(touches(before) && both_reserved(before))
            });
            if !is_apart || extent.end <= extent.first {
                return Err(extent.first);
            }
            before = Some(extent);
        }
        Ok(())
    }
}

fn byte_of(block: u64) -> u64 {
    block.saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(file.extents, [Extent::reserved(0, 512)]);
    }

    fn parts(file: &mut Reservations, mut pos: u64, end: u64, mut file_bytes: u64) -> Vec<u64> {
        let mut ends = Vec::new();
        while pos < end {
            pos = file.part_end(Write { pos, end, file_bytes }, PageSize::K4);
            file_bytes = file_bytes.max(pos);
            assert_eq!(file.validate(), Ok(()));
            ends.push(pos >> 12);
        }
        ends
    }

    /// `map=none file=12288 pattern=ops ops=s2.0+8192`: two base pages on 6.18.44.
    #[test]
    fn a_part_ends_where_the_blocks_of_the_file_end() {
        let mut file = Reservations::of_file(12288);
        assert_eq!(parts(&mut file, 8192, 16384, 12288), [3, 4]);
    }

    /// `file=1M ops=s256.0+1048576x5`: 6.18.44 cuts the third write at page 1008.
    #[test]
    fn what_is_reserved_doubles_the_blocks_right_before_it() {
        let mut file = Reservations::of_file(1 << 20);
        let mut write = |nr: u64| parts(&mut file, nr << 20, (nr + 1) << 20, nr << 20);
        assert_eq!([write(1), write(2), write(3)], [vec![512], vec![768], vec![1008, 1024]]);
    }

    #[test]
    fn blocks_in_two_pieces_count_by_the_last_one() {
        let one = |first, end, is_next| Extent { first, end, kind: ExtentKind::Written, is_next };
        for (is_next, ahead) in [(true, 512), (false, 128)] {
            let mut file = Reservations::default();
            file.report([one(0, 192, false), one(192, 256, is_next)]);
            assert_eq!(parts(&mut file, 1 << 20, (1 << 20) + 4096, 1 << 20), [257]);
            assert_eq!(file.reserved(), Some(vec![(256, 256 + ahead)]));
        }
    }

    #[test]
    fn a_shorter_file_has_no_space_beyond_its_end() {
        let mut file = Reservations::of_file(1 << 20);
        file.set_length(5 * 4096 + 100);
        assert!(file.has_data(5 * 4096 + 100) && !file.has_data(6 * 4096));
        assert_eq!(file.reserved(), None, "the reserved block may have been written back");
    }
}
