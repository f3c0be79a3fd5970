//! Sums over random mappings of the same memory.

use proptest::prelude::*;

use super::*;
use crate::census::block::{Backing, BlockRun};
use crate::proc::maps::Vma;

const PAGE: u64 = 4096;
const BLOCK: u64 = 2 << 20;
const NR: u32 = 512;
const FILE_BLOCKS: u64 = 8;

/// Generates a mapping of part of a file: its first block, and the facts of all its blocks.
fn view() -> impl Strategy<Value = (u64, Vec<BlockFacts>)> {
    let block =
        (0..=NR, 0..8_u32, 0..6_u32, any::<bool>()).prop_map(|(nr, swapped, odd, is_pmd)| {
            let nr_swapped = swapped.min(NR - nr);
            let mut facts = BlockFacts { nr_present: nr, nr_swapped, ..BlockFacts::default() };
            match odd {
                0 => facts.nr_guard = 1.min(NR - nr - nr_swapped),
                1 => facts.nr_merged = 1.min(nr),
                2 => facts.nr_pmd = if is_pmd { nr } else { 0 },
                _ => {}
            }
            facts
        });
    (0..FILE_BLOCKS, prop::collection::vec(block, 1..9)).prop_map(|(first, mut blocks)| {
        blocks.truncate(usize::try_from(FILE_BLOCKS - first).unwrap());
        (first, blocks)
    })
}

const fn address(nr: u64) -> u64 {
    (nr + 1) << 32
}

fn runs(nr: u64, blocks: &[BlockFacts]) -> Runs {
    let first = address(nr) / BLOCK;
    let runs = (first..).zip(blocks).map(|(first, &facts)| BlockRun { first, nr: 1, facts });
    Runs::of(9, runs)
}

fn sums_up(gain: &Gain) -> bool {
    gain.present_bytes + gain.new_bytes + gain.swapped_bytes == gain.bytes
        && gain.copied_bytes <= gain.present_bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_memory_is_promised_once_however_often_it_is_mapped(
        views in prop::collection::vec(view(), 1..6),
        is_now in any::<bool>(),
    ) {
        let when = if is_now { When::Now } else { When::NextStart };
        let vma = |nr: u64, first: u64| Vma {
            range: address(nr)..address(nr) + FILE_BLOCKS * BLOCK,
            pos: first * BLOCK,
            inode: 7,
            ..Vma::default()
        };
        let mapped: Vec<_> = (0..)
            .zip(&views)
            .map(|(nr, (first, blocks))| (BlockPlace::of(&vma(nr, *first)), runs(nr, blocks)))
            .collect();
        let mut promised = Promised::default();
        for (place, runs) in &mapped {
            promised.see(place.unwrap(), runs, PAGE);
        }
        let area = AreaFacts { backing: Backing::Shmem, ..AreaFacts::default() };
        let mut sum = 0;
        for (place, runs) in &mapped {
            let blocks = Blocks { area, runs, place: *place, page_bytes: PAGE };
            let (gain, kept) = blocks.gain(when, &promised);
            prop_assert!(sums_up(&gain), "{:?}", gain);
            prop_assert_eq!(gain.bytes, kept.len() as u64 * BLOCK);
            let nr: u64 = runs.iter().map(|run| run.nr).sum();
            prop_assert!(gain.bytes + gain.elsewhere_bytes <= nr * BLOCK);
            promised.keep(kept, when);
            sum += gain.bytes;
            // A second call finds nothing left.
            prop_assert_eq!(blocks.gain(when, &promised).0.bytes, 0);
        }
        let is_allowed = |facts: &BlockFacts| area.judge(facts, NR, when).is_ok();
        let is_gained = |at: u64| {
            let of = |(first, blocks): &(u64, Vec<BlockFacts>)| {
                let at = usize::try_from(at.checked_sub(*first)?).ok()?;
                blocks.get(at).copied()
            };
            views.iter().filter_map(of).any(|facts| is_allowed(&facts))
        };
        let most = (0..FILE_BLOCKS).filter(|&at| is_gained(at)).count() as u64 * BLOCK;
        prop_assert!(sum <= FILE_BLOCKS * BLOCK && sum >= most, "{} {}", sum, most);
    }

    #[test]
    fn pinned_and_large_memory_is_taken_from_the_gain_and_what_is_left_sums_up(
        blocks in view(),
        pinned in 0..20 * BLOCK,
        large in 0..20 * BLOCK,
        swapped in 0..4 * BLOCK,
    ) {
        let runs = runs(0, &blocks.1);
        let blocks = Blocks { area: AreaFacts::default(), runs: &runs, place: None, page_bytes: PAGE };
        let (gain, _) = blocks.gain(When::Now, &Promised::default());
        prop_assert!(sums_up(&gain));
        let left = gain.without_pinned(pinned, BLOCK);
        prop_assert!(sums_up(&left), "{:?}", left);
        prop_assert_eq!(left.bytes, gain.bytes.saturating_sub(pinned.next_multiple_of(BLOCK)));
        let left = gain.without(large);
        prop_assert!(sums_up(&left) && left.bytes == gain.bytes.saturating_sub(large), "{:?}", left);
        let read = gain.reading(swapped);
        prop_assert!(sums_up(&read) && read.swapped_bytes >= gain.swapped_bytes, "{:?}", read);
    }
}
