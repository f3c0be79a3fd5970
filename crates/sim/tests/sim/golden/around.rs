//! Fault-around: its window, skipped pages, widening, and miss credit (B.5).

use largefolio_mm::core::NewFolio;
use largefolio_mm::pgtable::PteFlags;
use largefolio_mm::units::PageIndex;
use largefolio_mm::vma::Prot;

use super::world::World;

fn cached(kernel: &str, nr_pages: u64) -> World {
    let mut world = World::x86(kernel, "xfs", nr_pages);
    (0..nr_pages).for_each(|index| world.cache(index, 0));
    world
}

#[test]
fn the_window_is_virtually_aligned() {
    // F = 16; page 0 is 5 pages after a multiple of 16 (B.5.2).
    for kernel in ["6.1", "6.12", "6.18", "7.2"] {
        let mut world = cached(kernel, 100).mapped(Prot::READ);
        world.touch(37);
        assert_eq!(world.present(), [(32, 47)], "{kernel}");
        let mut world = cached(kernel, 100).shifted(5).mapped(Prot::READ);
        world.touch(37);
        assert_eq!(world.present(), [(27, 42)], "{kernel}");
    }
}

#[test]
fn what_a_marker_hit_reads_is_mapped_by_the_next_fault() {
    // Recorded on 6.18 (`faults_6.18_amd64/*_markerhit_s0`): window 184 .. 215, marker at 208. The
    // next window begins at 216 and is in flight while the rest of 208 .. 223 is mapped.
    let mut world = World::x86("6.18", "xfs", 16384).mapped(Prot::READ);
    world.touch(200);
    assert_eq!(world.present(), [(192, 207)]);
    world.touch(208);
    assert_eq!(world.present(), [(192, 215)]);
    assert_eq!(world.markers(), [216]);
    world.touch(220);
    assert_eq!(world.present(), [(192, 215), (220, 223)]);
}

#[test]
fn a_fault_waits_for_its_own_request_and_those_before_it() {
    // Page 205 was cached: it splits the window 184 .. 215 into two requests (`*_cutbehind_s0`).
    let cut = |cached: u64| {
        let mut world = World::x86("6.18", "xfs", 16384).mapped(Prot::READ);
        world.cache(cached, 0);
        world.touch(200);
        world.present()
    };
    assert_eq!(cut(205), [(192, 205)]);
    assert_eq!(cut(197), [(192, 207)]);
}

#[test]
fn the_window_is_clipped_to_the_area() {
    // The mapping begins at page 37; pages up to 41 are mapped (B.5.2, L.22).
    let mut world = cached("6.18", 100);
    world.map_part(Prot::READ, (37, 42));
    world.touch(40);
    assert_eq!(world.present(), [(37, 41)]);
}

#[test]
fn the_window_is_clipped_to_the_pte_table() {
    // A window of 64 pages at slots 488.. of a 512-entry table would reach 552 (B.5.2).
    let mut world = cached("6.18+fault-around=2M", 1024).shifted(200).mapped(Prot::READ);
    world.touch(300);
    assert_eq!(world.present(), [(0, 311)]);
    world.touch(400);
    assert_eq!(world.present(), [(0, 823)]);
}

#[test]
fn the_window_is_clipped_to_the_file() {
    // The mapping is longer than the file (B.5.5).
    let mut world = cached("6.18", 20);
    world.map_part(Prot::READ, (0, 64));
    world.touch(17);
    assert_eq!(world.present(), [(16, 19)]);
}

#[test]
fn pages_of_a_folio_beyond_the_file_are_not_mapped() {
    // The smallest folio has pages 40..=43, the file ends with 41 (B.5.5).
    for kernel in ["6.12", "6.18", "7.2"] {
        let mut world = World::x86(&format!("{kernel}+min-folio=16K"), "xfs", 42);
        world.cache(32, 2);
        world.cache(40, 2);
        world.map_part(Prot::READ, (0, 64));
        world.touch(33);
        assert_eq!(world.present(), [(32, 35), (40, 41)], "{kernel}");
    }
}

