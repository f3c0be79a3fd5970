//! Worked examples for docs/behaviour 0.4, C.1-C.3, E.1.4, G.1.1 and L.12.

use super::super::{
    AccessBits, Batch, Cleared, Contpte, FolioSpan, Leaf, LeafKind, PageTable, PmdState,
    Protection, Pte, PteFlags,
};
use crate::units::{Order, PageSize, Pfn, Vpn};

const RW: PteFlags = PteFlags::WRITABLE;
const RO: PteFlags = PteFlags::NONE;

fn arm64() -> PageTable {
    PageTable::new(PageSize::K4, Contpte::Arm64)
}

fn folio(first: u64, order: u8) -> FolioSpan {
    FolioSpan::new(Pfn(first), Order::new(order))
}

fn map(table: &mut PageTable, (vpn, pfn, nr): (u64, u64, u64), flags: PteFlags, of: FolioSpan) {
    table.map_ptes(Batch { vpn: Vpn(vpn), pfn: Pfn(pfn), nr, flags }, of);
    table.validate().unwrap();
}

fn map_singly(table: &mut PageTable, (vpn, pfn, nr): (u64, u64, u64), of: FolioSpan) {
    (0..nr).for_each(|by| map(table, (vpn + by, pfn + by, 1), RW, of));
}

fn folded_block() -> PageTable {
    let mut table = arm64();
    map(&mut table, (32, 64, 16), RW, folio(64, 6));
    assert_eq!(nr_entries(&table), 1);
    table
}

/// TLB entries that cover everything mapped (C.1.4).
fn nr_entries(table: &PageTable) -> usize {
    table.validate().unwrap();
    table.leaves(Vpn(0), 1 << 20).count()
}

#[test]
fn blocks_and_tables_follow_the_page_size() {
    let rows = [PageSize::K4, PageSize::K16, PageSize::K64].map(|page| {
        let table = PageTable::new(page, Contpte::Arm64);
        let block = table.contpte_order().map(Order::nr_pages);
        (table.pmd_order().nr_pages(), block)
    });
    assert_eq!(rows, [(512, Some(16)), (2048, Some(128)), (8192, Some(32))]);
}

#[test]
fn a_set_range_folds_each_whole_aligned_block() {
    // Pages 0x108..0x138 of a folio that starts at an aligned page frame: 0x110 and 0x120 fold.
    let mut table = arm64();
    map(&mut table, (0x108, 0x1008, 0x30), RW, folio(0x1000, 6));
    let kinds = |nr| table.leaf(Vpn(nr)).map(|leaf| leaf.kind);
    assert_eq!(kinds(0x10f), Some(LeafKind::Pte));
    assert_eq!(kinds(0x110), Some(LeafKind::Contpte));
    assert_eq!(kinds(0x12f), Some(LeafKind::Contpte));
    assert_eq!(kinds(0x130), Some(LeafKind::Pte));
    assert_eq!((table.stats().nr_contpte_blocks, nr_entries(&table)), (2, 8 + 2 + 8));
}

#[test]
fn a_range_whose_page_frames_are_not_congruent_does_not_fold() {
    let mut table = arm64();
    map(&mut table, (0x100, 0x1008, 0x20), RW, folio(0x1000, 6));
    assert_eq!(nr_entries(&table), 32);
}

#[test]
fn every_page_size_folds_its_block() {
    for page in [PageSize::K4, PageSize::K16, PageSize::K64] {
        let mut table = PageTable::new(page, Contpte::Arm64);
        let order = page.contpte_order();
        map(&mut table, (0, 0, order.nr_pages()), RW, FolioSpan::new(Pfn(0), order));
        assert_eq!(nr_entries(&table), 1);
    }
}

#[test]
fn a_machine_without_contpte_never_folds() {
    let mut table = PageTable::new(PageSize::K4, Contpte::None);
    map(&mut table, (0, 0, 16), RW, folio(0, 4));
    table.wrprotect_range(Vpn(3), 1);
    assert_eq!((nr_entries(&table), table.stats().nr_folds), (16, 0));
}

