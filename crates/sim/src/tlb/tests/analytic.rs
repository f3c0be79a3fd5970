//! Miss counts that follow from arithmetic, for any number of sets and ways.

use super::*;
use crate::machine::Machine;

fn l1_misses(tlb: &mut Tlb, vpns: impl Iterator<Item = u64>) -> u64 {
    let before = tlb.counters().data.l1_misses;
    for vpn in vpns {
        if tlb.lookup(Side::Data, Vpn(vpn), Access::Read).needs_walk() {
            tlb.fill_walk(Side::Data, &walk(vpn, 0, true));
        }
    }
    tlb.counters().data.l1_misses - before
}

/// Cycles through pages `0..nr_pages` under LRU. A set with more pages than ways misses each of its
/// pages in each round. Any other set misses only in the first round.
fn misses_of_a_round(nr_pages: u64, nr_sets: u64, ways: u64) -> u64 {
    let in_set = |set: u64| nr_pages / nr_sets + u64::from(set < nr_pages % nr_sets);
    (0..nr_sets).map(in_set).filter(|&pages| pages > ways).sum()
}

#[test]
fn a_circle_misses_all_of_a_set_or_nothing() {
    for (sets, ways) in
        [(1, 1), (1, 7), (1, 48), (3, 2), (5, 3), (7, 1), (16, 4), (12, 6), (256, 5)]
    {
        let entries = sets * ways;
        for nr_pages in 1..=(2 * entries + 3).min(700) {
            if sets == 256 && nr_pages % 97 != 0 {
                continue;
            }
            let mut tlb = tlb(vec![structure(entries, ways, &["4K"])], vec![]);
            let circle = || 0..u64::from(nr_pages);
            assert_eq!(l1_misses(&mut tlb, circle()), u64::from(nr_pages));
            let expected = misses_of_a_round(nr_pages.into(), sets.into(), ways.into());
            for _ in 0..2 {
                assert_eq!(
                    l1_misses(&mut tlb, circle()),
                    expected,
                    "{nr_pages} pages, {sets} sets of {ways}"
                );
            }
        }
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Once all sets are full, a TLB of E entries holds E of the W pages (W/S pages compete in each of
/// S sets), and the next page is any of the W, independent of the past. So each reference misses
/// with probability exactly p = (W - E)/W, and N references miss B(N, p) times: mean Np, variance
/// Np(1 - p). With random seeds, one run in 5 * 10^8 would deviate by six standard deviations. With
/// a fixed seed the test always passes or always fails.
#[test]
fn uniform_references_miss_with_the_share_that_does_not_fit() {
    const NR: u32 = 200_000;
    for (seed, (sets, ways, per_set)) in (1..).zip([
        (1, 48, 49),
        (1, 48, 96),
        (1, 72, 3_000),
        (16, 4, 5),
        (3, 5, 12),
        (128, 12, 13),
        (256, 5, 40),
    ]) {
        let (entries, nr_pages) = (sets * ways, u64::from(sets) * per_set);
        let mut tlb = tlb(vec![structure(entries, ways, &["4K"])], vec![]);
        let _ = l1_misses(&mut tlb, 0..nr_pages);
        let mut state = seed;
        let vpns = std::iter::repeat_with(|| random(&mut state) % nr_pages).take(NR as usize);
        let misses = l1_misses(&mut tlb, vpns);
        // (misses - Np)^2 <= 36 Np(1 - p), both sides times W^2.
        let (w, e) = (i128::from(nr_pages), i128::from(entries));
        let n = i128::from(NR);
        let off = i128::from(misses) * w - n * (w - e);
        assert!(
            off * off <= 36 * n * (w - e) * e,
            "{sets} sets of {ways}, {nr_pages} pages: {misses} of {NR} missed"
        );
    }
}

/// Reads `nr_pages` pages in two rounds. Returns the second round's level-1 misses and walks.
fn second_round(name: &str, nr_pages: u64, run: u8) -> (u64, u64) {
    let machine = Machine::named(name).unwrap();
    let mut tlb = Tlb::new(&machine.tlb, PageSize::K4);
    let mut last = SideCounters::default();
    for round in 0..2 {
        for vpn in 0..nr_pages {
            if tlb.lookup(Side::Data, Vpn(vpn), Access::Read).needs_walk() {
                let run = Order::new(run);
                tlb.fill_walk(Side::Data, &Walk { run, ..walk(vpn, 0, true) });
            }
        }
        if round == 0 {
            last = tlb.counters().data;
        }
    }
    let now = tlb.counters().data;
    (now.l1_misses - last.l1_misses, now.l2_misses - last.l2_misses)
}

#[test]
fn the_machines_keep_what_their_entries_reach_and_no_page_more() {
    // A fully associative level 1 with E entries: E pages stay, E + 1 all miss. A level 2 with S
    // sets of A ways: S * A pages stay; with one more, its set of A + 1 pages walks.
    for (name, l1, l2, ways) in [
        ("altra", 48, 1280, 5),
        ("grace-4k", 48, 2048, 8),
        ("phone-little", 16, 1024, 4),
        ("milan", 64, 2048, 16),
        ("zen4", 72, 3072, 8),
    ] {
        assert_eq!(second_round(name, l1, 0), (0, 0), "{name}");
        assert_eq!(second_round(name, l1 + 1, 0), (l1 + 1, 0), "{name}");
        assert_eq!(second_round(name, l2, 0), (l2, 0), "{name}");
        assert_eq!(second_round(name, l2 + 1, 0), (l2 + 1, ways + 1), "{name}");
    }
    // Level 1 has 16 sets of 4 ways.
    assert_eq!(second_round("icelake", 64, 0), (0, 0));
    assert_eq!(second_round("icelake", 65, 0), (5, 0));
    assert_eq!(second_round("icelake", 2049, 0), (2049, 17));
    // Zen merges four contiguous pages: 72 and 64 entries cover four times as many pages, and a
    // 73rd or 65th costs one miss per group of four pages.
    assert_eq!(second_round("zen4", 4 * 72, 2), (0, 0));
    assert_eq!(second_round("zen4", 4 * 73, 2), (73, 0));
    assert_eq!(second_round("milan", 4 * 65, 2), (65, 0));
}
