//! Golden transitions and answers of docs/behaviour F.2, F.3, F.5, L.10 and L.11.

use super::super::{Change, HugetlbOwners, Level, Mapcount, MapcountRules, PmdCount, Shape};
use crate::counters::mapcounts::MapcountUpdates;
use crate::rmap::owners::{MmOwnerId, NotExclusive};
use crate::units::Order;

const A: MmOwnerId = MmOwnerId::new(1).unwrap();
const B: MmOwnerId = MmOwnerId::new(2).unwrap();

const LIKELY: Shape = Shape::new(Order::new(4), MapcountRules::LINUX_6_12);
const TRACKED: Shape = Shape::new(Order::new(4), MapcountRules::LINUX_6_18);
const NO_PAGES: Shape = Shape::new(Order::new(4), MapcountRules::NO_PAGE_MAPCOUNT);
const PMD: Shape = Shape::new(Order::new(9), MapcountRules::LINUX_6_18);

const ALL_PAGES: MapcountRules =
    MapcountRules { pmd_counts: PmdCount::AllPages, ..MapcountRules::LINUX_6_18 };

fn mapped(of: &Shape, level: Level) -> Mapcount {
    Mapcount::new_anon(of, A, level).0
}

fn change(mapped_pages: i64, pmd_mapped_pages: i64, is_partially_mapped: bool) -> Change {
    Change { mapped_pages, pmd_mapped_pages, is_partially_mapped, ..Change::NONE }
}

fn seen(change: Change) -> Change {
    Change { updates: MapcountUpdates::NONE, ..change }
}

fn updates(change: Change) -> [u64; 3] {
    let MapcountUpdates { pages, folios, owner_words } = change.updates;
    [pages, folios, owner_words]
}

#[test]
fn a_new_folio_is_mapped_by_its_first_mm_f_3_3() {
    let (folio, stat) = Mapcount::new_anon(&TRACKED, A, Level::Ptes);
    let folio: Mapcount = folio;
    assert_eq!((folio.mapcount(), seen(stat)), (16, change(16, 0, false)));
    let state = folio.owners(&TRACKED).unwrap();
    assert_eq!((state.large_mapcount, state.slots[0].mapcount, state.is_shared), (15, 15, false));
    let (folio, stat): (Mapcount, _) = Mapcount::new_anon(&PMD, A, Level::Pmd);
    assert_eq!((folio.mapcount(), folio.entire_mapcount()), (1, 1));
    assert_eq!(seen(stat), change(512, 512, false));
    let small = Shape::new(Order::ZERO, MapcountRules::LINUX_6_18);
    let (folio, stat): (Mapcount, _) = Mapcount::new_anon(&small, A, Level::Ptes);
    assert_eq!((folio.mapcount(), seen(stat)), (1, change(1, 0, false)));
}

#[test]
fn the_guess_reads_the_first_page_f_2_3() {
    let mut folio = mapped(&LIKELY, Level::Ptes);
    let _ = folio.add_ptes(&LIKELY, B, 1..16).unwrap();
    assert!(folio.maybe_mapped_shared(&LIKELY), "more mappings than pages");
    let _ = folio.remove_ptes(&LIKELY, A, 4..16);
    let _ = folio.remove_ptes(&LIKELY, B, 4..16);
    assert!(!folio.maybe_mapped_shared(&LIKELY), "false: both map pages 1 .. 4, A alone page 0");
    let _ = folio.add_ptes(&LIKELY, B, 0..1).unwrap();
    assert!(folio.maybe_mapped_shared(&LIKELY));
    assert_eq!(folio.try_exclusive(&LIKELY, A, 8), Err(NotExclusive::Untracked));
}

#[test]
fn a_pmd_entry_makes_the_guess_say_shared_beside_any_other_mapping_f_2_3() {
    let of = Shape::new(Order::new(9), MapcountRules::LINUX_6_12);
    let mut folio = mapped(&of, Level::Pmd);
    assert!(!folio.maybe_mapped_shared(&of));
    let _ = folio.add_ptes(&of, A, 7..8).unwrap();
    assert!(folio.maybe_mapped_shared(&of));
}

#[test]
fn two_areas_of_one_mm_are_exclusive_with_owners_only_f_2_4() {
    for (of, is_shared) in [(LIKELY, true), (TRACKED, false), (NO_PAGES, false)] {
        let mut folio = mapped(&of, Level::Ptes);
        let _ = folio.add_ptes(&of, A, 0..16).unwrap();
        assert_eq!(folio.maybe_mapped_shared(&of), is_shared);
    }
}