#[test]
fn filling_singly_folds_at_the_last_pte() {
    let mut table = arm64();
    map_singly(&mut table, (32, 64, 15), folio(64, 4));
    assert_eq!(nr_entries(&table), 15);
    map_singly(&mut table, (47, 79, 1), folio(64, 4));
    assert_eq!(nr_entries(&table), 1);
}

#[test]
fn filling_downwards_never_folds() {
    let mut table = arm64();
    (0..16).rev().for_each(|by| map(&mut table, (32 + by, 64 + by, 1), RW, folio(64, 4)));
    assert_eq!(nr_entries(&table), 16);
}

#[test]
fn the_last_pte_folds_only_when_all_conditions_hold() {
    // Page frames not consecutive.
    let mut table = arm64();
    map(&mut table, (32, 128, 1), RW, folio(128, 0));
    map_singly(&mut table, (33, 65, 15), folio(64, 4));
    assert_eq!(nr_entries(&table), 16);
    // 16 consecutive order-0 folios instead of one folio.
    let mut table = arm64();
    (0..16).for_each(|by| map(&mut table, (32 + by, 64 + by, 1), RW, folio(64 + by, 0)));
    assert_eq!(nr_entries(&table), 16);
    // Different permissions.
    let mut table = arm64();
    map(&mut table, (32, 64, 1), RO, folio(64, 4));
    map_singly(&mut table, (33, 65, 15), folio(64, 4));
    assert_eq!(nr_entries(&table), 16);
    // A hole.
    let mut table = arm64();
    map_singly(&mut table, (33, 65, 15), folio(64, 4));
    assert_eq!(nr_entries(&table), 15);
    // Special entries.
    let mut table = arm64();
    map(&mut table, (32, 64, 16), PteFlags::SPECIAL, folio(64, 4));
    assert_eq!(nr_entries(&table), 16);
}

#[test]
fn folding_ignores_accessed_and_dirty_and_spreads_their_or() {
    let mut table = arm64();
    map(&mut table, (32, 64, 1), RW | PteFlags::DIRTY, folio(64, 4));
    map(&mut table, (33, 65, 1), RW | PteFlags::YOUNG, folio(64, 4));
    map_singly(&mut table, (34, 66, 14), folio(64, 4));
    let all = RW | PteFlags::ACCESSED_DIRTY;
    let first = Leaf {
        kind: LeafKind::Contpte,
        first_vpn: Vpn(32),
        order: Order::new(4),
        pfn: Pfn(64),
        flags: all,
    };
    assert_eq!(table.leaf(Vpn(40)), Some(first));
    // After unfolding, each PTE keeps the OR.
    table.wrprotect_range(Vpn(40), 1);
    assert_eq!(table.pte(Vpn(47)).flags(), all);
}

#[test]
fn touching_a_folded_block_marks_all_of_it_and_keeps_it_folded() {
    let mut table = folded_block();
    assert!(table.add_flags(Vpn(35), PteFlags::YOUNG));
    assert!(!table.add_flags(Vpn(40), PteFlags::YOUNG));
    assert!(table.add_flags(Vpn(40), PteFlags::DIRTY));
    assert_eq!(table.pte(Vpn(32)).flags(), RW | PteFlags::ACCESSED_DIRTY);
    assert!(table.test_and_clear_young(Vpn(33)));
    assert!(!table.test_and_clear_young(Vpn(34)));
    assert_eq!(nr_entries(&table), 1);
}

#[test]
fn copying_one_page_makes_sixteen_entries_of_one() {
    let mut table = folded_block();
    let old = table.replace_pte(Vpn(37), Pfn(500), RW, folio(500, 0));
    assert_eq!(old.pfn(), Pfn(69));
    assert_eq!((nr_entries(&table), table.stats().nr_unfolds), (16, 1));
    // Putting the page back does not fold: it is not the last PTE of the block.
    table.replace_pte(Vpn(37), Pfn(69), RW, folio(64, 6));
    assert_eq!(nr_entries(&table), 16);
    table.replace_pte(Vpn(47), Pfn(79), RW, folio(64, 6));
    assert_eq!(nr_entries(&table), 1);
}

