//! Window sizes (A.2).

use largefolio_mm::readahead::window::{initial_pages, max_pages, next_pages};

#[test]
fn a_first_window_is_four_times_twice_or_the_whole_limit() {
    // M = 32; M = 1024 has all three branches (A.2.1).
    let row = [1, 2, 3, 4, 5, 8, 9, 32, 999].map(|pages| initial_pages(pages, 32));
    assert_eq!(row, [4, 4, 8, 8, 16, 16, 32, 32, 32]);
    let row = [1, 32, 33, 256, 257].map(|pages| initial_pages(pages, 1024));
    assert_eq!(row, [4, 128, 128, 512, 1024]);
    // 64K pages, 128 KiB: M / 32 and M / 4 are 0.
    assert_eq!([1, 2, 3].map(|pages| initial_pages(pages, 2)), [2, 2, 2]);
}

#[test]
fn the_next_window_is_four_times_twice_or_the_whole_limit() {
    // A.2.2.
    let row = [1, 2, 4, 8, 16, 17, 32].map(|pages| next_pages(pages, 32));
    assert_eq!(row, [4, 4, 8, 16, 32, 32, 32]);
    assert_eq!([63, 64, 512, 513].map(|pages| next_pages(pages, 1024)), [252, 128, 1024, 1024]);
}

#[test]
fn a_request_beyond_the_window_may_use_the_largest_io_of_the_device() {
    // (request, ra_pages, io_pages) (A.2.3).
    let rows = [(32, 32, 320), (33, 32, 320), (999, 32, 320), (999, 32, 32), (999, 32, 16)];
    let max = rows.map(|(request, ra, io)| max_pages(request, ra, io));
    assert_eq!(max, [32, 33, 320, 32, 32]);
}