#[test]
fn partial_unmaps_are_seen_at_different_moments_l_11() {
    for (of, seen) in [(TRACKED, [false, true]), (NO_PAGES, [false, false])] {
        let mut folio = mapped(&of, Level::Ptes);
        let _ = folio.add_ptes(&of, B, 0..16).unwrap();
        let got = [A, B].map(|mm| folio.remove_ptes(&of, mm, 3..4).is_partially_mapped);
        assert_eq!(got, seen);
    }
    let mut folio = mapped(&NO_PAGES, Level::Ptes);
    let _ = folio.add_ptes(&NO_PAGES, B, 0..16).unwrap();
    assert_eq!(seen(folio.remove_ptes(&NO_PAGES, A, 0..16)), Change::NONE);
    assert_eq!(seen(folio.remove_ptes(&NO_PAGES, B, 3..4)), change(0, 0, true));
    assert_eq!(seen(folio.remove_ptes(&NO_PAGES, B, 4..16)), change(0, 0, true));
    assert_eq!(seen(folio.remove_ptes(&NO_PAGES, B, 0..3)), change(-16, 0, false));
}

#[test]
fn a_page_that_another_mm_maps_is_not_partially_unmapped_l_10() {
    let mut folio = mapped(&TRACKED, Level::Ptes);
    let _ = folio.add_ptes(&TRACKED, B, 0..16).unwrap();
    assert_eq!(seen(folio.remove_ptes(&TRACKED, A, 0..1)), Change::NONE, "copied by A");
    assert_eq!(seen(folio.remove_ptes(&TRACKED, A, 1..16)), Change::NONE, "A ends");
}

#[test]
fn a_pmd_mapping_hides_what_ptes_map_f_3_2() {
    let mut folio = mapped(&PMD, Level::Pmd);
    assert_eq!(seen(folio.add_ptes(&PMD, B, 0..100).unwrap()), Change::NONE);
    assert_eq!(seen(folio.remove_ptes(&PMD, B, 0..50)), Change::NONE);
    assert_eq!(seen(folio.remove_pmd(&PMD, A)), change(-462, -512, true));
    assert_eq!(seen(folio.remove_ptes(&PMD, B, 50..100)), change(-50, 0, false));
}

#[test]
fn splitting_a_pmd_mapping_keeps_every_page_mapped_f_3_6() {
    for (rules, refs) in [(MapcountRules::LINUX_6_18, [1, 512]), (ALL_PAGES, [512, 512])] {
        let of = Shape::new(Order::new(9), rules);
        let mut folio = mapped(&of, Level::Pmd);
        assert_eq!(folio.mapcount(), refs[0]);
        assert_eq!(seen(folio.split_pmd(&of, A).unwrap()), change(0, -512, false));
        assert_eq!((folio.mapcount(), folio.entire_mapcount()), (refs[1], 0));
        assert_eq!(folio.try_exclusive(&of, A, 512), Ok(()));
        folio.validate(&of).unwrap();
    }
}

#[test]
fn averages_are_rounded_to_nearest_and_at_least_one_f_5_5() {
    let of = Shape::new(Order::new(9), MapcountRules::NO_PAGE_MAPCOUNT);
    let mut folio: Mapcount = Mapcount::default();
    assert_eq!(folio.page_mapcount(&of, 0), 0);
    let mut add = |pages: u32| {
        let _ = folio.add_ptes(&of, A, 0..pages).unwrap();
        (folio.mapcount(), folio.page_mapcount(&of, 511))
    };
    assert_eq!(add(1), (1, 1));
    assert_eq!(add(512), (513, 1));
    assert_eq!(add(254), (767, 1));
    assert_eq!(add(1), (768, 2));
    let _ = folio.add_pmd(&of, B).unwrap();
    assert_eq!((folio.mapcount(), folio.page_mapcount(&of, 0)), (769, 3));
    assert_eq!(folio.page_mapcount(&of, 0), 3);
    let only_pmd = mapped(&of, Level::Pmd);
    assert_eq!(only_pmd.page_mapcount(&of, 0), 1);
}

#[test]
fn the_exclusive_bit_is_of_the_page_or_of_the_folio_f_5_4() {
    let of_first_and_last = [(TRACKED, [false, true]), (NO_PAGES, [false, false])];
    for (of, bits) in of_first_and_last {
        let mut folio = mapped(&of, Level::Ptes);
        let _ = folio.add_ptes(&of, B, 0..4).unwrap();
        assert_eq!([0, 15].map(|page| folio.is_page_exclusive(&of, page)), bits);
        let _ = folio.remove_ptes(&of, B, 0..4);
        assert!(folio.is_page_exclusive(&of, 0));
    }
    // One process maps it twice: only the folio's owners show that it is private.
    for (of, bit) in [(TRACKED, false), (NO_PAGES, true)] {
        let mut folio = mapped(&of, Level::Ptes);
        let _ = folio.add_ptes(&of, A, 0..16).unwrap();
        assert_eq!(folio.is_page_exclusive(&of, 0), bit);
        assert_eq!(folio.page_mapcount(&of, 0), 2);
    }
}