#[test]
fn protecting_one_page_unfolds_and_only_the_last_pte_folds_again() {
    let change = Protection { set: RO, clear: RW };
    let back = Protection { set: RW, clear: RO };
    let mut table = folded_block();
    table.protect_range(Vpn(33), 1, change, |_| folio(64, 6));
    assert_eq!(nr_entries(&table), 16);
    table.protect_range(Vpn(33), 1, back, |_| folio(64, 6));
    assert_eq!(nr_entries(&table), 16);
    // Does not fold: the last PTE was rewritten before the conditions held.
    table.protect_range(Vpn(40), 8, change, |_| folio(64, 6));
    table.protect_range(Vpn(32), 8, change, |_| folio(64, 6));
    assert_eq!(nr_entries(&table), 16);
    // Protecting the whole block rewrites its last PTE with all conditions true.
    table.protect_range(Vpn(32), 16, back, |_| folio(64, 6));
    assert_eq!(nr_entries(&table), 1);
    let nr_folds = table.stats().nr_folds;
    table.protect_range(Vpn(0), 100, change, |_| folio(64, 6));
    assert_eq!((nr_entries(&table), table.stats().nr_folds), (1, nr_folds));
    assert_eq!(table.pte(Vpn(47)).flags(), RO);
}

#[test]
fn write_protecting_for_fork_keeps_whole_blocks_and_unfolds_cut_ones() {
    let mut table = arm64();
    map(&mut table, (0, 64, 48), RW, folio(64, 6));
    table.wrprotect_range(Vpn(8), 32);
    assert_eq!(nr_entries(&table), 16 + 1 + 16);
    let writable = |vpn| table.pte(Vpn(vpn)).flags().contains(RW);
    assert_eq!([7, 8, 39, 40].map(writable), [true, false, false, true]);
    // fork never folds, even if the last PTE of a block is rewritten.
    let mut table = arm64();
    map_singly(&mut table, (0, 64, 15), folio(64, 4));
    map(&mut table, (15, 79, 1), RO, folio(64, 4));
    table.wrprotect_range(Vpn(0), 16);
    assert_eq!(nr_entries(&table), 16);
}

#[test]
fn making_one_page_writable_in_place_unfolds_and_does_not_fold_again() {
    let mut table = arm64();
    map(&mut table, (32, 64, 16), RO, folio(64, 4));
    table.add_flags(Vpn(47), RW | PteFlags::DIRTY);
    assert_eq!(nr_entries(&table), 16);
    (32..47).for_each(|vpn| assert!(table.add_flags(Vpn(vpn), RW)));
    assert_eq!(nr_entries(&table), 16);
}

fn cleared(table: &mut PageTable, vpn: u64, nr: u64, of: FolioSpan) -> Vec<Cleared> {
    let mut pieces = Vec::new();
    table.clear_range(Vpn(vpn), nr, |_| of, |piece| pieces.push(piece));
    table.validate().unwrap();
    pieces
}

#[test]
fn clearing_unfolds_cut_blocks_and_reports_one_batch_a_folio() {
    let mut table = arm64();
    map(&mut table, (0, 64, 64), RO, folio(64, 6));
    table.add_flags(Vpn(20), PteFlags::DIRTY);
    table.wrprotect_range(Vpn(5), 1);
    let pieces = cleared(&mut table, 8, 48, folio(64, 6));
    let flags = PteFlags::DIRTY;
    let expected = Cleared { kind: LeafKind::Pte, vpn: Vpn(8), pfn: Pfn(72), nr: 48, flags };
    assert_eq!(pieces, [expected]);
    // Two blocks were cut (one already unfolded), two were cleared whole.
    let stats = table.stats();
    assert_eq!((stats.nr_ptes, stats.nr_contpte_blocks, stats.nr_unfolds), (16, 0, 2));
    assert_eq!(nr_entries(&table), 16);
}

