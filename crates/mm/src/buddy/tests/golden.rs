//! Worked examples for docs/behaviour 0.4, I.2-I.4, I.6, I.9, I.10 and of initial fragmentation.

use super::super::{Buddy, BuddyConfig, BuddyError, Fragmentation, MigrateType, WatermarkRefusal};
use super::{list, small};
use crate::units::{Order, PageSize, Pfn};

use MigrateType::{Movable, Reclaimable, Unmovable};

fn alloc(buddy: &mut Buddy, order: u8, of: MigrateType) -> Option<u64> {
    let pfn = buddy.alloc(Order::new(order), of);
    buddy.validate().unwrap();
    pfn.map(|pfn| pfn.0)
}

fn free(buddy: &mut Buddy, pfn: u64, order: u8) {
    buddy.free(Pfn(pfn), Order::new(order));
    buddy.validate().unwrap();
}

#[test]
fn orders_follow_the_page_size() {
    let rows = [PageSize::K4, PageSize::K16, PageSize::K64].map(|page| {
        let config = BuddyConfig::new(page, 1);
        (config.max_order.get(), config.pageblock_order.get())
    });
    assert_eq!(rows, [(10, 9), (11, 11), (13, 13)]);
}

#[test]
fn a_new_zone_is_a_list_of_largest_blocks_and_a_rest() {
    let buddy = small(16 * 2 + 8 + 1, 4, 3);
    buddy.validate().unwrap();
    assert_eq!(list(&buddy, 4, Movable), [0, 16]);
    assert_eq!((list(&buddy, 3, Movable), list(&buddy, 0, Movable)), (vec![32], vec![40]));
    assert_eq!(buddy.nr_free_pages(), 41);
}

#[test]
fn splitting_puts_each_upper_half_on_the_lower_list() {
    let mut buddy = small(16, 4, 4);
    assert_eq!(alloc(&mut buddy, 1, Movable), Some(0));
    let lists: Vec<_> = (0..5).map(|order| list(&buddy, order, Movable)).collect();
    assert_eq!(lists, [vec![], vec![2], vec![4], vec![8], vec![]]);
}

#[test]
fn the_smallest_sufficient_block_at_the_head_is_taken() {
    let mut buddy = small(32, 4, 4);
    assert_eq!(alloc(&mut buddy, 2, Movable), Some(0));
    assert_eq!(alloc(&mut buddy, 0, Movable), Some(4));
    // Free now: 5, 6-7, 8-15 and 16-31. Order 1 takes 6 instead of splitting a larger block.
    assert_eq!(alloc(&mut buddy, 1, Movable), Some(6));
    free(&mut buddy, 6, 1);
    free(&mut buddy, 0, 2);
    assert_eq!(list(&buddy, 2, Movable), [0]);
    assert_eq!(alloc(&mut buddy, 1, Movable), Some(6));
    assert_eq!(alloc(&mut buddy, 2, Movable), Some(0));
}

#[test]
fn freed_blocks_are_taken_again_last_in_first_out() {
    let mut buddy = small(16, 4, 4);
    let pfns: Vec<_> = (0..16).map(|_| alloc(&mut buddy, 0, Movable).unwrap()).collect();
    assert_eq!(pfns, (0..16).collect::<Vec<_>>());
    for pfn in [3, 9, 6] {
        free(&mut buddy, pfn, 0);
    }
    assert_eq!(list(&buddy, 0, Movable), [6, 9, 3]);
    assert_eq!(alloc(&mut buddy, 0, Movable), Some(6));
}

#[test]
fn buddies_merge_up_to_the_largest_order() {
    let mut buddy = small(32, 3, 3);
    for _ in 0..32 {
        alloc(&mut buddy, 0, Movable);
    }
    for pfn in (0..32).rev() {
        free(&mut buddy, pfn, 0);
    }
    assert_eq!(list(&buddy, 3, Movable), [0, 8, 16, 24]);
    assert_eq!(buddy.nr_free_of(Order::new(3)), 4);
}

#[test]
fn parts_of_an_allocation_can_be_freed_one_by_one() {
    let mut buddy = small(16, 4, 4);
    assert_eq!(alloc(&mut buddy, 4, Movable), Some(0));
    free(&mut buddy, 8, 3);
    free(&mut buddy, 0, 0);
    free(&mut buddy, 2, 1);
    assert_eq!(buddy.nr_allocated_pages(), 5);
    free(&mut buddy, 1, 0);
    free(&mut buddy, 4, 2);
    assert_eq!(list(&buddy, 4, Movable), [0]);
}

#[test]
#[should_panic(expected = "already free")]
fn a_double_free_is_a_programmer_error() {
    let mut buddy = small(16, 4, 4);
    let pfn = buddy.alloc(Order::new(2), Movable).unwrap();
    buddy.free(pfn, Order::new(2));
    buddy.free(pfn, Order::new(2));
}