#[test]
fn one_base_page_switches_it_off() {
    // B.5.1.
    let mut world = cached("6.12+fault-around=4K", 100).mapped(Prot::READ);
    world.touch(37);
    assert_eq!((world.present(), world.memory.counters().nr_finish), (vec![(37, 37)], 1));
}

#[test]
fn marked_and_locked_folios_are_skipped() {
    // B.5.4, L.13.
    let mut world = World::x86("6.18", "xfs", 100).mapped(Prot::READ);
    world.memory.delay_read(world.file, PageIndex(35));
    for index in 32..48 {
        let at = PageIndex(index);
        let folio = NewFolio::new(world.file, at, 0_u8.into_order());
        world.memory.cache_folio(NewFolio { is_marked: index == 40, ..folio }).unwrap();
    }
    world.touch(37);
    assert_eq!(world.present(), [(32, 34), (36, 39), (41, 47)]);
}

trait IntoOrder {
    fn into_order(self) -> largefolio_mm::units::Order;
}

impl IntoOrder for u8 {
    fn into_order(self) -> largefolio_mm::units::Order {
        largefolio_mm::units::Order::new(self)
    }
}

#[test]
fn only_the_batch_of_the_faulting_page_is_young() {
    // B.5.9.
    let mut world = World::x86("6.12", "xfs", 64).mapped(Prot::READ);
    for index in [0, 4, 8, 12] {
        world.cache(index, 2);
    }
    world.touch(9);
    let table = &world.memory.space(world.mm).table;
    let young = |index| table.pte(world.vpn(index)).flags().contains(PteFlags::YOUNG);
    let pages: Vec<u64> = (0..16).filter(|&index| young(index)).collect();
    assert_eq!(pages, [8, 9, 10, 11]);
}

#[test]
fn a_large_folio_is_mapped_inside_the_window_until_6_17_and_whole_from_6_18() {
    // Order 8 at 256, a touch in its middle (B.5.7, N.12).
    for (kernel, present) in
        [("6.12", (384, 399)), ("6.17", (384, 399)), ("6.18", (256, 511)), ("7.2", (256, 511))]
    {
        let mut world = World::x86(kernel, "xfs", 1024).mapped(Prot::READ);
        world.cache(256, 8);
        world.touch(390);
        assert_eq!(world.present(), [present], "{kernel}");
        world.validate();
    }
}

#[test]
fn a_folio_that_leaves_the_area_or_the_table_is_not_widened() {
    // The mapping begins or ends in the middle of the folio; a page table ends in it (B.5.7, N.12).
    let mut world = World::x86("6.18", "xfs", 1024);
    world.cache(256, 8);
    world.map_part(Prot::READ, (300, 600));
    world.touch(390);
    assert_eq!(world.present(), [(384, 399)]);
    let mut world = World::x86("6.18", "xfs", 1024);
    world.cache(256, 8);
    world.map_part(Prot::READ, (0, 500));
    world.touch(390);
    assert_eq!(world.present(), [(384, 399)]);
    let mut world = World::x86("6.18", "xfs", 1024).shifted(400).mapped(Prot::READ);
    world.cache(0, 8);
    world.touch(50);
    assert_eq!(world.present(), [(48, 63)]);
    world.validate();
}

#[test]
fn a_folio_behind_the_fault_is_judged_by_its_own_place() {
    // The window covers the faulting folio and part of the next, which passes the end of the area.
    // Only pages inside the window are mapped (B.5.7).
    let mut world = World::x86("6.18", "xfs", 1024).shifted(8);
    world.cache(8, 0);
    world.cache(16, 4);
    world.map_part(Prot::READ, (0, 24));
    world.touch(8);
    assert_eq!(world.present(), [(8, 8), (16, 23)]);
    world.validate();
    // The same at the end of a PTE table: page 24 is in the next one.
    let mut world = World::x86("6.18", "xfs", 1024).shifted(512 - 24).mapped(Prot::READ);
    world.cache(8, 0);
    world.cache(16, 4);
    world.touch(8);
    assert_eq!(world.present(), [(8, 8), (16, 23)]);
    world.validate();
}

