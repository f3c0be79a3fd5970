//! First touches: sizes, fallback, zero pages (docs/behaviour D.1 .. D.3).

use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::map::Madvice;
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::anon::{AnonRules, HugeZeroWrite};
use largefolio_mm::units::Order;
use largefolio_mm::vma::Prot;

use crate::anon::world::{PAGE, World, addr, sizes, thp};

fn exhaust(world: &mut World, order: u8) -> u64 {
    std::iter::from_fn(|| world.memory.take_block(Order::new(order))).count() as u64
}

#[test]
fn a_stock_kernel_uses_base_pages_and_pmd_folios_where_advised() {
    let mut world = World::new(AnonRules::stock()).mapped(2048);
    let mm = world.mm;
    assert_eq!(world.write(mm, 100).order.get(), 0);
    world.advise(mm, 512, 1536, Madvice::Hugepage);
    let page = world.write(mm, 600);
    assert_eq!((page.order.get(), page.kind), (9, LeafKind::Pmd));
    assert!(page.is_anon_exclusive && page.is_writable);
    world.advise(mm, 1024, 512, Madvice::Nohugepage);
    assert_eq!(world.write(mm, 1030).order.get(), 0);
    let counters = world.memory.counters();
    assert_eq!((counters.thp_fault_alloc, counters.thp_fault_fallback), (1, 0));
}

#[test]
fn the_largest_enabled_order_that_fits_the_area_is_taken_d_1_5() {
    let mut world = World::new(sizes(&[16, 64, 256]));
    let mm = world.mm;
    world.map(8, 100);
    // Blocks of 64 pages: [0, 64) begins before the area, [64, 128) ends after it.
    assert_eq!(world.write(mm, 40).order.get(), 4);
    assert_eq!(world.write(mm, 10).order.get(), 2);
    assert_eq!(world.write(mm, 100).order.get(), 2);
    assert_eq!(world.write(mm, 80).order.get(), 4);
    assert_eq!(world.size(4).anon_fault_alloc, 2);
    assert_eq!((world.size(4).nr_anon, world.size(2).nr_anon), (2, 2));
}

#[test]
fn a_read_maps_the_zero_page_and_blocks_larger_ranges_d_2_2() {
    let mut world = World::new(sizes(&[16, 64])).mapped(64);
    let mm = world.mm;
    let zero = world.read(mm, 3);
    assert_eq!((zero.owner, zero.order.get(), zero.is_writable), (None, 0, false));
    // The block of 16 has a PTE set, as does the block of 4; its neighbour of 4 does not (D.2.4).
    assert_eq!(world.write(mm, 2).order.get(), 0);
    assert_eq!(world.write(mm, 5).order.get(), 2);
    assert_eq!(world.write(mm, 17).order.get(), 4);
    assert_eq!(world.write(mm, 3).order.get(), 0);
    assert_eq!(world.memory.counters().nr_zero_page, 1);
}

#[test]
fn an_allocation_falls_back_from_size_to_size_d_2_5() {
    let mut world = World::new(sizes(&[16, 64, 2048])).mapped(1024);
    let mm = world.mm;
    // Every second block of 16 KiB is free: more than the reserve, but no block of 64 KiB.
    let order = Order::new(2);
    let taken: Vec<_> = std::iter::from_fn(|| world.memory.take_block(order)).collect();
    taken.iter().step_by(2).for_each(|&pfn| world.memory.give_block(pfn, order));
    let page = world.memory.touch(mm, addr(20), Access::Write).unwrap();
    assert_eq!(page.leaf.kind, LeafKind::Pte);
    assert_eq!(world.page(mm, 20).unwrap().order.get(), 2);
    assert_eq!(world.memory.counters().thp_fault_fallback, 1);
    let fallbacks = [9, 4, 2].map(|order| world.size(order).anon_fault_fallback);
    assert_eq!(fallbacks, [1, 1, 0]);
    assert_eq!(world.size(2).anon_fault_alloc, 1);
}

#[test]
fn userfaultfd_ranges_get_base_pages_d_2_3() {
    let mut world = World::new(sizes(&[64, 2048])).mapped(1024);
    let mm = world.mm;
    world.memory.arm_userfaultfd(mm, addr(0), 512 * PAGE).unwrap();
    assert_eq!(world.write(mm, 5).order.get(), 0);
    assert_eq!(world.write(mm, 600).order.get(), 9);
}

