//! Collapse and memory pressure: swapped pages are swapped in, evicted ones count, and folios held
//! by a collapse are not evicted (docs/behaviour H.4.1, H.6.1, H.6.2, H.6.4).

use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::map::Map;
use largefolio_mm::ram::stored_byte;
use largefolio_mm::rules::anon::{Enabled, SizeMode};
use largefolio_mm::rules::collapse::SwapPtes;
use largefolio_mm::units::Order;
use largefolio_mm::units::PageRange;
use largefolio_mm::vma::Prot;

use crate::collapse::world::{N, PAGE, World, addr, mark, new_rules, old_rules};

const RAM: u64 = 32 << 20;

fn swapped(nr: u64) -> World {
    let mut world = World::with_swap(new_rules(), RAM, RAM).mapped(N);
    world.write(0..N);
    swap_out(&mut world, nr);
    world
}

fn swap_out(world: &mut World, nr: u64) {
    while nr_swapped(world) < nr {
        assert!(world.memory.reclaim_pages(1) > 0, "{} pages swapped", nr_swapped(world));
        world.memory.validate().unwrap();
    }
}

fn nr_swapped(world: &World) -> u64 {
    world.memory.space(world.mm).swapped.len() as u64
}

fn assert_own_bytes(world: &mut World) {
    for page in 0..N {
        assert_eq!(world.byte(world.mm, page), mark(page), "page {page}");
    }
}

#[test]
fn advice_brings_every_swapped_page_back_h_6_2() {
    for nr in [1, N / 2, N] {
        let mut world = swapped(nr);
        let nr = nr_swapped(&world);
        let before = world.memory.counters().reclaim.pswpin;
        world.collapse(0, N).unwrap();
        assert!(world.is_huge(0));
        assert_eq!(nr_swapped(&world), 0);
        assert_eq!(world.memory.counters().reclaim.pswpin - before, nr);
        assert_own_bytes(&mut world);
    }
}

#[test]
fn khugepaged_reads_back_an_eighth_at_most_h_6_1() {
    let mut world = swapped(65);
    assert_eq!(world.scan(), [CollapseRefusal::ExceedSwapPte]);
    assert!(nr_swapped(&world) >= 65, "nothing was read for it");
    let nr = nr_swapped(&world);
    world.tune(|rules| rules.collapse.max_ptes_swap = SwapPtes::Exactly(nr));
    assert_eq!(world.wake(), []);
    assert!(world.is_huge(0));
    assert_own_bytes(&mut world);
}

#[test]
fn half_of_the_block_must_be_in_use_if_pages_are_swapped_h_6_1() {
    let mut world = World::with_swap(new_rules(), RAM, RAM).mapped(N);
    world.write(0..N / 2 + 10);
    swap_out(&mut world, 20);
    let nr = nr_swapped(&world);
    world.tune(|rules| rules.collapse.max_ptes_swap = SwapPtes::Exactly(N));
    assert!(N / 2 + 10 - nr < N / 2);
    assert_eq!(world.scan(), [CollapseRefusal::LackReferencedPage]);
    world.write(N / 2 + 10..N / 2 + 10 + nr);
    assert_eq!(world.wake(), []);
    assert!(world.is_huge(0));
}

#[test]
fn smaller_sizes_take_no_swapped_page_h_6_4_e() {
    let mut world = swapped(1);
    world.tune(|rules| rules.anon.pmd = SizeMode::Never);
    world.tune(|rules| rules.anon.set_size(64 << 10, SizeMode::Always).unwrap());
    world.tune(|rules| rules.anon.thp = Enabled::Always);
    let is_swapped =
        |world: &World, first: u64| (first..first + 16).any(|page| world.page(page).is_none());
    let there: Vec<bool> = (0..N).step_by(16).map(|first| !is_swapped(&world, first)).collect();
    assert!(there.contains(&true) && there.contains(&false));
    let _ = world.scan();
    for (first, was_there) in (0..N).step_by(16).zip(there) {
        let order = world.page(first).map(|page| page.order);
        assert_eq!(order == Some(Order::new(4)), was_there, "pages from {first}");
    }
    assert_own_bytes(&mut world);
}

#[test]
fn advice_to_a_small_size_brings_swapped_pages_back() {
    let mut world = swapped(N);
    world.memory.madvise_collapse_to(world.mm, addr(0), N * PAGE, Order::new(4)).unwrap();
    world.memory.validate().unwrap();
    assert!((0..N).all(|page| world.order(page) == 4));
    assert_own_bytes(&mut world);
}

#[test]
fn evicted_pages_of_a_file_count_as_swapped_h_4_1() {
    let (world, file, _) = World::with_ram(old_rules(), RAM).with_file("vfat", N, Prot::READ);
    let mut world = world;
    world.read(0..N);
    while world.memory.core().mapping(file).nr_evicted(PageRange { first: 0, end: N }) <= 64 {
        assert!(world.memory.reclaim_pages(1) > 0);
    }
    assert_eq!(world.scan(), [CollapseRefusal::ExceedSwapPte]);
    world.collapse(0, N).unwrap();
    assert!(world.is_huge(0));
    for page in 0..N {
        assert_eq!(world.byte(world.mm, page), stored_byte(file, page * PAGE));
    }
}

#[test]
fn swapped_pages_of_shared_memory_come_back_h_5() {
    let mut world = World::with_swap(new_rules(), RAM, RAM);
    let map = Map::anon(N * PAGE, Prot::READ_WRITE).shared().at(addr(0));
    world.memory.mmap(world.mm, map).unwrap();
    world.write(0..N - 100);
    let count = |world: &World| -> u64 {
        world
            .memory
            .core()
            .mappings()
            .map(|(_, mapping)| mapping.nr_evicted(PageRange { first: 0, end: N }))
            .sum()
    };
    while count(&world) < N - 100 {
        assert!(world.memory.reclaim_pages(1) > 0);
        world.memory.validate().unwrap();
    }
    world.collapse(0, N).unwrap();
    assert!(world.is_huge(0));
    assert_eq!(count(&world), 0);
    for page in 0..N {
        let expected = if page < N - 100 { mark(page) } else { 0 };
        assert_eq!(world.byte(world.mm, page), expected, "page {page}");
    }
}

#[test]
fn what_a_collapse_holds_is_not_evicted_for_it() {
    let (world, file, _) = World::with_ram(old_rules(), 9 << 20).with_file("vfat", N, Prot::READ);
    let mut world = world;
    let hog = Map::anon(N * PAGE, Prot::READ_WRITE).at(addr(4 * N));
    world.memory.mmap(world.mm, hog).unwrap();
    for page in (0..N).filter(|page| page % 8 < 4) {
        world.memory.pread(largefolio_mm::vma::OpenId(0), page * PAGE, PAGE).unwrap();
    }
    for page in 0..N {
        let _ = world.memory.store(world.mm, addr(4 * N + page), &[1]);
    }
    let collapsed = world.collapse(0, N);
    assert_eq!(world.is_huge(0), collapsed.is_ok(), "{collapsed:?}");
    for page in 0..N {
        assert_eq!(world.byte(world.mm, page), stored_byte(file, page * PAGE), "page {page}");
    }
}
