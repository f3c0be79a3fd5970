//! The miss counter, case by case (B.7), and when readahead stops (B.7.1 .. B.7.4, L.4).

use largefolio_mm::map::Madvice::{self, Hugepage, Random, Sequential};
use largefolio_mm::units::PageIndex;
use largefolio_mm::vma::Prot;

use super::world::World;

const KERNELS: [&str; 6] =
    ["6.1", "6.12", "6.18", "7.0", "6.12+forced=posted+forced-gate=on+exec-miss=posted", "7.2"];

/// A mapping on x86-64 with fault-around off, so that a retry gets no credit.
fn quiet(kernel: &str, fs: &str, prot: Prot, advices: &[Madvice]) -> World {
    let kernel = format!("{kernel}+fault-around=4K");
    World::x86(&kernel, fs, 1 << 20).mapped(prot).advised(advices)
}

/// Returns the increment by one cold fault, and how many of 150 sparse faults get no readahead.
fn cold(kernel: &str, fs: &str, prot: Prot, advices: &[Madvice]) -> (u32, u64) {
    let mut world = quiet(kernel, fs, prot, advices);
    world.touch(1000);
    let added = world.miss();
    world.touch_all((1..150).map(|nr| 1000 + nr * 2048));
    world.validate();
    (added, world.memory.counters().nr_gated)
}

/// Counted and gated: the 101st of 150 is the first without readahead.
const Y: (u32, u64) = (1, 50);
const N: (u32, u64) = (0, 0);

fn row(fs: &str, prot: Prot, advices: &[Madvice], cells: [(u32, u64); 6]) {
    let ours = KERNELS.map(|kernel| cold(kernel, fs, prot, advices));
    assert_eq!(ours, cells, "{fs} {prot:?} {advices:?}");
}

#[test]
fn a_cold_fault_of_a_normal_mapping_counts_everywhere() {
    row("xfs", Prot::READ, &[], [Y, Y, Y, Y, Y, Y]);
}

#[test]
fn a_cold_fault_with_sequential_advice_never_counts() {
    row("xfs", Prot::READ, &[Sequential], [N, N, N, N, N, N]);
    row("xfs", Prot::READ, &[Sequential, Hugepage], [N, N, N, N, N, N]);
}

#[test]
fn a_cold_fault_with_random_advice_counts_only_where_it_is_forced_and_gated() {
    row("xfs", Prot::READ, &[Random], [N, N, N, N, N, N]);
    row("xfs", Prot::READ, &[Random, Hugepage], [N, N, N, Y, Y, Y]);
    // Without large folios 7.2 forces nothing (B.3.1.2, B.4.5).
    row("vfat", Prot::READ, &[Random, Hugepage], [N, N, N, Y, Y, N]);
}

#[test]
fn a_cold_fault_with_hugepage_advice_counts_from_6_19_on() {
    row("xfs", Prot::READ, &[Hugepage], [N, N, N, Y, Y, Y]);
    row("xfs", Prot::READ_EXEC, &[Hugepage], [N, N, N, Y, N, N]);
    row("vfat", Prot::READ, &[Hugepage], [N, N, N, Y, Y, Y]);
    assert_eq!(cold("6.19", "xfs", Prot::READ, &[Hugepage]), Y);
}

#[test]
fn a_cold_fault_of_text_counts_until_series_002() {
    row("xfs", Prot::READ_EXEC, &[], [Y, Y, Y, Y, N, N]);
}

/// Returns the decrement by a handler hit from 50, with the folio locked or not.
fn hit(kernel: &str, prot: Prot, advices: &[Madvice], is_locked: bool) -> u32 {
    let mut world = quiet(kernel, "xfs", prot, advices);
    world.count_misses(50);
    if is_locked {
        world.memory.delay_read(world.file, PageIndex(100));
    }
    world.cache(100, 0);
    world.touch(100);
    50 - world.miss()
}

#[test]
fn a_handler_hit_gives_back_as_in_the_table() {
    let of = |prot, advices: &[Madvice], is_locked| {
        KERNELS.map(|kernel| hit(kernel, prot, advices, is_locked))
    };
    assert_eq!(of(Prot::READ, &[], false), [1; 6]);
    // 6.12 counts a locked folio twice (a minor retry runs the async step again), 6.18 does not
    // count it the first time (B.3.1.1).
    assert_eq!(of(Prot::READ, &[], true), [1, 2, 1, 1, 2, 1]);
    // Series 002 as posted still decrements for EXEC, the merged form does not (B.4.3).
    assert_eq!(of(Prot::READ_EXEC, &[], false), [1, 1, 1, 1, 1, 0]);
    assert_eq!(of(Prot::READ, &[Sequential], false), [1, 1, 1, 1, 1, 0]);
    // RAND_READ skips the whole step (B.3).
    assert_eq!(of(Prot::READ, &[Random], false), [0; 6]);
}