#[test]
#[should_panic(expected = "no such block")]
fn a_free_beyond_the_zone_is_a_programmer_error() {
    small(16, 4, 4).free(Pfn(16), Order::ZERO);
}

#[test]
fn an_unmovable_request_claims_the_largest_movable_block() {
    let mut buddy = small(64, 4, 3);
    assert_eq!(alloc(&mut buddy, 0, Unmovable), Some(0));
    // Both pageblocks of the order-4 block changed type; the rest of it is now unmovable.
    let types: Vec<_> = (0..8).map(|nr| buddy.pageblock_type(Pfn(nr * 8))).collect();
    let expected = [&[Unmovable; 2][..], &[Movable; 6]].concat();
    assert_eq!(types, expected);
    assert_eq!((list(&buddy, 3, Unmovable), list(&buddy, 0, Unmovable)), (vec![8], vec![1]));
    assert_eq!(alloc(&mut buddy, 0, Unmovable), Some(1));
    assert_eq!(buddy.fallback_stats().nr_claimed_pageblocks, 2);
}

#[test]
fn a_pageblock_is_claimed_when_half_of_it_is_free_or_compatible() {
    let mut buddy = small(8, 3, 3);
    assert_eq!(alloc(&mut buddy, 2, Movable), Some(0));
    // 4 of 8 pages are free, so the pageblock is claimed. Its allocated pages stay movable.
    assert_eq!(alloc(&mut buddy, 0, Unmovable), Some(4));
    assert_eq!(buddy.pageblock_type(Pfn(0)), Unmovable);
    // Movable claims it back: 2 free and 5 compatible pages.
    assert_eq!(alloc(&mut buddy, 0, Unmovable), Some(5));
    assert_eq!(alloc(&mut buddy, 0, Movable), Some(6));
    assert_eq!(buddy.pageblock_type(Pfn(0)), Movable);
    assert_eq!(list(&buddy, 0, Movable), [7]);
}

#[test]
fn a_pageblock_that_is_mostly_taken_is_stolen_from_instead() {
    let mut buddy = small(8, 3, 3);
    assert_eq!(alloc(&mut buddy, 2, Movable), Some(0));
    assert_eq!(alloc(&mut buddy, 1, Movable), Some(4));
    // 2 of 8 pages are free, 6 are movable: unmovable cannot claim and steals one page.
    assert_eq!(alloc(&mut buddy, 0, Unmovable), Some(6));
    assert_eq!(buddy.pageblock_type(Pfn(0)), Movable);
    assert_eq!(list(&buddy, 0, Movable), [7]);
    let stats = buddy.fallback_stats();
    assert_eq!((stats.nr_claimed_pageblocks, stats.nr_stolen_blocks), (0, 1));
}

#[test]
fn a_small_movable_request_steals_the_smallest_block() {
    // Pageblock order 6: a donor block below order 3 is never claimed for movable pages.
    let mut buddy = small(64, 6, 6);
    assert_eq!(alloc(&mut buddy, 6, Unmovable), Some(0));
    free(&mut buddy, 4, 2);
    free(&mut buddy, 9, 0);
    assert_eq!(alloc(&mut buddy, 0, Movable), Some(9));
    assert_eq!(alloc(&mut buddy, 0, Movable), Some(4));
    assert_eq!(buddy.pageblock_type(Pfn(0)), Unmovable);
    assert_eq!((list(&buddy, 0, Unmovable), list(&buddy, 1, Unmovable)), (vec![5], vec![6]));
}

#[test]
fn donors_are_asked_in_the_order_of_the_rules() {
    let donors = [Unmovable, Movable, Reclaimable].map(MigrateType::donors);
    let expected = [[Reclaimable, Movable], [Reclaimable, Unmovable], [Unmovable, Movable]];
    assert_eq!(donors, expected);

    let mut buddy = small(24, 3, 3);
    assert_eq!(alloc(&mut buddy, 3, Reclaimable), Some(0));
    assert_eq!(alloc(&mut buddy, 3, Unmovable), Some(8));
    assert_eq!(alloc(&mut buddy, 3, Movable), Some(16));
    free(&mut buddy, 0, 3);
    free(&mut buddy, 8, 3);
    assert_eq!(alloc(&mut buddy, 0, Movable), Some(0));
}

#[test]
fn merging_across_types_above_the_pageblock_order_retags_the_buddy() {
    let mut buddy = small(16, 4, 3);
    assert_eq!(alloc(&mut buddy, 3, Movable), Some(0));
    assert_eq!(alloc(&mut buddy, 3, Unmovable), Some(8));
    free(&mut buddy, 8, 3);
    free(&mut buddy, 0, 3);
    assert_eq!((list(&buddy, 4, Movable), buddy.pageblock_type(Pfn(8))), (vec![0], Movable));
}