#[test]
fn set_ptes_are_stepped_over() {
    // A private store to page 20 comes first (B.5.7).
    let mut world = World::x86("6.18", "xfs", 1024).mapped(Prot::READ_WRITE);
    world.cache(16, 4);
    world.store(20);
    world.touch(25);
    assert_eq!(world.present(), [(16, 31)]);
    assert_eq!(world.memory.counters().nr_file_ptes, 15);
    world.validate();
}

#[test]
fn the_folio_that_ends_on_the_last_page_is_not_widened() {
    // One page short of B.5.6; the PTE table exists already.
    let mut world = World::x86("6.18", "xfs", 512).mapped(Prot::READ);
    world.cache(0, 0);
    world.cache(256, 8);
    world.touch(0);
    world.touch(390);
    assert_eq!(world.present(), [(0, 0), (384, 399)]);
    // With one more page in the file, it is widened.
    let mut world = World::x86("6.18", "xfs", 513).mapped(Prot::READ);
    world.cache(256, 8);
    world.touch(390);
    assert_eq!(world.present(), [(256, 511)]);
}

#[test]
fn over_an_empty_slot_the_last_folio_is_left_to_the_finishing_step() {
    // Recorded on 6.12 (docs/differences.md "last folio"; b, e, f); N.14 yields PMD + PMD.
    for kernel in ["6.12", "6.18", "7.2"] {
        let mut world = World::x86(kernel, "xfs", 1024).mapped(Prot::READ);
        world.cache(0, 9);
        world.cache(512, 9);
        world.touch(0);
        assert_eq!(world.memory.counters().nr_around, 1, "{kernel}");
        world.touch(600);
        let counters = world.memory.counters();
        assert_eq!((counters.nr_file_pmds, counters.nr_finish), (2, 1), "{kernel}");
        assert_eq!(world.present(), [(0, 1023)]);
        world.validate();
    }
    // With one more page, fault-around maps it itself.
    let mut world = World::x86("6.18", "xfs", 1025).mapped(Prot::READ);
    world.cache(512, 9);
    world.touch(600);
    let counters = world.memory.counters();
    assert_eq!((counters.nr_file_pmds, counters.nr_around), (1, 1));
}

/// Returns the miss counter after `nr` misses and one fault that fault-around serves, with
/// `nr_cached` base pages of its window cached.
fn credit(kernel: &str, prot: Prot, nr_cached: u64, is_workingset: bool) -> u32 {
    let mut world = World::x86(kernel, "xfs", 4096).mapped(prot);
    world.count_misses(50);
    for index in 32..32 + nr_cached {
        world.cache(index, 0);
        if is_workingset {
            world.memory.mark_workingset(world.file, PageIndex(index)).unwrap();
        }
    }
    world.touch(32);
    world.miss()
}

#[test]
fn credits_are_per_page_then_per_new_page_then_one_per_fault() {
    // B.5.8.
    for (kernel, new, refaulted) in [
        ("6.1", 40, 40),
        ("6.12", 40, 50),
        ("6.18", 40, 50),
        ("7.0", 40, 50),
        ("7.1", 40, 50),
        ("7.2", 49, 50),
    ] {
        assert_eq!(credit(kernel, Prot::READ, 10, false), new, "{kernel}");
        assert_eq!(credit(kernel, Prot::READ, 10, true), refaulted, "{kernel}");
    }
    // Neither SEQ nor EXEC gets credit in 7.2.
    assert_eq!(credit("7.2", Prot::READ_EXEC, 10, false), 50);
    assert_eq!(credit("7.0", Prot::READ_EXEC, 10, false), 40);
}

#[test]
fn a_widened_folio_counts_whole_and_a_pmd_counts_nothing() {
    // B.5.8, 6.18 and 7.0.
    let miss = |order: u8| {
        let mut world = World::x86("6.18", "xfs", 4096).mapped(Prot::READ);
        world.count_misses(90);
        world.cache(512, order);
        world.touch(520);
        world.miss()
    };
    assert_eq!((miss(6), miss(9)), (26, 90));
}