#[test]
fn a_marker_hit_counts_twice_where_minor_faults_are_repeated_untried() {
    // B.3.1.1.
    let given = |kernel: &str| {
        let mut world = quiet(kernel, "xfs", Prot::READ, &[]);
        world.touch(1000);
        world.count_misses(50);
        let marker = world.markers()[0];
        world.touch(marker);
        51 - world.miss()
    };
    assert_eq!(["6.1", "6.12", "6.18", "7.2"].map(given), [1, 2, 2, 2]);
}

#[test]
fn the_counter_stays_between_0_and_1000_and_the_gate_is_strict() {
    // L.4.
    let mut world = quiet("6.18", "xfs", Prot::READ, &[]);
    for nr in 0..1100 {
        world.touch(1000 + nr * 64);
        assert_eq!(u64::from(world.miss()), (nr + 1).min(1000));
        assert_eq!(world.memory.counters().nr_gated, nr.saturating_sub(99));
    }
    let mut world = World::x86("6.18", "xfs", 64).mapped(Prot::READ);
    (0..64).for_each(|index| world.cache(index, 0));
    world.touch_all(0..64);
    assert_eq!(world.miss(), 0);
}

#[test]
fn the_counter_belongs_to_the_open_file() {
    // Two mappings of one open share the counter, two opens of one file do not (B.7.1).
    let mut world = quiet("6.18", "xfs", Prot::READ, &[]);
    world.touch(1000);
    let other = world.memory.new_space();
    let (base, first) = (world.base, world.mm);
    let map = largefolio_mm::map::Map::file(world.open, 0, 1 << 30, Prot::READ).at(base);
    world.memory.mmap(other, map).unwrap();
    world.mm = other;
    world.touch(9000);
    assert_eq!(world.miss(), 2);
    let second = world.memory.open(world.file);
    assert_eq!(world.memory.open_file(second).state.mmap_miss(), 0);
    world.mm = first;
}

/// Returns the first of `nr` touches, `stride` pages apart, that reads only its own page;
/// fault-around is on.
fn first_refused(kernel: &str, prot: Prot, nr: u64) -> Option<u64> {
    let mut world = World::x86(kernel, "xfs", 1 << 20).mapped(prot);
    (0..nr).find(|touch| {
        world.new_folios();
        world.touch(1000 + touch * 64);
        world.nr_new_pages() == 1
    })
}

#[test]
fn with_fault_around_sparse_misses_cancel_themselves_until_7_1() {
    // B.7.4, L.22 last row, N.4, N.5.
    for kernel in ["6.12", "6.16", "6.18", "6.19", "7.0", "7.1"] {
        assert_eq!(first_refused(kernel, Prot::READ, 250), None, "{kernel}");
        assert_eq!(first_refused(kernel, Prot::READ_EXEC, 250), None, "{kernel}");
    }
    // 7.2 refuses the 101st; it never refuses text (B.7.3).
    assert_eq!(first_refused("7.2", Prot::READ, 250), Some(100));
    assert_eq!(first_refused("7.2", Prot::READ_EXEC, 250), None);
    assert_eq!(first_refused("7.2+fault-around=4K", Prot::READ, 250), Some(100));
}

#[test]
fn exec_accesses_of_7_2_leave_the_counter_alone() {
    // Text first, then 101 cold touches of a plain mapping of the same open (N.5 second half).
    let mut world = quiet("7.2", "xfs", Prot::READ_EXEC, &[]);
    world.touch_all((0..120).map(|nr| 1000 + nr * 64));
    world.touch_all((0..32).map(|index| 1000 + index));
    assert_eq!(world.miss(), 0);
    world.memory.munmap(world.mm, world.base, 1 << 30).unwrap();
    let mut world = world.mapped(Prot::READ);
    world.touch_all((0..100).map(|nr| 100_000 + nr * 64));
    assert_eq!(world.memory.counters().nr_gated, 0);
    world.touch(200_000);
    assert_eq!(world.memory.counters().nr_gated, 1);
}
