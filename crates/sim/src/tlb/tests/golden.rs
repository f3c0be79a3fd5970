//! Miss counts worked out by hand.

use super::*;
use crate::machine::Machine;

#[test]
fn two_sets_of_two_ways_keep_the_two_latest_of_each_parity() {
    // set 0: 0, 2, 4 take turns in two ways: each evicts the one needed after the next, so nothing
    // hits. set 1: 1, 3 fit.
    let mut tlb = tlb(vec![structure(4, 2, &["4K"])], vec![]);
    assert_eq!(reads(&mut tlb, [0, 2, 4, 0, 2, 4]), "------");
    assert_eq!(reads(&mut tlb, [1, 3, 1, 3]), "--11");
    // set 0 holds {2, 4}: 4 becomes the latest, so 6 evicts 2.
    assert_eq!(reads(&mut tlb, [4, 6, 4, 2]), "1-1-");
    assert_eq!(tlb.counters().data.references, 14);
    assert_eq!((tlb.counters().data.l1_misses, tlb.counters().data.l2_misses), (10, 10));
}

#[test]
fn three_sets_are_chosen_by_the_page_modulo_three() {
    // set 0 takes 0, 3, 6; set 1 takes 1, 4; set 2 takes 2.
    //   0 -    3 -    0 hit    6 - (evicts 3)    3 - (evicts 0)    {6, 3}
    //   1 -    4 -    1 hit    2 -    2 hit      6 hit             0 - (evicts 3)   6 hit
    let mut tlb = tlb(vec![structure(6, 2, &["4K"])], vec![]);
    assert_eq!(reads(&mut tlb, [0, 3, 0, 6, 3]), "--1--");
    assert_eq!(reads(&mut tlb, [1, 4, 1, 2, 2, 6, 0, 6]), "--1-11-1");
    assert_eq!(tlb.counters().data.l1_misses, 8);
}

#[test]
fn one_page_more_than_the_entries_in_a_circle_never_hits() {
    let mut small = tlb(vec![structure(7, 0, &["4K"])], vec![]);
    assert_eq!(reads(&mut small, (0..5).flat_map(|_| 0..8)), "-".repeat(40));
    let mut fits = tlb(vec![structure(7, 0, &["4K"])], vec![]);
    assert_eq!(reads(&mut fits, (0..3).flat_map(|_| 0..7)), "-------11111111111111");
}

#[test]
fn a_second_level_serves_what_the_first_lost() {
    // L1: two entries. L2: two sets of two ways.
    //   0, 2, 4 walk; L2 set 0 = {2, 4} as 4 evicted 0; L1 = {2, 4}.
    //   2 hits L1. 0 walks: L2 set 0 evicts 2, the oldest there (a level-1 hit does not age
    //   level 2); L1 evicts 4. 4 is found in L2, L1 evicts 2. 2 walks.
    let mut tlb = tlb(vec![structure(2, 0, &["4K"])], vec![structure(4, 2, &["4K"])]);
    assert_eq!(reads(&mut tlb, [0, 2, 4, 2, 0, 4, 2]), "---1-2-");
    let data = tlb.counters().data;
    let l1_hits = data.references - data.l1_misses - data.permission_misses;
    assert_eq!((l1_hits, data.l2_hits(), data.l2_misses), (1, 1, 5));
    assert_eq!(tlb.counters().walks_pte, 5);
}

#[test]
fn sizes_share_the_sets_of_a_mixed_structure() {
    // Six entries, two ways, three sets, any size: set = (vpn >> order) mod 3.
    //   page 3            -> set 0          block of 16 at 0x30, block 3 -> set 0
    //   PMD at 0x600, block 3 -> set 0: evicts page 3, the oldest.
    let mut tlb = tlb(vec![structure(6, 2, &["any"])], vec![]);
    assert_eq!(letter(read(&mut tlb, 3, 0)), '-');
    assert_eq!(letter(read(&mut tlb, 0x3a, 4)), '-');
    assert_eq!(letter(read(&mut tlb, 0x7ff, 9)), '-');
    assert_eq!(letter(read(&mut tlb, 0x30, 4)), '1');
    assert_eq!(letter(read(&mut tlb, 0x600, 9)), '1');
    // Page 3 returns and evicts the block, now the oldest of set 0.
    assert_eq!(reads(&mut tlb, [3, 0x600, 0x30]), "-1-");
    assert_eq!((tlb.counters().walks_pte, tlb.counters().walks_pmd), (4, 1));
    assert_eq!(tlb.counters().walks_contpte, 1);
}

