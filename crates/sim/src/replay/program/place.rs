//! Translates recorded addresses to addresses of the modelled kernel.
//!
//! The modelled kernel places mappings by its own rules. A machine with larger base pages, and any
//! arm64 machine, runs programs *linked for* larger pages, whose segments are further apart. So
//! every recorded range is a [`Segment`] with an offset:
//!
//! ```text
//!   recorded   | headers | text     | data | bss |           4 KiB pages
//!              0x4000    0x5000     0x9000
//!   placed     | headers ...| text ......... | data .. bss |   64 KiB pages:
//!              0x10000      0x21000          0x35000           address = file offset mod 64 KiB
//! ```
//!
//! Owns segments and the rule for segments of one image. Does not call the memory manager.
//!
//! Invariants:
//! - I1: segments do not overlap in recorded addresses.
//! - I2: within an image, placed addresses ascend with recorded ones. Address and file position are
//!   congruent modulo the page size that the image is linked for.

use std::collections::BTreeMap;

use largefolio_mm::units::{PageSize, Vpn};
use largefolio_trace::FileId;
use largefolio_trace::validate::REFERENCE_PAGE_BYTES;

pub(crate) const RECORDED_SHIFT: u32 = REFERENCE_PAGE_BYTES.trailing_zeros();
/// Longest mapping that is replayed: half of a 47-bit address space.
pub(crate) const LEN_MAX: u64 = 1 << 46;
pub(crate) const RECORDED_MASK: u64 = REFERENCE_PAGE_BYTES - 1;

/// Rounds up to recorded pages.
pub(crate) const fn page_end(end: u64) -> u64 {
    end.saturating_add(RECORDED_MASK) & !RECORDED_MASK
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) placed: u64,
    /// The mapped file and the file position of `start`.
    pub(crate) file: Option<(FileId, u64)>,
}

impl Segment {
    pub(crate) fn place(&self, addr: u64) -> u64 {
        self.placed + (addr - self.start)
    }

    /// Returns the placed end in pages of `mask + 1` bytes; `None` past the end of the 64-bit
    /// space.
    pub(crate) fn placed_end(&self, mask: u64) -> Option<u64> {
        let end = self.placed.checked_add(self.end - self.start)?;
        Some(end.checked_add(mask)? & !mask)
    }

    pub(crate) fn part(&self, start: u64, end: u64) -> Self {
        let skipped = start - self.start;
        let file = self.file.map(|(file, pos)| (file, pos + skipped));
        Self { start, end, placed: self.placed + skipped, file }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    by_start: BTreeMap<u64, Segment>,
}

impl Segments {
    pub(crate) fn len(&self) -> usize {
        self.by_start.len()
    }

    pub(crate) fn find(&self, addr: u64) -> Option<&Segment> {
        let (_, segment) = self.by_start.range(..=addr).next_back()?;
        (addr < segment.end).then_some(segment)
    }

    pub(crate) fn before(&self, addr: u64) -> Option<&Segment> {
        self.by_start.range(..addr).next_back().map(|(_, segment)| segment)
    }

    pub(crate) fn private(&self) -> impl Iterator<Item = &Segment> {
        self.by_start.values().filter(|segment| segment.file.is_none())
    }

    pub(crate) fn overlapping(&self, start: u64, end: u64) -> Vec<Segment> {
        let from = self.find(start).map_or(start, |segment| segment.start);
        self.by_start
            .range(from..end)
            .filter(|(_, segment)| segment.end > start)
            .map(|(_, segment)| segment.part(segment.start.max(start), segment.end.min(end)))
            .collect()
    }

    pub(crate) fn insert(&mut self, segment: Segment) {
        self.remove(segment.start, segment.end);
        self.by_start.insert(segment.start, segment);
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        for cut in self.overlapping(start, end) {
            let Some(whole) = self.find(cut.start).copied() else { continue };
            self.by_start.remove(&whole.start);
            if whole.start < cut.start {
                self.by_start.insert(whole.start, whole.part(whole.start, cut.start));
            }
            if cut.end < whole.end {
                self.by_start.insert(cut.end, whole.part(cut.end, whole.end));
            }
        }
    }
}

/// Returns the place of an image's segment after `before`, the segment below it. It keeps the
/// recorded distance, then moves up until its pages are its own and its address is congruent to
/// `pos` mod `page`, the page size that the image is linked for (I2). A segment without a file
/// (bss) continues at the end of `before`. `None` = past the end of the 64-bit space.
pub(crate) fn after(before: &Segment, start: u64, pos: Option<u64>, page: PageSize) -> Option<u64> {
    let mask = page.bytes() - 1;
    let wanted = before.placed_end(0)?.checked_add(start.saturating_sub(before.end))?;
    let Some(pos) = pos else { return Some(wanted) };
    let first_own = before.placed_end(mask)?;
    let wanted = wanted.max(first_own);
    wanted.checked_add(pos.wrapping_sub(wanted) & mask)
}

/// Returns the bytes to reserve for an image: its segments move apart by up to one page each.
pub(crate) fn reserve(len: u64, page: PageSize) -> u64 {
    /// A shared library has four or five load segments and a bss; none is known to have over eight.
    const NR_SEGMENTS: u64 = 8;
    len.saturating_add(NR_SEGMENTS * page.bytes())
}

/// Slots of the table. Two pages in use share a cache line.
const NR_PLACES: usize = 1 << 12;
/// A recorded page number that no trace contains.
const NO_PAGE: u64 = u64::MAX;
const NO_PLACE: CachedPlace = CachedPlace { page: NO_PAGE, vpn: Vpn(0), epoch: 0 };

#[derive(Clone, Copy)]
struct CachedPlace {
    page: u64,
    vpn: Vpn,
    /// The epoch of the lookup. The entry is valid only in that epoch.
    epoch: u64,
}

pub(crate) struct Places {
    slots: Vec<CachedPlace>,
    epoch: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self { slots: vec![NO_PLACE; NR_PLACES], epoch: 0 }
    }
}

