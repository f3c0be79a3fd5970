//! The finishing step and PMD mappings (B.6, L.19, L.20).

use largefolio_mm::fault::{Access, FaultOutcome};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::vma::Prot;

use super::world::World;

#[test]
fn without_fault_around_one_pte_until_6_17_and_the_folio_from_6_18() {
    // B.6.4, L.19, N.13.
    for (kernel, present) in
        [("6.12", (390, 390)), ("6.17", (390, 390)), ("6.18", (256, 511)), ("7.2", (256, 511))]
    {
        let kernel = format!("{kernel}+fault-around=4K");
        let mut world = World::x86(&kernel, "xfs", 1024).mapped(Prot::READ);
        world.cache(256, 8);
        world.touch(390);
        assert_eq!(world.present(), [present], "{kernel}");
    }
}

#[test]
fn one_set_pte_leaves_exactly_one_pte_to_finish() {
    // Third run (B.6.4, N.13).
    let kernel = "6.18+fault-around=4K";
    let mut world = World::x86(kernel, "xfs", 1024).mapped(Prot::READ_WRITE);
    world.cache(256, 8);
    world.store(300);
    world.touch(390);
    assert_eq!(world.present(), [(300, 300), (390, 390)]);
    world.validate();
}

#[test]
fn a_folio_that_leaves_area_or_table_gets_one_pte() {
    // B.6.4.
    let kernel = "6.18+fault-around=4K";
    let mut world = World::x86(kernel, "xfs", 1024);
    world.cache(256, 8);
    world.map_part(Prot::READ, (300, 600));
    world.touch(390);
    assert_eq!(world.present(), [(390, 390)]);
    let mut world = World::x86(kernel, "xfs", 1024).shifted(100).mapped(Prot::READ);
    world.cache(256, 8);
    world.touch(420);
    assert_eq!(world.present(), [(420, 420)]);
}

#[test]
fn the_end_of_file_test_of_the_finishing_step_is_exact() {
    // A folio that ends on the last page is mapped whole; one that passes it gets one PTE (B.6.2).
    let kernel = "6.18+fault-around=4K";
    let mut world = World::x86(kernel, "xfs", 512).mapped(Prot::READ);
    world.cache(256, 8);
    world.touch(390);
    assert_eq!(world.present(), [(256, 511)]);
    let mut world = World::x86("6.18+fault-around=4K+min-folio=16K", "xfs", 42).mapped(Prot::READ);
    world.touch(41);
    world.touch(38);
    assert_eq!(world.present(), [(36, 39), (41, 41)]);
    world.validate();
}

fn is_pmd(world: &mut World) -> bool {
    world.cache(512, 9);
    world.touch(700).leaf.kind == LeafKind::Pmd
}

#[test]
fn a_pmd_folio_needs_congruence_room_an_empty_slot_and_no_nohugepage() {
    // B.6.3.
    for around in ["", "+fault-around=4K"] {
        let world = |kernel: &str| World::x86(&format!("{kernel}{around}"), "xfs", 2048);
        assert!(is_pmd(&mut world("6.18").mapped(Prot::READ)));
        assert!(!is_pmd(&mut world("6.18").shifted(1).mapped(Prot::READ)));
        let mut part = world("6.18");
        part.map_part(Prot::READ, (513, 2048));
        assert!(!is_pmd(&mut part));
        let mut part = world("6.18");
        part.map_part(Prot::READ, (0, 1023));
        assert!(!is_pmd(&mut part));
        let mut stored = world("6.18").mapped(Prot::READ_WRITE);
        stored.store(600);
        stored.memory.munmap(stored.mm, stored.addr(600), 4096).unwrap();
        let nohuge = |kernel| world(kernel).mapped(Prot::READ).advised(&[Madvice::Nohugepage]);
        assert!(is_pmd(&mut nohuge("6.1")));
        assert!(!is_pmd(&mut nohuge("6.12")));
        assert!(!is_pmd(&mut nohuge("7.2")));
    }
}

