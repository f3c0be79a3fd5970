//! Entries that a store can use without a fault: after mprotect, and in shared memory
//! (docs/behaviour E.5, B.6.6); stacks (D.1.6, D.2.10).

use std::ops::Range;

use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::rules::anon::{AnonRules, MapStack, Regain};
use largefolio_mm::units::{AddrRange, Order, PageSize, Vaddr};
use largefolio_mm::vma::{Lock, Prot, Purpose};

use crate::anon::world::{PAGE, World, addr, sizes, thp};

fn faults(world: &mut World, pages: Range<u64>, access: Access) -> u64 {
    let before = world.memory.counters().pgfault;
    for page in pages {
        world.memory.touch(world.mm, addr(page), access).unwrap();
        world.check();
    }
    world.memory.counters().pgfault - before
}

fn protect(world: &mut World, pages: Range<u64>, prot: Prot) {
    let len_bytes = (pages.end - pages.start) * PAGE;
    world.memory.mprotect(world.mm, addr(pages.start), len_bytes, prot).unwrap();
    world.check();
}

fn close_and_open(world: &mut World, pages: Range<u64>) {
    protect(world, pages.clone(), Prot::READ);
    protect(world, pages, Prot::READ_WRITE);
}

fn with(regain: Regain) -> AnonRules {
    AnonRules { regain, ..AnonRules::stock() }
}

#[test]
fn an_exclusive_page_is_writable_again_at_once_e_5_1() {
    for (regain, expected) in [(Regain::Never, 20), (Regain::Dirty, 0), (Regain::Exclusive, 0)] {
        let mut world = World::new(with(regain)).mapped(64);
        faults(&mut world, 10..30, Access::Write);
        close_and_open(&mut world, 0..64);
        assert_eq!(faults(&mut world, 10..30, Access::Write), expected, "{regain:?}");
        // The same protection again changes nothing.
        protect(&mut world, 0..64, Prot::READ_WRITE);
        assert_eq!(faults(&mut world, 10..30, Access::Write), 0);
    }
}

#[test]
fn locked_private_memory_that_becomes_writable_is_copied_at_once_e_5_2() {
    for lock in [Lock::None, Lock::All] {
        let mut world = World::new(with(Regain::Exclusive)).mapped(64);
        faults(&mut world, 0..8, Access::Write);
        let child = world.memory.fork(world.mm).unwrap();
        world.memory.set_lock(world.mm, addr(0), 4 * PAGE, lock).unwrap();
        close_and_open(&mut world, 0..8);
        let expected = if lock == Lock::All { 4 } else { 8 };
        assert_eq!(faults(&mut world, 0..8, Access::Write), expected, "{lock:?}");
        world.memory.exit(child);
    }
}

#[test]
fn mlockall_can_lock_later_mappings_alone_p_4_5() {
    let mut world = World::new(thp());
    world.memory.mlockall(world.mm, None, Lock::All);
    let mut world = world.mapped(512);
    faults(&mut world, 0..1, Access::Write);
    let area = world.memory.space(world.mm).vmas.find(addr(0).vpn(PageSize::K4)).copied();
    assert_eq!(area.unwrap().advice.lock, Lock::All);
    let refused = world.memory.madvise(world.mm, addr(0), PAGE, Madvice::Dontneed);
    assert!(refused.is_err(), "a locked area keeps its pages");
    world.memory.mlockall(world.mm, Some(Lock::None), Lock::None);
    world.memory.madvise(world.mm, addr(0), PAGE, Madvice::Dontneed).unwrap();
}

#[test]
fn a_page_of_two_processes_and_the_zero_page_stay_read_only_e_5_1() {
    let mut world = World::new(with(Regain::Exclusive)).mapped(64);
    faults(&mut world, 0..4, Access::Write);
    faults(&mut world, 4..8, Access::Read);
    let child = world.memory.fork(world.mm).unwrap();
    faults(&mut world, 3..4, Access::Write);
    close_and_open(&mut world, 0..64);
    assert_eq!(faults(&mut world, 0..8, Access::Write), 7);
    world.memory.exit(child);
    world.check();
}

#[test]
fn a_clean_exclusive_page_is_writable_again_from_6_2_on_e_5_1() {
    for (regain, expected) in [(Regain::Dirty, 8), (Regain::Exclusive, 0)] {
        let mut world = World::new(with(regain)).mapped(64);
        faults(&mut world, 0..8, Access::Write);
        world.advise(world.mm, 0, 8, Madvice::Free);
        close_and_open(&mut world, 0..64);
        assert_eq!(faults(&mut world, 0..8, Access::Write), expected, "{regain:?}");
    }
}

#[test]
fn a_pmd_entry_is_writable_again_from_6_2_on_e_5_1() {
    for (regain, expected) in [(Regain::Dirty, 1), (Regain::Exclusive, 0)] {
        let mut world = World::new(AnonRules { regain, ..thp() }).mapped(1024);
        assert_eq!(faults(&mut world, 0..512, Access::Write), 1);
        close_and_open(&mut world, 0..1024);
        assert_eq!(faults(&mut world, 0..512, Access::Write), expected, "{regain:?}");
        // A call for a part splits the entry; its PTEs map exclusive pages.
        close_and_open(&mut world, 0..100);
        assert_eq!(faults(&mut world, 0..512, Access::Write), 0, "{regain:?}");
        assert_eq!(world.page(world.mm, 0).unwrap().kind, LeafKind::Pte);
    }
}

