//! fork and copy-on-write (docs/behaviour E, F.4, L.8 .. L.10, L.22).

use largefolio_mm::fault::Access;
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::rmap::owners::OwnerLayout;
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::anon::{AnonRules, Batching, Regain, Reuse};
use largefolio_mm::vma::Prot;

use crate::anon::world::{World, addr, sizes, thp};

fn pte_mapped(rules: AnonRules) -> World {
    let mut world = World::new(rules).mapped(512);
    let mm = world.mm;
    world.write(mm, 0);
    world.split_pmd(mm);
    let page = world.page(mm, 10).unwrap();
    assert_eq!((page.order.get(), page.kind), (9, LeafKind::Pte));
    world
}

#[test]
fn l22_row_1_the_child_exits_and_the_page_is_reused() {
    let mut world = pte_mapped(thp());
    let (mm, before) = (world.mm, world.pfn(world.mm, 10));
    let child = world.fork(mm);
    assert!(!world.page(mm, 10).unwrap().is_anon_exclusive);
    world.exit(child);
    let after = world.write(mm, 10);
    assert_eq!((after.pfn, after.is_anon_exclusive), (before, true));
    // Only the stored-to page is exclusive: the others still fault.
    assert!(!world.page(mm, 11).unwrap().is_anon_exclusive);
    assert!(!world.page(mm, 11).unwrap().is_writable);
}

#[test]
fn l22_row_2_the_child_lives_and_one_page_is_copied() {
    let mut world = pte_mapped(thp());
    let (mm, before) = (world.mm, world.pfn(world.mm, 10));
    let child = world.fork(mm);
    assert!(!world.page(mm, 10).unwrap().is_exclusively_mapped);
    let after = world.write(mm, 10);
    assert_ne!(after.pfn, before);
    assert_eq!(after.order.get(), 0);
    assert_eq!(world.pfn(child, 10), before);
    // Row 3: the child exits, and the next page is reused.
    let next = world.pfn(mm, 11);
    world.exit(child);
    assert_eq!(world.write(mm, 11).pfn, next);
}

#[test]
fn l22_row_4_the_last_page_of_a_large_folio_is_copied_l_9() {
    let mut world = pte_mapped(thp());
    let mm = world.mm;
    let child = world.fork(mm);
    world.exit(child);
    world.unmap(mm, 0, 10);
    world.unmap(mm, 11, 501);
    let before = world.pfn(mm, 10);
    let after = world.write(mm, 10);
    assert_ne!(after.pfn, before);
    assert_eq!(world.size(9).nr_anon, 0, "the large folio is free");
}

#[test]
fn l22_row_5_an_untracked_survivor_copies_although_it_is_alone() {
    let mut world = pte_mapped(thp());
    let mm = world.mm;
    let (second, third) = (world.fork(mm), world.fork(mm));
    world.unmap(mm, 0, 512);
    world.exit(second);
    let before = world.page(third, 10).unwrap();
    assert!(before.is_exclusively_mapped, "the page's own count says so");
    assert_ne!(world.write(third, 10).pfn, before.pfn);
}

#[test]
fn l22_row_6_a_tracked_survivor_reuses() {
    let mut world = pte_mapped(thp());
    let mm = world.mm;
    let child = world.fork(mm);
    world.unmap(mm, 0, 512);
    let before = world.pfn(child, 10);
    assert_eq!(world.write(child, 10).pfn, before);
}