#[test]
fn a_first_read_shares_the_huge_zero_folio_d_3_1() {
    let mut world = World::new(thp()).mapped(1024);
    let mm = world.mm;
    let free = world.memory.core().buddy.nr_free_pages();
    let first = world.read(mm, 7);
    assert_eq!((first.kind, first.owner, first.order.get()), (LeafKind::Pmd, None, 9));
    assert_eq!(world.read(mm, 512 + 7).pfn, first.pfn, "one for everybody");
    assert_eq!(free - world.memory.core().buddy.nr_free_pages(), 512);
    assert_eq!(world.write(mm, 8).order.get(), 9);
    assert_eq!((world.byte(mm, 8), world.byte(mm, 9)), (0x88, 0));
    assert_eq!(world.page(mm, 600).unwrap().owner, None);
    world.exit(mm);
    let before = world.memory.core().buddy.nr_free_pages();
    let mm = world.memory.new_space();
    world.mm = mm;
    world.map(0, 64);
    let taken = exhaust(&mut world, 0);
    // Its last user is gone: an allocation that finds nothing else takes its memory.
    world.memory.touch(mm, addr(0), Access::Write).unwrap();
    assert_eq!(taken, before);
}

#[test]
fn before_6_13_a_store_splits_the_huge_zero_mapping() {
    let rules = AnonRules { huge_zero_write: HugeZeroWrite::Split, ..thp() };
    let mut world = World::new(rules).mapped(512);
    let mm = world.mm;
    world.read(mm, 7);
    assert_eq!(world.write(mm, 8).order.get(), 0);
    let neighbour = world.page(mm, 9).unwrap();
    assert_eq!((neighbour.kind, neighbour.owner), (LeafKind::Pte, None));
}

#[test]
fn without_the_zero_page_a_read_gets_a_folio() {
    let rules = AnonRules { use_zero_page: false, ..thp() };
    let mut world = World::new(rules).mapped(512);
    let page = world.read(world.mm, 7);
    assert!(page.is_writable && page.owner.is_some());
    assert_eq!(page.order.get(), 9);
}

#[test]
fn every_page_of_a_new_folio_reads_as_zero() {
    let mut world = World::new(sizes(&[64, 2048])).mapped(1024);
    let mm = world.mm;
    for page in 0..1024 {
        world.memory.store(mm, addr(page), &[0xff; PAGE as usize]).unwrap();
    }
    world.unmap(mm, 0, 1024);
    world.map(0, 1024);
    for page in [3, 700] {
        world.write(mm, page);
    }
    for page in (0..1024).filter(|page| ![3, 700].contains(page)) {
        let mut bytes = [0xff; PAGE as usize];
        world.memory.load(mm, addr(page), &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0), "page {page} leaks its old content");
    }
}

#[test]
fn out_of_memory_is_an_error_and_changes_nothing() {
    let mut world = World::on(sizes(&[64]), Arch::X86_64, 4 << 20).mapped(2048);
    let mm = world.mm;
    let mut at = 0;
    let error = loop {
        match world.memory.store(mm, addr(at), &[1]) {
            Ok(()) => at += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FaultError::OutOfMemory(_)), "{error}");
    world.check();
    let before = (world.memory.core().buddy.nr_free_pages(), *world.memory.counters());
    assert!(world.memory.store(mm, addr(at), &[1]).is_err());
    assert_eq!(world.page(mm, at), None);
    assert_eq!(world.memory.core().buddy.nr_free_pages(), before.0);
    world.exit(mm);
}

#[test]
fn contpte_blocks_fold_where_a_64k_folio_is_mapped() {
    let mut world = World::on(sizes(&[64]), Arch::Arm64, 64 << 20).mapped(64);
    let mm = world.mm;
    assert_eq!(world.write(mm, 20).kind, LeafKind::Contpte);
    // Protecting one page unfolds the block; only rewriting its last page folds it again (L.12).
    world.protect(mm, 18, 1, Prot::READ);
    assert_eq!(world.page(mm, 20).unwrap().kind, LeafKind::Pte);
    world.protect(mm, 18, 1, Prot::READ_WRITE);
    assert_eq!(world.write(mm, 18).kind, LeafKind::Pte);
}