#[test]
fn a_batch_ignores_writable_accessed_and_dirty_unless_told() {
    let mut table = PageTable::new(PageSize::K4, Contpte::None);
    map(&mut table, (0, 64, 8), RO, folio(64, 3));
    table.add_flags(Vpn(2), RW);
    table.add_flags(Vpn(5), PteFlags::DIRTY);
    let nr_with = |respect| table.batch(Vpn(0), 100, folio(64, 3), respect).nr;
    assert_eq!(nr_with(PteFlags::NONE), 8);
    assert_eq!(nr_with(PteFlags::WRITABLE), 2);
    assert_eq!(nr_with(PteFlags::DIRTY), 5);
    let batch = table.batch(Vpn(1), 3, folio(64, 3), PteFlags::NONE);
    assert_eq!(batch, Batch { vpn: Vpn(1), pfn: Pfn(65), nr: 3, flags: RW });
    // The folio ends before the run of page frames.
    assert_eq!(table.batch(Vpn(0), 100, folio(64, 2), PteFlags::NONE).nr, 4);
}

#[test]
fn a_pmd_leaf_is_aligned_and_needs_an_empty_slot() {
    let mut table = arm64();
    table.map_pmd(Vpn(512), Pfn(1024), RW);
    assert_eq!(table.pmd(Vpn(1000)), PmdState::Leaf);
    let leaf = table.leaf(Vpn(700)).unwrap();
    assert_eq!(
        (leaf.kind, leaf.first_vpn, leaf.pfn_of(Vpn(700))),
        (LeafKind::Pmd, Vpn(512), Pfn(1212))
    );
    assert_eq!(table.pte(Vpn(700)), Pte::new(Pfn(1212), RW));
    // Clearing PTEs leaves their table, so no PMD leaf fits until the table is freed.
    map(&mut table, (0, 0, 1), RW, folio(0, 0));
    cleared(&mut table, 0, 1, folio(0, 0));
    assert_eq!(table.pmd(Vpn(0)), PmdState::Table { nr_present: 0 });
    assert!(table.is_none(Vpn(0), 512));
    assert_eq!(table.free_empty_tables(Vpn(0), 511), 0);
    assert_eq!(table.free_empty_tables(Vpn(0), 2000), 1);
    table.map_pmd(Vpn(0), Pfn(512), RW);
    table.validate().unwrap();
}

#[test]
#[should_panic(expected = "I3")]
fn a_pmd_leaf_at_an_unaligned_page_is_a_programmer_error() {
    arm64().map_pmd(Vpn(512), Pfn(1025), RW);
}

#[test]
#[should_panic(expected = "mapping over a set PTE")]
fn mapping_over_a_set_pte_is_a_programmer_error() {
    let mut table = folded_block();
    map(&mut table, (40, 72, 1), RW, folio(64, 6));
}

#[test]
#[should_panic(expected = "cuts a PMD leaf")]
fn clearing_part_of_a_pmd_leaf_is_a_programmer_error() {
    let mut table = arm64();
    table.map_pmd(Vpn(512), Pfn(1024), RW);
    cleared(&mut table, 600, 1, folio(1024, 9));
}

#[test]
fn splitting_a_pmd_leaf_folds_every_block() {
    let mut table = arm64();
    table.map_pmd(Vpn(512), Pfn(1024), RW | PteFlags::DIRTY);
    assert!(table.split_pmd(Vpn(600)));
    assert!(!table.split_pmd(Vpn(600)));
    assert_eq!((nr_entries(&table), table.stats().nr_contpte_blocks), (32, 32));
    assert_eq!(table.pte(Vpn(600)).pfn(), Pfn(1112));
    assert_eq!(table.pte(Vpn(600)).flags(), RW | PteFlags::DIRTY);
}

#[test]
fn moving_aligned_slots_keeps_blocks_and_leaves() {
    let mut table = arm64();
    map(&mut table, (0, 64, 32), RW, folio(64, 6));
    table.map_pmd(Vpn(512), Pfn(1024), RW);
    let before = table.stats();
    table.move_range(Vpn(0), Vpn(1 << 20), 1024, |_| folio(64, 6));
    assert_eq!(table.stats(), before);
    assert_eq!(table.leaf(Vpn((1 << 20) + 600)).unwrap().kind, LeafKind::Pmd);
    assert_eq!(table.leaf(Vpn((1 << 20) + 20)).unwrap().kind, LeafKind::Contpte);
    assert!(table.is_none(Vpn(0), 1024));
    table.validate().unwrap();
}

