//! Watermarks: how much memory is kept free (docs/behaviour I.6).
//!
//! Corresponds to: `calculate_min_free_kbytes`, `__setup_per_zone_wmarks`,
//! `set_recommended_min_free_kbytes`.
//!
//! Owns the three marks. Background reclaim starts below `low` and stops at `high`. Large folio
//! allocations fail below `min`; other allocations reclaim there.

use crate::units::PageSize;

const MIN_FREE_KIB: std::ops::RangeInclusive<u64> = 128..=(256 << 10);
/// `watermark_scale_factor`, in 1/10000 of memory: the minimum distance between two marks.
const SCALE_FACTOR: u64 = 10;
/// Pageblocks kept free for THP: two, plus three for each of three migrate types.
const THP_PAGEBLOCKS: u64 = 2 + 3 * 3;
const SHARE_MAX: u64 = 20;

/// Free-page watermarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it, allocations reclaim directly.
    pub min: u64,
    /// Below it, background reclaim starts.
    pub low: u64,
    /// At this level, background reclaim stops.
    pub high: u64,
}

impl Watermarks {
    /// Computes the marks of a machine with `nr_pages` pages in one zone. The reserve is four times
    /// the square root of memory in KiB. With THP, it also covers enough pageblocks to keep the
    /// migrate types apart, as khugepaged recommends.
    ///
    /// Differs: at most 1/20 of memory. On a machine with a few MiB, that is less than the kernel's
    /// minimum of 128 KiB.
    ///
    /// ```
    /// use largefolio_mm::core::watermarks::Watermarks;
    /// use largefolio_mm::units::PageSize;
    /// // 16 GiB: sqrt(16 * 16777216 KiB) = 16384 KiB = 4096 pages.
    /// let marks = Watermarks::new(PageSize::K4, 4 << 20, false);
    /// assert_eq!((marks.min, marks.low, marks.high), (4096, 8290, 12484));
    /// // With THP 11 pageblocks of 512 pages.
    /// assert_eq!(Watermarks::new(PageSize::K4, 4 << 20, true).min, 5632);
    /// ```
    #[must_use]
    pub fn new(page: PageSize, nr_pages: u64, has_thp: bool) -> Self {
        let kib_of_page = page.bytes() >> 10;
        let kib = (nr_pages * kib_of_page * 16).isqrt();
        let kib = kib.clamp(*MIN_FREE_KIB.start(), *MIN_FREE_KIB.end());
        let recommended = page.pmd_order().min(page.max_page_order()).nr_pages() * THP_PAGEBLOCKS;
        let for_thp = if has_thp { recommended } else { 0 };
        let min = (kib / kib_of_page).max(for_thp).min(nr_pages / SHARE_MAX);
        let step = (min / 4).max(nr_pages * SCALE_FACTOR / 10_000);
        Self { min, low: min + step, high: min + 2 * step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_small_machines() {
        // 64 MiB: sqrt(16 * 65536) = 1024 KiB; with THP 5632 pages, limited to 1/20 of memory.
        let marks = Watermarks::new(PageSize::K4, 16_384, false);
        assert_eq!((marks.min, marks.low, marks.high), (256, 320, 384));
        let marks = Watermarks::new(PageSize::K4, 16_384, true);
        assert_eq!((marks.min, marks.low, marks.high), (819, 1023, 1227));
        assert_eq!(Watermarks::new(PageSize::K4, 80, true).min, 4);
    }
}