#[test]
fn a_watermark_needs_free_pages_and_a_block() {
    let mut buddy = small(16, 4, 4);
    let order = Order::new(2);
    // free - 2^order + 1 > watermark: 16 - 4 + 1 = 13.
    assert_eq!(buddy.check_watermark(order, 12), Ok(()));
    assert_eq!(buddy.check_watermark(order, 13), Err(WatermarkRefusal::BelowWatermark));
    assert_eq!(buddy.try_alloc(Order::new(4), Movable, 0), Ok(Pfn(0)));
    (0..16).step_by(2).for_each(|pfn| free(&mut buddy, pfn, 0));
    assert_eq!(buddy.try_alloc(order, Movable, 0), Err(WatermarkRefusal::NoSuitableBlock));
}

#[test]
fn indices_follow_the_formulas() {
    let mut buddy = small(16, 4, 4);
    assert_eq!(buddy.fragmentation_index(Order::new(4)), -1000);
    assert_eq!(alloc(&mut buddy, 4, Movable), Some(0));
    assert_eq!(buddy.fragmentation_index(Order::ZERO), 0);
    assert_eq!(buddy.unusable_index(Order::ZERO), 1000);
    for pfn in [0, 4, 8] {
        free(&mut buddy, pfn, 0);
    }
    free(&mut buddy, 10, 1);
    // F = 5 pages in B = 4 blocks; order 2: 1000 - (1000 + 5 * 1000 / 4) / 4 = 1000 - 562.
    assert_eq!(buddy.fragmentation_index(Order::new(2)), 438);
    // Order 1: a block of 2 exists; (5 - 2) / 5 is unusable.
    assert_eq!(buddy.fragmentation_index(Order::new(1)), -1000);
    assert_eq!(buddy.unusable_index(Order::new(1)), 600);
    assert_eq!(buddy.unusable_index(Order::new(2)), 1000);
    assert_eq!(buddy.unusable_index(Order::ZERO), 0);
}

fn fragmented(order: u8, used_permille: u32, unusable_permille: u32) -> Result<Buddy, BuddyError> {
    let order = Order::new(order);
    let target = Fragmentation { seed: 7, used_permille, order, unusable_permille };
    let config = BuddyConfig::new(PageSize::K4, 1 << 18); // 1 GiB
    Buddy::new(BuddyConfig { fragmentation: Some(target), ..config })
}

#[test]
fn fragmentation_meets_its_target() {
    for (order, used, unusable) in
        [(9, 10, 900), (9, 500, 750), (4, 300, 600), (10, 5, 1000), (9, 400, 0), (0, 250, 0)]
    {
        let buddy = fragmented(order, used, unusable).unwrap();
        buddy.validate().unwrap();
        let got = buddy.unusable_index(Order::new(order));
        assert!(got.abs_diff(unusable) <= 5, "{order} {used} {unusable}: {got}");
        assert_eq!(buddy.nr_allocated_pages(), (1 << 18) * u64::from(used) / 1000);
    }
}

#[test]
fn fragmentation_is_reproducible_and_differs_by_seed() {
    let orders = || (0..=10).map(Order::new);
    let state = |buddy: &Buddy| orders().map(|of| buddy.nr_free_of(of)).collect::<Vec<_>>();
    let first = fragmented(9, 300, 800).unwrap();
    let second = fragmented(9, 300, 800).unwrap();
    assert_eq!(list(&first, 3, Movable), list(&second, 3, Movable));
    let target =
        Fragmentation { seed: 8, used_permille: 300, order: Order::new(9), unusable_permille: 800 };
    let config = BuddyConfig::new(PageSize::K4, 1 << 18);
    let other = Buddy::new(BuddyConfig { fragmentation: Some(target), ..config }).unwrap();
    assert_ne!(list(&first, 3, Movable), list(&other, 3, Movable));
    assert_eq!(state(&first), state(&second));
}

#[test]
fn impossible_configurations_are_errors() {
    assert!(matches!(fragmented(9, 0, 500), Err(BuddyError::Fragmentation { .. })));
    assert!(matches!(fragmented(9, 1000, 500), Err(BuddyError::Fragmentation { .. })));
    assert!(matches!(fragmented(11, 10, 500), Err(BuddyError::Fragmentation { .. })));
    let config = BuddyConfig::new(PageSize::K4, 0);
    assert!(matches!(Buddy::new(config), Err(BuddyError::NrPages { nr_pages: 0 })));
    let config = BuddyConfig::new(PageSize::K4, 1 << 32);
    assert!(matches!(Buddy::new(config), Err(BuddyError::NrPages { .. })));
    // No zone can be this large, but `check_room` checks only the host's memory.
    let config = BuddyConfig::new(PageSize::K4, 1 << 60);
    assert!(matches!(config.check_room(), Err(BuddyError::NoRoom { .. })));
    assert_eq!(BuddyConfig::new(PageSize::K4, 1 << 20).check_room(), Ok(()));
    let config =
        BuddyConfig { pageblock_order: Order::new(11), ..BuddyConfig::new(PageSize::K4, 8) };
    assert!(matches!(Buddy::new(config), Err(BuddyError::Orders { .. })));
}
