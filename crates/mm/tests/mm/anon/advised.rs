//! `MADV_COLD` and `MADV_PAGEOUT`: vectors of docs/behaviour P.4.

use largefolio_mm::folio::lru::{Age, ListId, LruKind};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::AnonRules;
use largefolio_mm::rules::reclaim::{AdvisedFolios, LruRule};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{GroupId, PageIndex, PageSize};
use largefolio_mm::vma::Prot;

use crate::anon::world::{PAGE, World, addr, sizes};

fn world(anon: AnonRules) -> World {
    world_of(Rules { anon, ..Rules::example() })
}

fn world_of(rules: Rules) -> World {
    let (ram_bytes, swap_bytes) = (4096 * PAGE, 1024 * PAGE);
    let config = Config { ram_bytes, swap_bytes, ..Config::new(Arch::X86_64) };
    let ram = Ram::new(PageSize::K4, ram_bytes);
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let mm = memory.new_space();
    World { memory, mm }
}

fn nr_swapped(world: &World) -> u64 {
    world.memory.counters().reclaim.pswpout
}

#[test]
fn pageout_takes_used_pages_at_once() {
    let mut world = world(AnonRules::stock()).mapped(64);
    let mm = world.mm;
    world.write_all(mm, 0..64);
    world.advise(mm, 8, 16, Madvice::Pageout);
    assert_eq!(nr_swapped(&world), 16);
    assert!(world.page(mm, 7).is_some() && world.page(mm, 8).is_none());
    assert!(world.page(mm, 23).is_none() && world.page(mm, 24).is_some());
    assert_eq!((world.byte(mm, 8), world.byte(mm, 23)), (0x88, 0x97));
}

#[test]
fn what_another_process_maps_stays() {
    let mut world = world(sizes(&[64])).mapped(32);
    let mm = world.mm;
    world.write_all(mm, 0..32);
    let child = world.fork(mm);
    world.advise(mm, 0, 32, Madvice::Pageout);
    world.advise(mm, 3, 5, Madvice::Pageout);
    assert_eq!((nr_swapped(&world), world.order(mm, 3)), (0, 4));
    world.exit(child);
    world.advise(mm, 0, 32, Madvice::Pageout);
    assert_eq!(nr_swapped(&world), 32);
}

#[test]
fn a_large_folio_that_is_covered_in_part_is_split() {
    for advice in [Madvice::Cold, Madvice::Pageout] {
        let mut world = world(sizes(&[64])).mapped(32);
        let mm = world.mm;
        world.write_all(mm, 0..32);
        world.advise(mm, 0, 20, advice);
        let nr_out = if advice == Madvice::Cold { 0 } else { 20 };
        assert_eq!(nr_swapped(&world), nr_out);
        assert_eq!(world.order(mm, 20), 0);
        if advice == Madvice::Cold {
            assert_eq!(world.order(mm, 0), 4);
        }
        assert_eq!((world.byte(mm, 3), world.byte(mm, 19), world.byte(mm, 21)), (0x83, 0x93, 0x95));
    }
}

#[test]
fn to_6_9_a_folio_that_is_covered_whole_is_split_too() {
    let mut rules = Rules { anon: sizes(&[64]), ..Rules::example() };
    rules.reclaim.advised = AdvisedFolios::Split;
    let mut world = world_of(rules).mapped(16);
    let mm = world.mm;
    world.write_all(mm, 0..16);
    world.advise(mm, 0, 16, Madvice::Cold);
    assert_eq!(world.order(mm, 0), 0);
}

#[test]
fn cold_makes_inactive_what_was_active() {
    let mut world = world(AnonRules::stock()).mapped(64);
    let mm = world.mm;
    let active = ListId::new(LruKind::Anon, Age::Active);
    assert_eq!(world.memory.rules().reclaim.lru, LruRule::Lists);
    world.write_all(mm, 0..64);
    world.memory.reclaim_pages(1);
    world.write_all(mm, 32..64);
    world.memory.reclaim_pages(1);
    let nr_active = |world: &World| world.memory.group(GroupId::ROOT).vec.nr_pages(active);
    let before = nr_active(&world);
    assert!(before > 0);
    world.advise(mm, 0, 64, Madvice::Cold);
    assert_eq!(nr_active(&world), 0);
    assert_eq!(world.memory.counters().reclaim.pgdeactivate, before);
}

#[test]
fn pages_of_a_file_leave_the_page_cache() {
    let mut world = world(AnonRules::stock());
    let file = world.memory.add_file(64 * PAGE, "xfs");
    let open = world.memory.open(file);
    world.memory.mmap(world.mm, Map::file(open, 0, 64 * PAGE, Prot::READ).at(addr(0))).unwrap();
    for page in 0..64 {
        world.read(world.mm, page);
    }
    world.advise(world.mm, 0, 64, Madvice::Pageout);
    assert!((0..64).all(|index| world.memory.core().find(file, PageIndex(index)).is_none()));
}

#[test]
fn without_swap_space_pageout_splits_large_folios_p_4_4() {
    for size in [64, 2048] {
        let mut world = World::new(sizes(&[size])).mapped(1024);
        let mm = world.mm;
        world.write(mm, 0);
        world.write_all(mm, 512..530);
        world.advise(mm, 0, 520, Madvice::Pageout);
        let order_of = |page| world.page(mm, page).unwrap().order.get();
        assert_eq!([0, 3, 512, 519].map(order_of), [0; 4], "{size}");
        // Partly covered: split, too, but the rest is not reclaimed.
        assert_eq!(order_of(527), 0, "{size}");
        let rest = if size == 64 { 4 } else { 0 };
        assert_eq!(order_of(529), rest, "{size}");
    }
}

#[test]
fn without_swap_space_pageout_unmaps_shared_memory_p_4_4() {
    let mut world = World::new(AnonRules::stock());
    let mm = world.mm;
    let map = Map::anon(64 * PAGE, Prot::READ_WRITE).shared().at(addr(0));
    world.memory.mmap(mm, map).unwrap();
    world.write_all(mm, 0..8);
    world.read(mm, 8);
    world.advise(mm, 0, 64, Madvice::Pageout);
    assert!((0..9).all(|page| world.page(mm, page).is_none()));
    let nr_cached = world.memory.core().mappings().map(|(_, file)| file.tree.iter().count());
    assert_eq!(nr_cached.sum::<usize>(), 8);
}
