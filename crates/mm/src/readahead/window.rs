//! Window sizes, as pure functions of the request and the maximum.
//!
//! Corresponds to: `get_init_ra_size`, `get_next_ra_size`.

/// First window for a request of `nr_requested` pages, at most `max_pages` (docs/behaviour A.2.1).
///
/// ```
/// use largefolio_mm::readahead::window::initial_pages;
/// assert_eq!([1, 2, 3, 5, 9].map(|r| initial_pages(r, 32)), [4, 4, 8, 16, 32]);
/// ```
#[must_use]
pub fn initial_pages(nr_requested: u64, max_pages: u64) -> u64 {
    let rounded = nr_requested.checked_next_power_of_two().unwrap_or(max_pages);
    // The read may end soon: start small and let the window grow.
    if rounded <= max_pages / 32 {
        rounded * 4
    } else if rounded <= max_pages / 4 {
        rounded * 2
    } else {
        max_pages
    }
}

/// Size of the window after one of `current` pages, at most `max_pages` (docs/behaviour A.2.2).
///
/// ```
/// use largefolio_mm::readahead::window::next_pages;
/// assert_eq!([1, 2, 4, 8, 16, 17].map(|c| next_pages(c, 32)), [4, 4, 8, 16, 32, 32]);
/// ```
#[must_use]
pub fn next_pages(current: u64, max_pages: u64) -> u64 {
    // This reader is sequential: grow fast while small, then double.
    if current < max_pages / 16 {
        current * 4
    } else if current <= max_pages / 2 {
        current * 2
    } else {
        max_pages
    }
}

/// Largest window for a request of `nr_requested` pages: the window of the open file, or the
/// device's largest I/O if the request exceeds it (docs/behaviour A.2.3).
///
/// ```
/// use largefolio_mm::readahead::window::max_pages;
/// assert_eq!((max_pages(4, 32, 320), max_pages(256, 32, 320), max_pages(999, 32, 320)), (32, 256, 320));
/// ```
#[must_use]
pub fn max_pages(nr_requested: u64, ra_pages: u64, io_pages: u64) -> u64 {
    // A request larger than the window is read in I/O as large as the device allows.
    if nr_requested > ra_pages && io_pages > ra_pages {
        nr_requested.min(io_pages)
    } else {
        ra_pages
    }
}
