//! How much memory is kept free (docs/behaviour I.6).
//!
//! Answers to: `calculate_min_free_kbytes`, `__setup_per_zone_wmarks`,
//! `set_recommended_min_free_kbytes`.
//!
//! Owns the three marks. Who compares free memory with them: background reclaim starts below `low`
//! and ends at `high`; a large folio is not taken below `min`, an allocation below it reclaims.

use crate::units::PageSize;

/// Bounds of `min_free_kbytes` when it is computed.
const MIN_FREE_KIB: std::ops::RangeInclusive<u64> = 128..=(256 << 10);
/// `watermark_scale_factor`, in 1/10000 of memory: least distance between two marks.
const SCALE_FACTOR: u64 = 10;
/// Pageblocks kept free where THP can be used: two to begin with, and one for each migrate type
/// that falls back to each of three.
const THP_PAGEBLOCKS: u64 = 2 + 3 * 3;
/// The share of memory that is kept free at most: 1/20.
const SHARE_MAX: u64 = 20;

/// Free pages at which something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below: allocations reclaim themselves.
    pub min: u64,
    /// Below: background reclaim starts.
    pub low: u64,
    /// Here background reclaim ends.
    pub high: u64,
}

impl Watermarks {
    /// The marks of a machine with `nr_pages` pages, all in one zone. The reserve is four times
    /// the square root of memory in KiB, and where THP can be used enough pageblocks that types do
    /// not mix, as khugepaged recommends.
    ///
    /// Differs: never more than 1/20 of memory, which on a machine of a few MiB is less than the
    /// 128 KiB a kernel insists on.
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
        // 64 MiB: sqrt(16 * 65536) = 1024 KiB; with THP 5632 pages, cut to 1/20 of memory.
        let marks = Watermarks::new(PageSize::K4, 16_384, false);
        assert_eq!((marks.min, marks.low, marks.high), (256, 320, 384));
        let marks = Watermarks::new(PageSize::K4, 16_384, true);
        assert_eq!((marks.min, marks.low, marks.high), (819, 1023, 1227));
        assert_eq!(Watermarks::new(PageSize::K4, 80, true).min, 4);
    }
}