impl Places {
    #[inline]
    pub(crate) fn find(&self, epoch: u64, addr: u64) -> Option<Vpn> {
        let page = addr >> RECORDED_SHIFT;
        let place = self.slots[Self::slot(epoch, page)];
        (place.page == page && place.epoch == epoch).then_some(place.vpn)
    }

    pub(crate) fn insert(&mut self, epoch: u64, addr: u64, vpn: Vpn) {
        let page = addr >> RECORDED_SHIFT;
        self.slots[Self::slot(epoch, page)] = CachedPlace { page, vpn, epoch };
    }

    /// Returns a new epoch, for a new address space or changed segments.
    pub(crate) const fn next(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "twelve bits are left of it")]
    fn slot(epoch: u64, page: u64) -> usize {
        ((page ^ (epoch << 7)) & (NR_PLACES as u64 - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: u64, end: u64, placed: u64) -> Segment {
        Segment { start, end, placed, file: None }
    }

    #[test]
    fn segments_are_cut_and_keep_their_place() {
        let mut segments = Segments::default();
        segments.insert(Segment { file: Some((3, 0)), ..segment(0x1000, 0x9000, 0x5000) });
        segments.insert(segment(0x3000, 0x4000, 0xa000));
        let tail = segments.find(0x4000).unwrap();
        assert_eq!((tail.placed, tail.file), (0x8000, Some((3, 0x3000))));
        assert_eq!(segments.find(0x3fff).unwrap().place(0x3fff), 0xafff);
        segments.remove(0x0, 0x8000);
        assert_eq!(segments.find(0x8000).unwrap().placed, 0xc000);
        assert_eq!(segments.find(0x7fff), None);
    }

    #[test]
    fn with_4k_pages_an_image_keeps_its_shape() {
        let headers = segment(0x4000_0000, 0x4000_1000, 0x7000_0000);
        let place = |start| after(&headers, start, Some(0x1000), PageSize::K4);
        assert_eq!(place(0x4000_1000), Some(0x7000_1000));
        assert_eq!(place(0x4020_0000), Some(0x7020_0000));
    }

    #[test]
    fn a_place_past_the_end_of_the_address_space_is_none() {
        let headers = segment(0x4000_0000, 0x4000_1000, 0x7000_0000);
        for pos in [None, Some(0)] {
            assert_eq!(after(&headers, u64::MAX - 0x2fff, pos, PageSize::K4), None);
            let far = segment(0x1000, 0x2000, u64::MAX - 0x1fff);
            assert_eq!(after(&far, 0x3000, pos, PageSize::K4), None);
        }
        let last = segment(0x1000, 0x2000, u64::MAX - 0x1fff);
        assert_eq!(after(&last, 0x2000, Some(0x3000), PageSize::K64), None);
        assert_eq!(last.placed_end(0xffff), None);
        assert_eq!(last.placed_end(0xfff), Some(u64::MAX - 0xfff));
    }

    #[test]
    fn with_64k_pages_segments_move_apart_and_stay_congruent() {
        let headers = segment(0x4000_0000, 0x4000_1000, 0x7000_0000);
        let after =
            |before: &Segment, start, pos| after(before, start, pos, PageSize::K64).unwrap();
        let text = after(&headers, 0x4000_1000, Some(0x1000));
        assert_eq!(text, 0x7001_1000);
        let text = segment(0x4000_1000, 0x4000_9000, text);
        let data = after(&text, 0x4000_9000, Some(0x8000));
        assert_eq!(data, 0x7002_8000);
        let data = segment(0x4000_9000, 0x4000_a000, data);
        assert_eq!(after(&data, 0x4000_a000, None), 0x7002_9000);
    }
}