#[test]
fn a_shared_store_maps_the_last_folio_by_a_pmd_everywhere() {
    // Stores do not use fault-around (B.5.6).
    for kernel in ["6.12", "6.18", "7.2"] {
        let mut world = World::x86(kernel, "xfs", 512);
        let map = Map::file(world.open, 0, 512 * 4096, Prot::READ_WRITE).shared().at(world.base);
        world.memory.mmap(world.mm, map).unwrap();
        world.cache(0, 9);
        assert_eq!(world.store(100).leaf.kind, LeafKind::Pmd, "{kernel}");
        world.validate();
    }
}

#[test]
fn a_private_store_copies_one_page_and_does_no_fault_around() {
    // B.1.2, B.1.3, B.6.1.
    let mut world = World::x86("6.18", "xfs", 1024).mapped(Prot::READ_WRITE);
    world.cache(256, 8);
    world.store(300);
    assert_eq!((world.present(), world.memory.counters().nr_cow), (vec![(300, 300)], 1));
}

#[test]
fn a_cold_fault_is_one_major_fault_and_a_warm_one_a_minor_fault() {
    // B.2.5, N.30.
    for kernel in ["6.1", "6.12", "6.18", "7.2"] {
        let mut world = World::x86(kernel, "xfs", 1024).mapped(Prot::READ);
        assert_eq!(world.touch(100).outcome, FaultOutcome::Major);
        assert_eq!(world.touch(100).outcome, FaultOutcome::Hit);
        world.cache(500, 0);
        assert_eq!(world.touch(500).outcome, FaultOutcome::Minor);
        let counters = world.memory.counters();
        assert_eq!((counters.pgfault, counters.pgmajfault, counters.nr_cold), (2, 1, 1));
    }
}

#[test]
fn beyond_the_file_is_an_error() {
    // B.2.1.
    let mut world = World::x86("6.18", "xfs", 10);
    world.map_part(Prot::READ, (0, 20));
    world.touch(9);
    let addr = world.addr(10);
    let error = world.memory.touch(world.mm, addr, Access::Read).unwrap_err();
    assert_eq!(error, largefolio_mm::fault::FaultError::BeyondFile(addr.0));
    let error = world.memory.touch(world.mm, addr, Access::Write).unwrap_err();
    assert!(error.to_string().contains("may not be accessed"), "{error}");
}

#[test]
fn text_on_64k_is_mapped_page_by_page_until_6_17() {
    // Fault-around is off; an order-5 folio folds with its last PTE, or immediately (L.20).
    for (kernel, is_whole) in [("6.12", false), ("6.17", false), ("6.18", true), ("7.2", true)] {
        let mut world = World::arm(&format!("{kernel}+page=64K"), "xfs", 256).mapped(Prot::READ);
        world.cache(32, 5);
        let leaf = world.touch(40).leaf;
        assert_eq!(leaf.kind == LeafKind::Contpte, is_whole, "{kernel}");
        let last = (32..64).map(|index| world.touch(index).leaf.kind).collect::<Vec<_>>();
        assert_eq!(last[31], LeafKind::Contpte, "{kernel}");
        assert_eq!(last[30] == LeafKind::Contpte, is_whole, "{kernel}");
    }
}

#[test]
fn text_on_4k_is_mapped_as_far_as_the_window_until_6_17() {
    // An order-4 folio; virtual and file alignment differ by 8 pages (L.19).
    let present = |kernel: &str| {
        let mut world = World::arm(kernel, "xfs", 256).shifted(8).mapped(Prot::READ_EXEC);
        world.cache(32, 4);
        world.touch(33);
        world.present()
    };
    assert_eq!(present("6.12"), [(32, 39)]);
    assert_eq!(present("6.18"), [(32, 47)]);
    assert_eq!(present("6.18+fault-around=4K"), [(32, 47)]);
}
