//! Read calls: sync and async entry, ramp-up, markers (A.3 .. A.6, A.9).

use largefolio_mm::io::Fadvice;
use largefolio_mm::mapping::tree::Tree;
use largefolio_mm::readahead::RaState;
use largefolio_mm::readahead::sync::{self, ReadRequest, prev_index};
use largefolio_mm::units::ByteRange;
use largefolio_sim::kernel::Kernel;

use super::world::World;

/// A row of A.9: the window and its folios.
type Row = ((u64, u64, u64), &'static str);

fn sequential(kernel: &str, nr_rows: usize) -> Vec<((u64, u64, u64), String)> {
    let mut world = World::x86(kernel, "xfs", 1 << 14);
    let mut rows = Vec::new();
    for index in 0.. {
        world.read(index);
        let folios = world.new_folios();
        if !folios.is_empty() {
            rows.push((world.window(), folios));
        }
        if rows.len() == nr_rows {
            break;
        }
    }
    world.validate();
    rows
}

fn check(kernels: &[&str], rows: &[Row]) {
    for kernel in kernels {
        let ours = sequential(kernel, rows.len());
        let rows: Vec<_> = rows.iter().map(|&(state, folios)| (state, folios.to_owned())).collect();
        assert_eq!(ours, rows, "{kernel}");
    }
}

/// Returns the window for a read of a file's first `nr_pages` (A.3.2 step 3).
fn first_window(kernel: &str, nr_pages: u64) -> (u64, u64, u64) {
    let rules = Kernel::parse(kernel).unwrap().rules;
    let mut state = RaState::new(rules.device("").ra_pages);
    let request = ReadRequest {
        index: 0,
        nr_pages,
        prev_index: prev_index(&state, rules.page.shift()),
        io_pages: rules.device("").io_pages,
    };
    sync::choose(&mut state, &Tree::new(), request, &rules.readahead);
    (state.start, state.size, state.async_size)
}

#[test]
fn the_tail_of_a_first_window_is_what_was_not_asked_for_or_half() {
    // A.3.2 step 3, A.3.3.
    assert_eq!([1, 3, 32].map(|nr| first_window("6.12", nr)), [(0, 4, 3), (0, 8, 5), (0, 32, 16)]);
    assert_eq!(first_window("6.18+io=1280K", 100), (0, 100, 50), "A.2.3");
    // 6.1: the whole window is the tail, which would trigger immediately, so the next one is
    // merged.
    assert_eq!(
        [1, 16, 32].map(|nr| first_window("6.1", nr)),
        [(0, 4, 3), (0, 32, 16), (0, 32, 16)]
    );
}

const REMEMBERED: [&str; 5] = ["6.17", "6.18", "7.0", "7.1", "7.2"];
const INHERITED: [&str; 2] = ["6.12", "6.16"];

#[test]
fn sequential_reads_to_6_16_inherit_the_order_of_the_marked_folio() {
    // Left column of A.9.1: "repeats o2,o4,o3,o2 forever". The first read reaches the first
    // window's own marker: rows "sync" and "async1" are one read.
    for kernel in INHERITED {
        assert_eq!(first_window(kernel, 1), (0, 4, 3));
    }
    let rows: [Row; 6] = [
        ((4, 8, 8), "3xo2@0"),
        ((12, 16, 16), "o2@12 o3@16 o2@24"),
        ((28, 32, 32), "o2@28 o4@32 o3@48 o2@56"),
        ((60, 32, 32), "o2@60 o4@64 o3@80 o2@88"),
        ((92, 32, 32), "o2@92 o4@96 o3@112 o2@120"),
        ((124, 32, 32), "o2@124 o4@128 o3@144 o2@152"),
    ];
    check(&INHERITED, &rows);
}

#[test]
fn sequential_reads_from_6_17_grow_by_trimmed_windows() {
    // Right column of A.9.1.
    let rows: [Row; 9] = [
        ((0, 4, 3), "4xo0@0"),
        ((4, 8, 8), "2xo2@4"),
        ((12, 4, 4), "o2@12"),
        ((16, 8, 8), "o3@16"),
        ((24, 8, 8), "o3@24"),
        ((32, 16, 16), "o4@32"),
        ((48, 16, 16), "o4@48"),
        ((64, 32, 32), "o5@64"),
        ((96, 32, 32), "o5@96"),
    ];
    check(&REMEMBERED, &rows);
}

#[test]
fn large_windows_from_6_17_reach_order_9() {
    // Right half of A.9.2: windows and the orders at 128, 512, 1024.
    let rows: [Row; 9] = [
        ((0, 4, 3), "4xo0@0"),
        ((4, 16, 16), "4xo2@4"),
        ((20, 60, 60), "o2@20 o3@24 3xo4@32"),
        ((80, 240, 240), "o4@80 o5@96 3xo6@128"),
        ((320, 448, 448), "o6@320 o7@384 o8@512"),
        ((768, 256, 256), "o8@768"),
        ((1024, 512, 512), "o9@1024"),
        ((1536, 512, 512), "o9@1536"),
        ((2048, 1024, 1024), "2xo9@2048"),
    ];
    check(&["6.17+readahead=4M", "7.2+readahead=4M"], &rows);
}

#[test]
fn large_windows_to_6_16_settle_at_order_4_between_smaller_edges() {
    // Left half of A.9.2.
    let rows = sequential("6.12+readahead=4M", 8);
    for (_, folios) in &rows[4..] {
        assert!(folios.contains("xo4@"), "{folios}");
        assert!(folios.starts_with("o2@") && folios.ends_with(char::is_numeric), "{folios}");
        let is_small = ["o5", "o6", "o7", "o8", "o9"].iter().all(|order| !folios.contains(order));
        assert!(is_small, "{folios}");
    }
}

#[test]
fn linux_6_1_has_no_order_1_and_merges_a_window_that_would_trigger_itself() {
    // A request of the whole window: the merged one has its marker at 16, which the same read
    // reaches (A.3.3, A.5.3, A.5.5).
    let mut world = World::x86("6.1", "xfs", 1 << 12);
    world.read_pages(0, 32);
    assert_eq!((world.window(), world.cached()), ((32, 32, 32), vec![(0, 63)]));
    let mut world = World::x86("6.1", "xfs", 70);
    (0..70).for_each(|index| world.read(index));
    assert!(world.folios().ends_with(" 2xo0@68"), "{}", world.folios());
}

#[test]
fn the_marker_stands_on_the_page_where_the_tail_begins() {
    // 6.17+ marks page 1 of the first window, 6.12 its only folio (A.1.2, A.9.1).
    for (kernel, marker) in [("6.12", 0), ("6.17", 1), ("7.2", 1)] {
        let mut world = World::x86(kernel, "xfs", 1 << 12);
        world.read(0);
        let marked: Vec<u64> = if kernel == "6.12" { vec![] } else { vec![marker] };
        // In 6.12 the read itself reaches the marked folio and starts the next window.
        let markers: Vec<u64> = world.markers().into_iter().filter(|&at| at < 4).collect();
        assert_eq!(markers, marked, "{kernel}");
    }
}

#[test]
fn a_window_that_ends_on_the_last_page_has_no_marker_in_7_2() {
    // A file of 12 pages has a second window 4..11; with 13 pages there is a marker in every kernel
    // (A.5.2, N.3).
    for (kernel, nr_pages, is_marked) in [
        ("6.18", 12, true),
        ("7.1", 12, true),
        ("7.2", 12, false),
        ("6.18", 13, true),
        ("7.2", 13, true),
    ] {
        for fs in ["xfs", "vfat"] {
            let mut world = World::x86(kernel, fs, nr_pages);
            world.read(0);
            world.read(1);
            assert_eq!(world.window(), (4, 8, 8), "{kernel} {fs}");
            let expected: &[u64] = if is_marked { &[4] } else { &[] };
            assert_eq!(world.markers(), expected, "{kernel} {fs} {nr_pages}");
            world.validate();
        }
    }
}

#[test]
fn no_folio_passes_the_last_page_of_the_file() {
    // 70 pages leave 6 pages after the window at 64 (A.5.6, A.6.1, L.1).
    let mut world = World::x86("6.18", "xfs", 70);
    for index in 0..70 {
        world.read(index);
    }
    assert!(world.folios().ends_with("2xo4@32 o2@64 o1@68"), "{}", world.folios());
    world.validate();
}

#[test]
fn base_pages_only_without_large_folios_and_the_marker_moves_up_with_the_cut_before_7_2() {
    // The window 4..=11 of a 10-page file: 6.12 marks 10 - 8 = 2, which is already cached. In a
    // 16-page file nothing is cut (A.6.1).
    let mut world = World::x86("6.12", "vfat", 16);
    world.read(0);
    world.read(1);
    assert_eq!((world.folios().as_str(), world.markers()), ("12xo0@0", vec![4]));
    let mut world = World::x86("6.12", "vfat", 10);
    world.read(0);
    world.read(1);
    assert_eq!((world.folios().as_str(), world.markers()), ("10xo0@0", vec![]));
}

#[test]
fn a_random_read_reads_what_it_asked_for_and_leaves_the_state() {
    // Nothing before page 1000 is cached (A.3.2 step 4).
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    world.read_pages(1000, 3);
    assert_eq!((world.folios().as_str(), world.window()), ("3xo0@1000", (0, 0, 0)));
}

#[test]
fn a_read_one_page_after_the_end_of_the_last_one_is_sequential() {
    // The position is one past the last byte read; the recordings print "1+0" after a read of page
    // 0 (A.3.2 step 3, A.3.4).
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    world.read(1000);
    assert_eq!(world.memory.open_file(world.open).state.prev_pos, Some(1001 * 4096));
    world.read(1002);
    assert_eq!(world.window(), (1002, 4, 3));
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    world.read(1000);
    world.read(1003);
    assert_eq!((world.window(), world.folios().as_str()), ((0, 0, 0), "o0@1000 o0@1003"));
}

#[test]
fn a_read_behind_a_cached_run_continues_it() {
    // 8 cached pages before 108, request 2: size 10, async 1; a run that reaches page 0 counts
    // twice (A.3.2 step 4).
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    (100..108).for_each(|index| world.cache(index, 0));
    world.read_pages(108, 2);
    assert_eq!((world.window(), world.markers()), ((108, 10, 1), vec![117]));
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    (0..5).for_each(|index| world.cache(index, 0));
    world.read_pages(5, 2);
    assert_eq!(world.window(), (5, 12, 1));
}

#[test]
fn a_full_backward_search_counts_one_page_less_in_6_12() {
    // The 32 preceding pages are cached, request 31: random in 6.12, stream in 7.2 (A.4.6, N.10
    // end).
    let window = |kernel| {
        let mut world = World::x86(kernel, "xfs", 1 << 12);
        (60..100).for_each(|index| world.cache(index, 0));
        world.read_pages(100, 31);
        world.window()
    };
    assert_eq!((window("6.12"), window("7.2")), ((0, 0, 0), (100, 32, 1)));
}

#[test]
fn a_stream_behind_another_ones_marker_starts_a_page_late() {
    // Descriptor 1 reads 0..=11, descriptor 2 reads 12: the marked order-2 folio is at 12, the true
    // hole at 16, the reported one at 17 (A.4.6, N.10).
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    for index in 0..12 {
        world.read(index);
    }
    assert_eq!((world.cached(), world.markers()), (vec![(0, 15)], vec![12]));
    let second = world.memory.open(world.file);
    world.memory.pread(second, 12 * 4096, 4096).unwrap();
    assert!(!world.is_cached(16) && world.is_cached(17));
    assert_eq!(world.memory.open_file(second).state.start, 17);
}

#[test]
fn random_advice_on_a_file_reads_exactly_the_request_in_base_pages() {
    // A.1.4, A.3.2 step 2.
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    world.memory.fadvise(world.open, ByteRange { pos: 0, len_bytes: 0 }, Fadvice::Random);
    world.read_pages(0, 3);
    assert_eq!((world.folios().as_str(), world.window()), ("3xo0@0", (0, 0, 0)));
    assert!(world.markers().is_empty());
}

#[test]
fn sequential_advice_doubles_the_window_and_normal_restores_it() {
    // A.1.4.
    let mut world = World::x86("6.18", "xfs", 1 << 12);
    let pages = |world: &World| world.memory.open_file(world.open).state.ra_pages;
    world.memory.fadvise(world.open, ByteRange { pos: 0, len_bytes: 0 }, Fadvice::Sequential);
    assert_eq!(pages(&world), 64);
    world.memory.fadvise(world.open, ByteRange { pos: 0, len_bytes: 0 }, Fadvice::Normal);
    assert_eq!(pages(&world), 32);
}

#[test]
fn without_a_window_a_read_call_reads_page_by_page() {
    // Forced with one page (A.3.2 step 1).
    let mut world = World::x86("6.18+readahead=0", "xfs", 64);
    world.read_pages(0, 5);
    assert_eq!((world.folios().as_str(), world.markers()), ("5xo0@0", vec![]));
}

#[test]
fn a_request_beyond_the_window_is_read_whole_up_to_the_largest_io() {
    // A.2.3, A.3.2 step 3.
    let mut world = World::x86("6.18+io=1280K", "xfs", 1 << 12);
    world.read_pages(0, 100);
    // The read passes the marker at 50 and starts the next window.
    assert_eq!((world.window(), world.cached()), ((100, 100, 100), vec![(0, 199)]));
}

#[test]
fn windows_below_four_pages_are_base_pages_until_6_16() {
    // ra = 3 pages (A.5.1).
    for (kernel, folios) in [("6.12", "3xo0@0"), ("6.18", "3xo0@0")] {
        let mut world = World::x86(&format!("{kernel}+readahead=12K"), "xfs", 64);
        world.read(0);
        assert_eq!(world.new_folios(), folios, "{kernel}");
    }
    // From 6.17, the marked page raises the order even in a short window.
    let last = |kernel: &str| {
        let mut world = World::x86(&format!("{kernel}+readahead=8K"), "xfs", 64);
        (0..12).for_each(|index| world.read(index));
        world.folios()
    };
    assert!(!last("6.12").contains("o1"), "{}", last("6.12"));
    assert!(last("6.18").contains("o1"), "{}", last("6.18"));
}
