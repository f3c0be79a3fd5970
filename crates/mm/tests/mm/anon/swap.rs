//! Swap space: vectors of docs/behaviour P.5. Kernel recordings are in
//! `lab/tests/recordings/swap.rs`.

use largefolio_mm::map::Madvice;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::policy::{Answer, Point};
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::AnonRules;
use largefolio_mm::rules::reclaim::{SwapDevice, SwapIn};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{GroupId, PageSize};

use crate::anon::whim::{Always, counts};
use crate::anon::world::{PAGE, World, sizes};

fn world(anon: AnonRules, device: SwapDevice, swap_in: SwapIn) -> World {
    let mut rules = Rules { anon, ..Rules::example() };
    (rules.reclaim.swap_device, rules.reclaim.swap_in) = (device, swap_in);
    let (ram_bytes, swap_bytes) = (4096 * PAGE, 1024 * PAGE);
    let config = Config { ram_bytes, swap_bytes, ..Config::new(Arch::X86_64) };
    let ram = Ram::new(PageSize::K4, ram_bytes);
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let mm = memory.new_space();
    let mut world = World { memory, mm }.mapped(64);
    world.write_all(mm, 0..64);
    world.advise(mm, 0, 64, Madvice::Pageout);
    if device == SwapDevice::Disk {
        // While they are being written, reclaim leaves them in the swap cache.
        assert_eq!(numbers(&world), (0, 64, 64, 64));
        world.memory.reclaim_group(GroupId::ROOT, 64);
    }
    assert_eq!(numbers(&world), (0, 64, 0, 64));
    world
}

/// Pages in, pages out, pages in the cache, slots in use: the order of the recordings.
fn numbers(world: &World) -> (u64, u64, u64, u64) {
    let counters = world.memory.counters().reclaim;
    let (cached, used) = (world.memory.nr_swap_cached(), world.memory.nr_swapped());
    (counters.pswpin, counters.pswpout, cached, used)
}

#[test]
fn one_user_of_zram_gets_a_page_and_its_slot_is_free() {
    for swap_in in [SwapIn::Pages, SwapIn::Folios, SwapIn::Cached] {
        let mut world = world(AnonRules::stock(), SwapDevice::Zram, swap_in);
        let mm = world.mm;
        world.read(mm, 3);
        assert_eq!(numbers(&world), (1, 64, 0, 63), "{swap_in:?}");
        assert_eq!(world.byte(mm, 3), 0x83);
    }
}

#[test]
fn a_large_folio_comes_back_as_one_from_6_12_on() {
    for (swap_in, order, nr) in
        [(SwapIn::Pages, 0, 1), (SwapIn::Folios, 4, 16), (SwapIn::Cached, 4, 16)]
    {
        let mut world = world(sizes(&[64]), SwapDevice::Zram, swap_in);
        let mm = world.mm;
        world.read(mm, 35);
        assert_eq!((world.order(mm, 35), numbers(&world)), (order, (nr, 64, 0, 64 - nr)));
        world.unmap(mm, 20, 1);
        world.read(mm, 17);
        assert_eq!(world.order(mm, 17), 0);
    }
}

#[test]
fn a_policy_chooses_the_orders_of_a_swap_in() {
    for (orders, order, counted) in
        [(1 << 4, 4, (1, 1, 0)), (0, 0, (1, 1, 0)), (1 << 9, 0, (1, 0, 1))]
    {
        let mut world = world(sizes(&[64]), SwapDevice::Zram, SwapIn::Folios);
        world.memory.set_policy(Box::new(Always(Answer::Value(orders))));
        let mm = world.mm;
        world.read(mm, 35);
        assert_eq!(world.order(mm, 35), order);
        assert_eq!(counts(&world, Point::SwapinOrder), counted);
    }
}

/// Program 5 of the first recordings of 7.2.
#[test]
fn sharers_of_a_slot_get_one_folio() {
    let mut world = world(AnonRules::stock(), SwapDevice::Zram, SwapIn::Cached);
    let mm = world.mm;
    let child = world.fork(mm);
    world.read(mm, 0);
    assert_eq!(numbers(&world), (1, 64, 1, 64));
    world.read(child, 0);
    assert_eq!(numbers(&world), (1, 64, 0, 63));
    assert_eq!(world.pfn(mm, 0), world.pfn(child, 0));
    // A store copies a page whose slot the parent still uses; the parent gets the page read.
    world.write(child, 2);
    assert_eq!(numbers(&world), (2, 64, 1, 63));
    world.read(mm, 2);
    assert_eq!(numbers(&world), (2, 64, 0, 62));
    assert_ne!(world.pfn(mm, 2), world.pfn(child, 2));
}

#[test]
fn what_the_cache_holds_is_not_written_again() {
    let mut world = world(AnonRules::stock(), SwapDevice::Disk, SwapIn::Folios);
    let mm = world.mm;
    world.read(mm, 30);
    assert_eq!(numbers(&world), (8, 64, 8, 64));
    world.advise(mm, 0, 64, Madvice::Pageout);
    assert_eq!(numbers(&world), (8, 64, 7, 64));
    world.write(mm, 31);
    assert_eq!(numbers(&world), (8, 64, 6, 63));
    world.advise(mm, 0, 64, Madvice::Pageout);
    assert_eq!(numbers(&world).1, 65);
    assert_eq!((world.byte(mm, 30), world.byte(mm, 31)), (0x9e, 0x9f));
}

#[test]
fn a_fork_of_swapped_pages_ends_with_its_slots_free() {
    for device in [SwapDevice::Zram, SwapDevice::Disk] {
        for swap_in in [SwapIn::Pages, SwapIn::Folios, SwapIn::Cached] {
            let mut world = world(sizes(&[64]), device, swap_in);
            let mm = world.mm;
            let child = world.fork(mm);
            for page in (0..64).step_by(3) {
                world.read(mm, page);
                world.write(child, page);
            }
            world.exit(mm);
            for page in 0..64 {
                assert_eq!(world.byte(child, page), 0x80 | page as u8);
            }
            world.exit(child);
            assert_eq!((world.memory.nr_swap_cached(), world.memory.nr_swapped()), (0, 0));
        }
    }
}

#[test]
fn a_child_copies_a_page_that_was_its_parents_own_before_it_was_swapped() {
    let mut world = world(AnonRules::stock(), SwapDevice::Disk, SwapIn::Folios);
    let mm = world.mm;
    assert!(world.write(mm, 5).is_anon_exclusive);
    world.advise(mm, 5, 1, Madvice::Pageout);
    assert!(world.page(mm, 5).is_none() && world.memory.nr_swap_cached() > 0);
    let child = world.fork(mm);
    let own = world.write(child, 5).pfn;
    assert_ne!(world.read(mm, 5).pfn, own);
}