#[test]
fn level_one_splits_what_it_cannot_hold_and_level_two_refuses_a_pmd() {
    let l1 = || vec![structure(2, 0, &["4K", "64K"])];
    let mut with_2m = tlb(l1(), vec![structure(8, 0, &["4K", "2M"])]);
    // Level 1 gets the 64 KiB piece around page 0x215, level 2 the whole entry.
    assert_eq!(letter(read(&mut with_2m, 0x215, 9)), '-');
    assert_eq!(reads(&mut with_2m, [0x210, 0x21f, 0x220, 0x3ff, 0x210]), "11222");
    let piece = with_2m.peek(Side::Data, Vpn(0x215)).unwrap();
    assert_eq!((piece.first_vpn, piece.order, piece.pfn), (Vpn(0x210), Order::new(4), Pfn(0x210)));

    let mut without = tlb(l1(), vec![structure(8, 0, &["4K"])]);
    assert_eq!(letter(read(&mut without, 0x215, 9)), '-');
    assert_eq!(letter(read(&mut without, 0x220, 9)), '-');
    // That level 2 splits a contpte block into pages, because its PTEs are pages.
    assert_eq!(letter(read(&mut without, 0x1234, 4)), '-');
    assert_eq!(letter(read(&mut without, 0x1250, 4)), '-');
    assert_eq!(letter(read(&mut without, 0x1260, 4)), '-');
    assert_eq!(letter(read(&mut without, 0x1234, 4)), '2');
    assert_eq!(letter(read(&mut without, 0x1238, 4)), '-');
}

#[test]
fn a_host_with_small_pages_splits_every_entry_of_its_guest() {
    let l2 = structure(8, 0, &["4K", "2M"]);
    let mut config = config(vec![structure(2, 0, &["4K", "64K", "2M"])], vec![l2]);
    config.walker.is_virtual = true;
    config.walker.host_page = EntrySize::parse("4K").unwrap();
    let mut tlb = Tlb::new(&config, PageSize::K4);
    assert_eq!(letter(read(&mut tlb, 0x215, 9)), '-');
    assert_eq!(letter(read(&mut tlb, 0x216, 9)), '-');
    assert_eq!(letter(read(&mut tlb, 0x217, 9)), '-');
    // Level 2 holds the three pages; level 1 has room for two.
    assert_eq!(reads(&mut tlb, [0x215, 0x217, 0x216, 0x217]), "2121");
    // A host page of 64K covers the block around the page.
    config.walker.host_page = EntrySize::parse("64K").unwrap();
    let mut tlb = Tlb::new(&config, PageSize::K4);
    assert_eq!(letter(read(&mut tlb, 0x215, 9)), '-');
    assert_eq!(reads(&mut tlb, [0x210, 0x21f, 0x220]), "11-");
}

#[test]
fn a_larger_entry_replaces_the_pages_it_covers() {
    let mut tlb = tlb(vec![structure(4, 0, &["any"])], vec![structure(8, 2, &["any"])]);
    assert_eq!(reads(&mut tlb, [0x10, 0x11]), "--");
    // Page 0x12 is mapped later, and now the block is folded.
    assert_eq!(letter(read(&mut tlb, 0x12, 4)), '-');
    assert_eq!(tlb.peek(Side::Data, Vpn(0x10)).unwrap().order, Order::new(4));
    assert_eq!(reads(&mut tlb, [0x10, 0x1f]), "11");
}

#[test]
fn a_write_to_a_read_only_entry_drops_the_page_everywhere_and_is_no_miss() {
    let mut tlb = tlb(vec![structure(4, 0, &["4K"])], vec![structure(8, 2, &["4K"])]);
    for side in [Side::Instruction, Side::Data] {
        assert_eq!(
            tlb.lookup(side, Vpn(5), Access::Read),
            [Lookup::Miss, Lookup::L2][side as usize]
        );
        if side == Side::Instruction {
            tlb.fill_walk(side, &walk(5, 0, false));
        }
    }
    assert_eq!(tlb.lookup_run(Side::Data, Vpn(5), Access::Write, 3), Lookup::Permission);
    assert_eq!(tlb.peek(Side::Instruction, Vpn(5)), None);
    tlb.fill_walk(Side::Data, &walk(5, 0, true));
    assert_eq!(tlb.lookup(Side::Data, Vpn(5), Access::Write), Lookup::L1);
    assert_eq!(tlb.lookup(Side::Instruction, Vpn(5), Access::Read), Lookup::L2);
    let expected = SideCounters { references: 5, l1_misses: 1, l2_misses: 0, permission_misses: 1 };
    assert_eq!(tlb.counters().data, expected);
    assert_eq!(tlb.counters().walks(), tlb.counters().l2_misses() + 1);
}