fn map_shared(world: &mut World, nr: u64, purpose: Purpose) {
    let map = Map::anon(nr * PAGE, Prot::READ_WRITE).shared().used_as(purpose);
    world.memory.mmap(world.mm, map.at(addr(0))).unwrap();
}

#[test]
fn shared_memory_is_writable_from_the_first_load_on_b_6_6() {
    let mut world = World::new(with(Regain::Never));
    map_shared(&mut world, 64, Purpose::Memory);
    assert_eq!(faults(&mut world, 0..64, Access::Read), 64);
    assert_eq!(faults(&mut world, 0..64, Access::Write), 0);
    close_and_open(&mut world, 0..64);
    assert_eq!(faults(&mut world, 0..64, Access::Write), 0);
    // Entries of a read-only area are not writable.
    protect(&mut world, 0..64, Prot::READ);
    world.advise(world.mm, 0, 64, Madvice::Dontneed);
    assert_eq!(faults(&mut world, 0..64, Access::Read), 4);
    assert!(!world.page(world.mm, 5).unwrap().is_writable);
    protect(&mut world, 0..64, Prot::READ_WRITE);
    assert_eq!(faults(&mut world, 0..64, Access::Write), 0);
}

#[test]
fn a_system_v_segment_has_no_fault_around_b_5_1() {
    for (purpose, expected) in [(Purpose::Memory, 4), (Purpose::Segment, 64)] {
        let mut world = World::new(AnonRules::stock());
        map_shared(&mut world, 64, purpose);
        assert_eq!(faults(&mut world, 0..64, Access::Write), 64);
        world.advise(world.mm, 0, 64, Madvice::Dontneed);
        assert_eq!(faults(&mut world, 0..64, Access::Read), expected, "{purpose:?}");
    }
}

#[test]
fn areas_of_a_segment_stay_split_and_move_alone_e_4_6() {
    for (purpose, nr_areas) in [(Purpose::Memory, 1), (Purpose::Segment, 3)] {
        let mut world = World::new(AnonRules::stock());
        map_shared(&mut world, 64, purpose);
        close_and_open(&mut world, 16..32);
        assert_eq!(world.memory.space(world.mm).vmas.len(), nr_areas, "{purpose:?}");
        let range = |first| AddrRange { addr: addr(first), len_bytes: 32 * PAGE };
        let moved = world.memory.mremap(world.mm, range(8), range(200));
        assert_eq!(moved.is_ok(), nr_areas == 1, "{purpose:?}");
    }
}

#[test]
fn map_stack_keeps_base_pages_from_6_7_on_d_1_6() {
    for (map_stack, expected) in [(MapStack::Ignored, 9), (MapStack::Nohuge, 0)] {
        let mut world = World::new(AnonRules { map_stack, ..thp() });
        let map = Map::anon(1024 * PAGE, Prot::READ_WRITE).used_as(Purpose::Stack);
        world.memory.mmap(world.mm, map.at(addr(0))).unwrap();
        assert_eq!(world.write(world.mm, 700).order, Order::new(expected), "{map_stack:?}");
    }
}

#[test]
fn the_stack_grows_and_its_folios_fit_the_area_of_the_moment_d_2_10() {
    let mut world = World::new(sizes(&[64, 2048]));
    let map =
        Map::anon(32 * PAGE, Prot::READ_WRITE).used_as(Purpose::Growing { bytes_max: 2048 * PAGE });
    world.memory.mmap(world.mm, map.at(addr(2016))).unwrap();
    let (mm, order) = (world.mm, |order| Order::new(order));
    assert_eq!(world.write(mm, 2040).order, order(4));
    assert_eq!(world.memory.space(mm).vmas.len(), 1);
    // Page by page: the area always begins at the new page.
    for page in (1950..2016).rev() {
        assert_eq!(world.write(mm, page).order, order(0), "page {page}");
    }
    // A large frame: room for a folio, from the new start on.
    assert_eq!(world.write(mm, 1800).order, order(0));
    assert_eq!(world.write(mm, 1900).order, order(4));
    assert_eq!(world.write(mm, 1030).order, order(0));
    assert_eq!(world.write(mm, 1040).order, order(4));
    let stack = *world.memory.space(mm).vmas.first_from(addr(0).vpn(PageSize::K4)).unwrap();
    assert_eq!(stack.start, addr(1030).vpn(PageSize::K4));
    // Beyond the limit, and close to another mapping.
    let touched = world.memory.touch(mm, Vaddr(addr(0).0 - PAGE), Access::Write);
    assert!(matches!(touched, Err(FaultError::NotMapped(_))));
    world.map(500, 100);
    assert!(world.memory.touch(mm, addr(855), Access::Write).is_err());
    assert_eq!(world.write(mm, 856).order, order(0));
}