#[test]
fn l22_rows_7_and_8_pmd_mapped() {
    let mut world = World::new(thp()).mapped(512);
    let mm = world.mm;
    let before = world.write(mm, 10).pfn;
    let child = world.fork(mm);
    assert_eq!(world.page(child, 10).unwrap().kind, LeafKind::Pmd);
    let after = world.write(mm, 10);
    assert_ne!(after.pfn, before, "the child lives: one page is copied");
    let neighbour = world.page(mm, 11).unwrap();
    assert_eq!((neighbour.pfn.0, neighbour.kind), (before.0 + 1, LeafKind::Pte));
    world.exit(child);
    assert_eq!(world.write(mm, 11).pfn.0, before.0 + 1, "and reused when it is gone");

    let mut world = World::new(thp()).mapped(512);
    let (mm, before) = (world.mm, world.write(world.mm, 10).pfn);
    let child = world.fork(mm);
    world.exit(child);
    let after = world.write(mm, 10);
    assert_eq!((after.pfn, after.kind), (before, LeafKind::Pmd));
}

#[test]
fn before_6_15_a_page_of_a_large_folio_is_always_copied() {
    let rules = AnonRules { reuse: Reuse::SmallOnly, ..sizes(&[64]) };
    let mut world = World::new(rules).mapped(64);
    let (mm, before) = (world.mm, world.write(world.mm, 3));
    assert_eq!(before.order.get(), 4);
    let child = world.fork(mm);
    world.exit(child);
    let after = world.write(mm, 3);
    assert_ne!(after.pfn, before.pfn);
    assert_eq!(after.order.get(), 0);
    let small = world.pfn(mm, 3);
    let child = world.fork(mm);
    world.exit(child);
    assert_eq!(world.write(mm, 3).pfn, small);
}

#[test]
fn an_exclusive_page_is_stored_to_at_once_e_3_1() {
    let mut world = World::new(AnonRules { regain: Regain::Never, ..sizes(&[64]) }).mapped(64);
    let (mm, before) = (world.mm, world.write(world.mm, 3).pfn);
    world.protect(mm, 0, 64, Prot::READ);
    world.protect(mm, 0, 64, Prot::READ_WRITE);
    assert_eq!(world.write(mm, 3).pfn, before);
    assert_eq!(world.memory.counters().nr_wp_reuse, 1);
}

#[test]
fn processes_do_not_see_each_others_stores() {
    for batching in [Batching::Folio, Batching::PageByPage] {
        let mut world = World::new(AnonRules { batching, ..sizes(&[64, 2048]) }).mapped(1024);
        let mm = world.mm;
        for page in 0..600 {
            world.memory.store(mm, addr(page), &[page as u8 | 1]).unwrap();
        }
        let child = world.fork(mm);
        for page in (0..600).step_by(7) {
            world.memory.store(child, addr(page), &[0xee]).unwrap();
        }
        for page in (0..600).step_by(11) {
            world.memory.store(mm, addr(page), &[0xdd]).unwrap();
        }
        world.check();
        for page in 0..600 {
            let old = page as u8 | 1;
            let own = if page % 11 == 0 { 0xdd } else { old };
            let its = if page % 7 == 0 { 0xee } else { old };
            assert_eq!((world.byte(mm, page), world.byte(child, page)), (own, its), "{page}");
        }
    }
}

#[test]
fn fork_folds_the_childs_blocks_and_keeps_the_parents() {
    let mut world = World::on(sizes(&[64]), Arch::Arm64, 64 << 20).mapped(64);
    let mm = world.mm;
    world.write_all(mm, 0..64);
    let child = world.fork(mm);
    let blocks = [mm, child].map(|mm| world.memory.space(mm).table.stats().nr_contpte_blocks);
    assert_eq!(blocks, [4, 4]);
}

#[test]
fn a_pinned_page_is_copied_for_the_child_at_once_e_1_3() {
    for rules in [AnonRules::stock(), sizes(&[64]), thp()] {
        let mut world = World::new(rules).mapped(512);
        let mm = world.mm;
        world.write(mm, 10);
        world.write(mm, 11);
        let pin = world.memory.pin(mm, addr(10), Access::Write).unwrap();
        let child = world.fork(mm);
        let (own, its) = (world.page(mm, 10).unwrap(), world.page(child, 10).unwrap());
        assert_eq!((own.pfn, own.is_writable, own.is_anon_exclusive), (pin.pfn, true, true));
        assert_ne!(its.pfn, pin.pfn);
        assert_eq!((its.order.get(), its.is_anon_exclusive), (0, true));
        world.memory.frame_mut(pin.pfn)[0] = 0x55;
        assert_eq!((world.byte(mm, 10), world.byte(child, 10)), (0x55, 0x8a));
        assert_eq!(world.write(mm, 10).pfn, pin.pfn, "and continues seeing it");
        world.memory.unpin(pin);
        world.check();
    }
}