#[test]
fn one_reference_for_a_pmd_entry_that_counts_all_pages_lets_pins_pass_for_mappings() {
    let of = Shape::new(Order::new(9), ALL_PAGES);
    let folio = mapped(&of, Level::Pmd);
    let pins = 511;
    assert_eq!(of.pmd_refs(), 512);
    assert_eq!(folio.try_exclusive(&of, A, 1 + pins), Ok(()), "without the guard");
    let references = u64::from(of.pmd_refs()) + pins;
    assert_eq!(folio.try_exclusive(&of, A, references), Err(NotExclusive::Referenced));
}

#[test]
fn hugetlb_folios_have_owners_only_by_rule() {
    let tracked = MapcountRules { hugetlb: HugetlbOwners::Tracked, ..MapcountRules::LINUX_6_18 };
    for (rules, is_shared) in [(MapcountRules::LINUX_6_18, true), (tracked, false)] {
        let of = Shape::hugetlb(Order::new(9), rules);
        let mut folio = Mapcount::default();
        assert_eq!(seen(folio.add_pmd(&of, A).unwrap()), Change::NONE);
        assert_eq!(seen(folio.add_pmd(&of, A).unwrap()), Change::NONE);
        assert_eq!((folio.mapcount(), folio.page_mapcount(&of, 9)), (2, 2));
        assert_eq!(folio.maybe_mapped_shared(&of), is_shared);
        folio.validate(&of).unwrap();
        let _ = folio.add_pmd(&of, B).unwrap();
        assert!(folio.maybe_mapped_shared(&of));
    }
}

#[test]
fn a_batch_updates_each_page_and_the_owner_word_once_f_4_6() {
    let small = Shape::new(Order::ZERO, MapcountRules::NO_PAGE_MAPCOUNT);
    // A maps 16 pages and B maps 4 of them; then A unmaps, then B.
    for (of, nr, expected) in [
        (LIKELY, 4, [[4, 1, 0], [16, 2, 0], [4, 2, 0]]),
        (TRACKED, 4, [[4, 0, 1], [16, 1, 1], [4, 1, 1]]),
        (NO_PAGES, 4, [[0, 0, 1]; 3]),
        (small, 1, [[1, 0, 0]; 3]),
    ] {
        let mut folio = mapped(&of, Level::Ptes);
        let came = folio.add_ptes(&of, B, 0..nr).unwrap();
        let a_left = folio.remove_ptes(&of, A, 0..of.nr_pages());
        let b_left = folio.remove_ptes(&of, B, 0..nr);
        assert_eq!([came, a_left, b_left].map(updates), expected, "{of:?}");
    }
}

#[test]
fn a_pmd_entry_updates_counters_of_the_folio_alone_f_3_2() {
    let no_pages = Shape::new(Order::new(9), MapcountRules::NO_PAGE_MAPCOUNT);
    for (of, first, split) in [(PMD, 1, [512, 3, 2]), (no_pages, 0, [0, 1, 2])] {
        let mut folio = mapped(&of, Level::Pmd);
        assert_eq!(updates(folio.add_pmd(&of, B).unwrap()), [0, 1, 1]);
        assert_eq!(updates(folio.remove_pmd(&of, B)), [0, 1, 1]);
        let mut last = folio.clone();
        assert_eq!(updates(last.remove_pmd(&of, A)), [0, 1 + first, 1]);
        assert_eq!(updates(last.add_pmd(&of, A).unwrap()), [0, 1 + first, 1]);
        assert_eq!(updates(folio.split_pmd(&of, A).unwrap()), split);
    }
}

#[test]
fn a_folio_that_is_tracked_no_more_has_a_plain_counter_k_5_2() {
    let rules = MapcountRules { stop_above: Some(16), ..MapcountRules::NO_PAGE_MAPCOUNT };
    let of = Shape::new(Order::new(4), rules);
    let mut folio = mapped(&of, Level::Ptes);
    assert_eq!(updates(folio.add_ptes(&of, B, 0..1).unwrap()), [0, 0, 1], "the change that stops");
    assert_eq!(updates(folio.remove_ptes(&of, B, 0..1)), [0, 1, 0]);
}

#[test]
fn whole_folios_need_no_count_a_page() {
    assert_eq!(size_of::<Mapcount>(), 16);
    assert_eq!(size_of::<super::super::large::Large>(), 56);
}
