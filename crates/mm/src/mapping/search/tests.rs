use largefolio_testkit::page_tree::NaivePageTree;
use proptest::prelude::*;

use super::*;
use crate::mapping::tree::tests::ids;
use crate::units::{Order, PageIndex};

fn next_miss(tree: &Tree, start: u64, nr_pages: u64) -> u64 {
    super::next_miss(tree, start, nr_pages, FullSearch::Beyond)
}

fn tree(folios: &[(u64, u8)]) -> Tree {
    let mut tree = Tree::new();
    for (&(first, order), id) in folios.iter().zip(ids(2000)) {
        tree.insert(PageIndex(first), Order::new(order), id).unwrap();
    }
    tree
}

fn order2(first: u64, end: u64) -> Vec<(u64, u8)> {
    (first..end).step_by(4).map(|index| (index, 2)).collect()
}

#[test]
fn inside_a_small_folio_the_hole_is_reported_too_high_by_the_distance_to_the_head() {
    // A.4.6, orders 1..=5: true hole 16.
    let tree = tree(&[(12, 2)]);
    assert_eq!([12, 13, 14, 15].map(|start| next_miss(&tree, start, 32)), [16, 17, 18, 19]);
    let tree = tree_of_order(5);
    assert_eq!([32, 33, 63].map(|start| next_miss(&tree, start, 64)), [64, 65, 95]);
}

fn tree_of_order(order: u8) -> Tree {
    tree(&[(1 << order, order)])
}

#[test]
fn orders_0_and_6_are_exact() {
    let pages: Vec<_> = (10..20).map(|index| (index, 0)).collect();
    assert_eq!([10, 15, 19].map(|start| next_miss(&tree(&pages), start, 32)), [20; 3]);
    let tree = tree_of_order(6);
    assert_eq!([64, 65, 100, 127].map(|start| next_miss(&tree, start, 128)), [128; 4]);
    let backward = [127, 100, 64].map(|start| prev_miss(&tree, start, 128, FullSearch::Beyond));
    assert_eq!(backward, [63; 3]);
}

#[test]
fn order_7_catches_up_unless_the_start_is_near_its_end() {
    // A.4.6, order >= 7: 128..=255 in two slots; the walk starts at the first.
    let tree = tree_of_order(7);
    assert_eq!([128, 130, 250, 254].map(|start| next_miss(&tree, start, 256)), [256; 4]);
    assert_eq!(next_miss(&tree, 255, 256), 257);
    // Order 8 has four slots: the result is at most three too high.
    let tree = tree_of_order(8);
    assert_eq!(
        [256, 509, 510, 511].map(|start| next_miss(&tree, start, 256)),
        [512, 513, 514, 515]
    );
}

#[test]
fn backward_a_large_folio_is_left_at_once() {
    // A.4.6: the result depends on the pages before the folio: one slot of 64 pages per step.
    let empty = tree_of_order(7);
    assert_eq!(prev_miss(&empty, 200, 100, FullSearch::Beyond), 199);
    let full = tree(&[(64, 6), (128, 7)]);
    assert_eq!(prev_miss(&full, 200, 1000, FullSearch::Beyond), 198);
}

#[test]
fn backward_from_inside_a_small_folio_the_run_is_too_short() {
    // A.4.6: the run length c is too small by d: i = 16, q = 15, run 12..=15, d = 3: c = 1.
    let tree = tree(&[(12, 2)]);
    assert_eq!(15 - prev_miss(&tree, 15, 32, FullSearch::Beyond), 1);
    assert_eq!(12 - prev_miss(&tree, 12, 32, FullSearch::Beyond), 1);
}

#[test]
fn a_walk_that_crosses_a_chunk_with_a_lead_continues_at_the_index() {
    // A.4.6: the walk skips the slots of 64..=66. It misses the hole at 64, and 72 is exact.
    let mut folios = order2(40, 64);
    folios.extend(order2(68, 72));
    let with_hole = tree(&folios);
    assert_eq!(next_miss(&with_hole, 43, 64), 67, "slot 63 is index 66, slot 67 comes next");
    folios.push((64, 2));
    assert_eq!(next_miss(&tree(&folios), 43, 64), 72);
}

#[test]
fn a_search_that_finds_everything_cached_says_so() {
    // A.4.6 end: c = M - 1 in 6.12, c = M in 7.2; forward always "beyond" (recordings, 6.12).
    let pages: Vec<_> = (0..100).map(|index| (index, 0)).collect();
    let tree = tree(&pages);
    assert_eq!(99 - prev_miss(&tree, 99, 32, FullSearch::LastPage), 31);
    assert_eq!(99 - prev_miss(&tree, 99, 32, FullSearch::Beyond), 32);
    assert_eq!(next_miss(&tree, 10, 32), 42);
}

#[test]
fn below_page_0_the_answer_wraps() {
    let tree = tree(&[(0, 0), (1, 0), (2, 0)]);
    assert_eq!(prev_miss(&tree, 2, 32, FullSearch::Beyond), u64::MAX);
    assert_eq!(prev_miss(&Tree::new(), 5, 32, FullSearch::Beyond), 5);
    assert_eq!(next_miss(&Tree::new(), 5, 32), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(300)))]

    /// A.4.6 promises exact results if every folio has order 0 or 6.
    #[test]
    fn orders_0_and_6_are_exact_everywhere(
        folios in prop::collection::vec((any::<bool>(), 0..500_u64), 0..300),
        start in 1..500_u64,
        nr_pages in 1..200_u64,
    ) {
        let mut naive = NaivePageTree::default();
        let mut ours = Tree::new();
        for ((is_large, index), id) in folios.into_iter().zip(ids(300)) {
            let order = if is_large && index % 8 == 0 { 6 } else { 0 };
            let first = Order::new(order).round_down(index);
            if naive.insert((first, order, 0)) {
                ours.insert(PageIndex(first), Order::new(order), id).unwrap();
            }
        }
        prop_assert_eq!(next_miss(&ours, start, nr_pages), naive.hole_from(start, nr_pages));
        let expected = naive.hole_before(start, nr_pages);
        prop_assert_eq!(prev_miss(&ours, start, nr_pages, FullSearch::Beyond), expected);
    }

    /// Inside one chunk of 64 pages, a start `d` pages after its folio's head reports a hole `d`
    /// too high.
    #[test]
    fn small_folios_shift_the_answer_inside_a_chunk(
        orders in prop::collection::vec(0..4_u8, 1..8),
        start in 1..32_u64,
    ) {
        let mut naive = NaivePageTree::default();
        let mut folios = Vec::new();
        let mut at = 0;
        for order in orders {
            let first = Order::new(order).round_up(at);
            if first != at || first + (1 << order) > 40 {
                break;
            }
            naive.insert((first, order, 0));
            folios.push((first, order));
            at = first + (1 << order);
        }
        let shift = naive.get(start).map_or(0, |(first, ..)| start - first);
        let expected = naive.hole_from(start, 64) + shift;
        prop_assert_eq!(next_miss(&tree(&folios), start, 128), expected);
    }
}