#[test]
fn a_pin_for_loads_makes_the_page_exclusive_e_3_5() {
    let mut world = World::new(sizes(&[64])).mapped(64);
    let mm = world.mm;
    world.write(mm, 3);
    let child = world.fork(mm);
    let pin = world.memory.pin(child, addr(3), Access::Read).unwrap();
    let page = world.page(child, 3).unwrap();
    assert!(page.is_anon_exclusive && !page.is_writable);
    assert_ne!(page.pfn, world.pfn(mm, 3));
    assert_eq!(world.write(child, 3).pfn, pin.pfn);
    world.memory.unpin(pin);
    world.check();
}

#[test]
fn a_pinned_page_outlives_its_process() {
    let mut world = World::new(sizes(&[64])).mapped(64);
    let mm = world.mm;
    world.write(mm, 3);
    let pin = world.memory.pin(mm, addr(3), Access::Write).unwrap();
    world.exit(mm);
    assert_eq!(world.size(4).nr_anon, 1);
    world.memory.unpin(pin);
    world.check();
    assert_eq!(world.size(4).nr_anon, 0);
}

#[test]
fn l10_a_copied_page_does_not_make_the_shared_folio_partially_mapped() {
    let mut world = World::new(sizes(&[64])).mapped(64);
    let mm = world.mm;
    world.write(mm, 3);
    let child = world.fork(mm);
    world.write(mm, 3);
    world.unmap(mm, 0, 64);
    assert_eq!(world.size(4).nr_anon_partially_mapped, 0);
    assert_eq!(world.size(4).nr_anon, 1);
    world.exit(child);
    assert_eq!(world.size(4).nr_anon, 0);
}

#[test]
fn shared_anonymous_memory_is_shared_over_fork() {
    use largefolio_mm::map::Map;
    let mut world = World::new(thp());
    let mm = world.mm;
    let map = Map::anon(8 * 4096, Prot::READ_WRITE).shared().at(addr(0));
    world.memory.mmap(mm, map).unwrap();
    world.write(mm, 1);
    let child = world.fork(mm);
    world.write(child, 2);
    assert_eq!((world.byte(child, 1), world.byte(mm, 2)), (0x81, 0x82));
    world.exit(mm);
    assert_eq!(world.byte(child, 1), 0x81);
    world.exit(child);
    assert_eq!(world.memory.core().folios.iter().count(), 0, "gone with its last mapping");
}

#[test]
fn a_32_bit_kernel_has_owner_ids_for_32767_processes_at_a_time() {
    let rules = AnonRules { owner_layout: OwnerLayout::Bits32, ..sizes(&[64]) };
    let mut world = World::new(rules).mapped(16);
    let mm = world.mm;
    world.write(mm, 3);
    let mut children: Vec<_> = (2..1 << 15).map(|_| world.memory.fork(mm).unwrap()).collect();
    let refused = world.memory.fork(mm).unwrap_err();
    assert!(refused.to_string().starts_with("live processes use all 32767 owner ids"));
    // A reused id shows no trace of the previous process.
    world.memory.exit(children.swap_remove(7));
    children.push(world.memory.fork(mm).unwrap());
    for child in children {
        world.memory.exit(child);
    }
    let before = world.pfn(mm, 3);
    assert_eq!(world.write(mm, 3).pfn, before, "alone again: reused in place");
}