#[test]
fn a_range_is_invalidated_to_the_page() {
    let mut tlb = tlb(vec![structure(8, 0, &["any"])], vec![structure(16, 4, &["any"])]);
    assert_eq!(reads(&mut tlb, [0x0f, 0x20, 0x21, 0x5000]), "----");
    assert_eq!(letter(read(&mut tlb, 0x13, 4)), '-');
    tlb.invalidate(Vpn(0x1f), 2);
    // The block's last page is in the range, and so is page 0x20. Their neighbours stay.
    assert_eq!(reads(&mut tlb, [0x0f, 0x21, 0x5000]), "111");
    assert_eq!(tlb.peek(Side::Data, Vpn(0x13)), None);
    assert_eq!(tlb.peek(Side::Data, Vpn(0x20)), None);
    tlb.invalidate(Vpn(0), 0);
    tlb.invalidate(Vpn(0x22), u64::MAX);
    assert_eq!(reads(&mut tlb, [0x0f, 0x21]), "11");
    assert!(tlb.peek(Side::Data, Vpn(0x5000)).is_none());
    tlb.flush();
    assert_eq!(reads(&mut tlb, [0x0f, 0x21]), "--");
}

#[test]
fn one_page_more_than_the_stlb_of_a_cascade_lake_costs_one_set() {
    // 128 sets of 12 ways hold pages 0..1536 exactly. With page 1536 the set of pages 0 mod 128 has
    // 13 pages in 12 ways: each round has 13 walks and finds the rest in level 2. The data TLB (16
    // sets of 4 ways, 96 or 97 pages a set) never hits.
    let machine = Machine::named("cascadelake").unwrap();
    let mut tlb = Tlb::new(&machine.tlb, PageSize::K4);
    let mut walks = Vec::new();
    for _ in 0..3 {
        let before = tlb.counters().data;
        (0..=1536).for_each(|vpn| {
            let lookup = tlb.lookup(Side::Data, Vpn(vpn), Access::Read);
            if lookup.needs_walk() {
                tlb.fill_walk(Side::Data, &walk(vpn, 0, true));
            }
        });
        let data = tlb.counters().data;
        assert_eq!(data.l1_misses - before.l1_misses, 1537);
        walks.push(data.l2_misses - before.l2_misses);
    }
    assert_eq!(walks, [1537, 13, 13]);
    tlb.validate().unwrap();
}

#[test]
fn folded_blocks_give_an_altra_sixteen_times_the_reach() {
    // 768 pages = 48 blocks of 16. Folded: the 48 entries of level 1 hold them, one walk per block.
    // Unfolded: 768 entries cycle through 48 entries of level 1 without a hit, and fit level 2 (256
    // sets, 3 of 5 ways).
    let machine = Machine::named("altra").unwrap();
    for (order, l1_misses, l2_misses) in [(4, 48, 48), (0, 3 * 768, 768)] {
        let mut tlb = Tlb::new(&machine.tlb, PageSize::K4);
        for vpn in (0..3).flat_map(|_| 0..768) {
            let lookup = tlb.lookup(Side::Instruction, Vpn(vpn), Access::Read);
            if lookup.needs_walk() {
                tlb.fill_walk(Side::Instruction, &walk(vpn, order, false));
            }
        }
        let counters = tlb.counters().instruction;
        assert_eq!((counters.l1_misses, counters.l2_misses), (l1_misses, l2_misses));
        assert_eq!(tlb.counters().data, SideCounters::default());
    }
}

#[test]
#[should_panic(expected = "unchecked TLB configuration: tlb.l1_instruction[0]")]
fn an_unchecked_configuration_is_a_programmer_error() {
    let _ = tlb(vec![structure(6, 4, &["4K"])], vec![]);
}

#[test]
fn counters_sum_over_threads() {
    let mut tlb = tlb(vec![structure(2, 0, &["4K"])], vec![]);
    assert_eq!(reads(&mut tlb, [1, 2, 3]), "---");
    let mut sum = *tlb.counters();
    sum += *tlb.counters();
    assert_eq!((sum.data.references, sum.l2_misses(), sum.walks_pte), (6, 6, 6));
    assert_eq!(sum.data.l1_misses, 6, "no hits");
}
