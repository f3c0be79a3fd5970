//! Folding through real faults (C.1 .. C.1.3, L.12), arm64.

use largefolio_mm::fault::Access;
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::units::Order;
use largefolio_mm::vma::Prot;

use super::world::World;

fn nr_folded(world: &World) -> u64 {
    world.memory.space(world.mm).table.stats().nr_contpte_blocks
}

#[test]
fn an_order_4_folio_in_an_aligned_window_folds_at_once() {
    // F = 64 KiB; virtual and file alignment agree (B.5.11, C.1.1).
    for kernel in ["6.12", "6.18", "7.2"] {
        let mut world = World::arm(kernel, "xfs", 256).mapped(Prot::READ);
        world.cache(32, 4);
        let leaf = world.touch(37).leaf;
        assert_eq!((leaf.kind, leaf.order), (LeafKind::Contpte, Order::new(4)), "{kernel}");
        assert_eq!(world.present(), [(32, 47)]);
        world.validate();
    }
}

#[test]
fn nothing_folds_where_virtual_and_file_alignment_differ() {
    // The block begins 4 pages into the folio (C.1).
    let mut world = World::arm("6.18", "xfs", 256).shifted(4).mapped(Prot::READ);
    world.cache(32, 4);
    assert_eq!(world.touch(37).leaf.kind, LeafKind::Pte);
    assert_eq!((world.present(), nr_folded(&world)), (vec![(32, 47)], 0));
}

#[test]
fn smaller_folios_do_not_fold() {
    // One folio covers the whole block (C.1).
    let mut world = World::arm("6.18", "xfs", 256).mapped(Prot::READ);
    world.cache(32, 3);
    world.cache(40, 3);
    world.touch(37);
    assert_eq!((world.present(), nr_folded(&world)), (vec![(32, 47)], 0));
}

#[test]
fn no_block_folds_before_6_9_nor_on_x86() {
    // C.1.
    let mut world = World::arm("6.1", "xfs", 256).mapped(Prot::READ);
    world.cache(32, 4);
    assert_eq!(world.touch(37).leaf.kind, LeafKind::Pte);
    let mut world = World::x86("7.2", "xfs", 256).mapped(Prot::READ);
    world.cache(32, 4);
    assert_eq!(world.touch(37).leaf.kind, LeafKind::Pte);
}

#[test]
fn exec_windows_and_exec_blocks_give_folded_text() {
    // B.4.7, B.4.9, C.5.
    for kernel in ["6.12+exec-block=64K", "6.12+exec-window=64K", "6.17", "6.18", "7.2"] {
        let mut world = World::arm(kernel, "xfs", 4096).mapped(Prot::READ_EXEC);
        for index in 100..400 {
            world.memory.touch(world.mm, world.addr(index), Access::Exec).unwrap();
        }
        let pages = world.present().iter().map(|(first, last)| last - first + 1).sum::<u64>();
        assert_eq!(nr_folded(&world) * 16, pages, "{kernel}: everything mapped is folded");
        world.validate();
    }
    // 6.12's read-around yields order 2 at first: nothing to fold.
    let mut world = World::arm("6.12", "xfs", 4096).mapped(Prot::READ_EXEC);
    world.touch(100);
    assert_eq!(nr_folded(&world), 0);
}

#[test]
fn on_16k_a_block_is_128_pages() {
    // Order 7, 2 MiB (0.4).
    let mut world = World::arm("6.18+page=16K", "xfs", 1024).mapped(Prot::READ);
    world.cache(0, 6);
    world.cache(128, 7);
    assert_eq!(world.touch(10).leaf.kind, LeafKind::Pte);
    let leaf = world.touch(200).leaf;
    assert_eq!((leaf.kind, leaf.order.get()), (LeafKind::Contpte, 7));
}

#[test]
fn a_private_store_into_a_block_unfolds_it() {
    // 1 entry becomes 16; nothing folds again (C.1.3, L.12).
    let mut world = World::arm("6.18", "xfs", 256).mapped(Prot::READ_WRITE);
    world.cache(32, 4);
    world.touch(37);
    assert_eq!(nr_folded(&world), 1);
    world.store(40);
    assert_eq!(nr_folded(&world), 0);
    assert_eq!(world.memory.space(world.mm).table.stats().nr_ptes, 16);
    world.validate();
}

#[test]
fn unmapping_part_of_a_block_unfolds_it() {
    // C.1.3.
    let mut world = World::arm("6.18", "xfs", 256).mapped(Prot::READ);
    world.cache(32, 5);
    world.touch(37);
    assert_eq!(nr_folded(&world), 2);
    world.memory.munmap(world.mm, world.addr(34), 4096).unwrap();
    assert_eq!((nr_folded(&world), world.present()), (1, vec![(32, 33), (35, 63)]));
    world.validate();
}

#[test]
fn fork_keeps_whole_blocks_and_the_child_gets_them() {
    // Write-protecting a whole block leaves it folded (C.1.3, E.1).
    let mut world = World::arm("6.18", "xfs", 256).mapped(Prot::READ_WRITE);
    world.cache(32, 4);
    world.touch(37);
    world.store(100);
    let child = world.memory.fork(world.mm).unwrap();
    assert_eq!(nr_folded(&world), 1);
    let stats = world.memory.space(child).table.stats();
    assert_eq!((stats.nr_contpte_blocks, stats.nr_ptes), (1, 17));
    world.validate();
}

#[test]
fn touching_the_last_page_folds_a_block_that_was_mapped_one_by_one() {
    // Only the block's last PTE tries (C.1.2, L.20).
    let kernel = "6.12+fault-around=4K";
    let mut world = World::arm(kernel, "xfs", 256).mapped(Prot::READ);
    world.cache(32, 4);
    world.touch_all(32..47);
    assert_eq!(nr_folded(&world), 0);
    world.touch(47);
    assert_eq!(nr_folded(&world), 1);
    // In descending order nothing folds.
    let mut world = World::arm(kernel, "xfs", 256).mapped(Prot::READ);
    world.cache(32, 4);
    world.touch_all((32..48).rev());
    assert_eq!(nr_folded(&world), 0);
}
