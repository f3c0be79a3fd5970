//! Which anonymous pages reclaim takes: vectors of docs/behaviour P.2 and P.5. Kernel recordings are
//! in `lab/tests/recordings/swap.rs`.

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::folio::lru::Age;
use largefolio_mm::map::Madvice;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::{AnonRules, SplitZeroPages};
use largefolio_mm::rules::reclaim::AdvisedFolios;
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::MmId;

use crate::anon::world::{PAGE, World, addr, sizes};

fn world(rules: Rules) -> World {
    let (ram_bytes, swap_bytes) = (4096 * PAGE, 1024 * PAGE);
    let config = Config { ram_bytes, swap_bytes, ..Config::new(Arch::X86_64) };
    let ram = Ram::new(rules.page, ram_bytes);
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let mm = memory.new_space();
    World { memory, mm }.mapped(64)
}

fn with(anon: AnonRules) -> Rules {
    Rules { anon, ..Rules::example() }
}

fn is_active(world: &World, mm: MmId, page: u64) -> bool {
    let Some(view) = world.memory.page_at(mm, addr(page)) else { return false };
    let folios = &world.memory.core().folios;
    let list = folios.of_pfn(view.pfn).and_then(|id| folios.lru().list_of(id));
    list.is_some_and(|list| list.age() == Age::Active)
}

#[test]
fn a_page_that_two_processes_use_is_activated_at_once() {
    let mut world = world(with(AnonRules::stock()));
    let mm = world.mm;
    world.write_all(mm, 0..64);
    let child = world.fork(mm);
    // A fork leaves the child's entries old: only page 5 has two young ones.
    world.read(child, 5);
    assert!(world.memory.reclaim_pages(32) > 0);
    let active: Vec<u64> = (0..64).filter(|&page| is_active(&world, mm, page)).collect();
    assert_eq!(active, [5]);
    world.memory.validate().unwrap();
}

#[test]
fn a_folio_in_two_areas_is_activated_at_once() {
    let mut world = world(with(sizes(&[64])));
    let mm = world.mm;
    world.write_all(mm, 0..64);
    world.advise(mm, 0, 8, Madvice::Nohugepage);
    assert!(world.memory.reclaim_pages(32) > 0);
    let active: Vec<u64> = (0..64).filter(|&page| is_active(&world, mm, page)).collect();
    assert_eq!(active, (0..16).collect::<Vec<_>>());
}

/// Pages written and slots in use after reclaim of a folio of 16 pages, of which 2 are mapped.
fn after_split(rules: Rules, unmapped: u64) -> (u64, u64) {
    let mut world = world(rules);
    let mm = world.mm;
    world.write_all(mm, 0..16);
    world.unmap(mm, unmapped, 14);
    while world.memory.reclaim_pages(1) > 0 {}
    world.memory.validate().unwrap();
    (world.memory.counters().reclaim.pswpout, world.memory.nr_swapped())
}

#[test]
fn up_to_6_11_unmapped_pages_of_a_split_folio_are_written_in_vain() {
    let new = with(sizes(&[64]));
    assert_eq!(after_split(new.clone(), 1), (2, 2));
    assert_eq!(after_split(new, 0), (2, 2));
    let mut old = with(sizes(&[64]));
    old.anon.split_zero_pages = SplitZeroPages::Kept;
    old.reclaim.advised = AdvisedFolios::Split;
    assert_eq!(after_split(old.clone(), 1), (16, 2));
    assert_eq!(after_split(old, 0), (16, 2));
}

#[test]
fn a_page_that_a_fault_copies_loses_its_entries_but_not_its_content() {
    let mut world = world(with(AnonRules::stock()));
    let mm = world.mm;
    let group = world.memory.add_group(GroupLimits::max(40));
    world.memory.join_group(mm, group);
    world.write_all(mm, 0..32);
    let child = world.fork(mm);
    for round in 0..4 {
        for page in 0..32 {
            world.write(if round % 2 == 0 { child } else { mm }, page);
            world.memory.validate().unwrap();
        }
    }
    assert!(world.memory.counters().reclaim.pswpout > 0);
    for page in 0..32 {
        for mm in [mm, child] {
            assert_eq!(world.byte(mm, page), 0x80 | page as u8, "page {page}");
        }
    }
}