#[test]
fn a_slot_with_an_empty_table_takes_ptes_and_no_whole_slot() {
    let mut table = arm64();
    map(&mut table, (512, 0, 1), RW, folio(0, 0));
    cleared(&mut table, 512, 1, folio(0, 0));
    map(&mut table, (0, 64, 16), RW, folio(64, 4));
    table.move_range(Vpn(0), Vpn(512), 512, |_| folio(64, 4));
    table.validate().unwrap();
    let stats = table.stats();
    assert_eq!((stats.nr_tables, stats.nr_unfolds, stats.nr_folds), (2, 1, 2));
    assert_eq!((table.pmd(Vpn(0)), nr_entries(&table)), (PmdState::Table { nr_present: 0 }, 1));
}

#[test]
fn moving_ptes_folds_again_only_where_the_target_is_congruent() {
    let mut table = arm64();
    map(&mut table, (0, 64, 32), RW, folio(64, 6));
    table.move_range(Vpn(0), Vpn(16), 0, |_| unreachable!("nothing moves"));
    table.move_range(Vpn(0), Vpn(512 + 16), 32, |_| folio(64, 6));
    assert_eq!(nr_entries(&table), 2);
    table.move_range(Vpn(512 + 16), Vpn(1024 + 8), 32, |_| folio(64, 6));
    assert_eq!(nr_entries(&table), 32);
    assert_eq!(table.pte(Vpn(1024 + 8)).pfn(), Pfn(64));
}

#[test]
fn hardware_coalescing_needs_natural_alignment_of_both_sides() {
    let mut table = PageTable::new(PageSize::K16, Contpte::None);
    let run = |table: &PageTable, vpn| {
        table.contiguous_run(Vpn(vpn), Order::new(2), AccessBits::Any).map(Order::get)
    };
    // Separate folios coalesce too: HPA needs only adjacency (C.2).
    (0..8).for_each(|by| map(&mut table, (8 + by, 40 + by, 1), RW, folio(40 + by, 0)));
    assert_eq!((run(&table, 8), run(&table, 15), run(&table, 16)), (Some(2), Some(2), None));
    map(&mut table, (20, 49, 4), RW, folio(48, 3));
    assert_eq!(run(&table, 20), Some(0));
    map(&mut table, (32, 50, 6), RW, folio(48, 3));
    // 32 -> 50: congruent to 2 pages only.
    assert_eq!((run(&table, 32), run(&table, 35)), (Some(1), Some(1)));
    // One page with other permissions limits its neighbours to pairs.
    table.wrprotect_range(Vpn(11), 1);
    assert_eq!((run(&table, 8), run(&table, 10), run(&table, 11)), (Some(1), Some(0), Some(0)));
}

#[test]
fn zen_coalescing_compares_accessed_and_dirty() {
    let mut table = PageTable::new(PageSize::K4, Contpte::None);
    map(&mut table, (0, 0, 4), RW, folio(0, 2));
    table.add_flags(Vpn(3), PteFlags::DIRTY);
    let run = |bits| table.contiguous_run(Vpn(0), Order::new(2), bits).map(Order::get);
    assert_eq!((run(AccessBits::Equal), run(AccessBits::Any)), (Some(1), Some(2)));
    let mut table = arm64();
    table.map_pmd(Vpn(0), Pfn(0), RW);
    assert_eq!(table.contiguous_run(Vpn(9), Order::new(3), AccessBits::Equal), Some(Order::new(3)));
}

#[test]
fn a_sparse_terabyte_costs_one_table_a_touched_slot() {
    let mut table = arm64();
    let step = 1 << 22; // 16 GiB
    (0..64).for_each(|nr| map(&mut table, (nr * step, nr, 1), RW, folio(nr, 0)));
    assert_eq!(table.stats().nr_tables, 64);
    assert_eq!(table.first_set_in(Vpn(1), 64 * step), Some(Vpn(step)));
    assert!(table.is_none(Vpn(1), step - 1));
    let pfns: Vec<_> = table.leaves(Vpn(5), 63 * step).map(|leaf| leaf.pfn.0).collect();
    assert_eq!(pfns, (1..=63).collect::<Vec<_>>());
}
