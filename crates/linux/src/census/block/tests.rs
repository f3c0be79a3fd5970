//! Judges random blocks, and builds blocks from random pages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NR: u32 = 512;

/// Generates a block. Its counts add up to at most its pages (B2).
fn block() -> impl Strategy<Value = BlockFacts> {
    let few = || prop_oneof![3 => Just(0_u32), 1 => 1..4_u32, 1 => 0..=NR];
    (prop::array::uniform9(few()), few(), few()).prop_map(|(few, pinned, repeated)| {
        let [present, zero, swapped, guard, shared, pmd, merged, copied, protected] = few;
        let mut left = NR;
        let mut take = |nr: u32| {
            let nr = nr.min(left);
            left -= nr;
            nr
        };
        let nr_present = take(present);
        let (nr_zero, nr_swapped, nr_guard) = (take(zero), take(swapped), take(guard));
        let of_present = |nr: u32| nr.min(nr_present);
        BlockFacts {
            nr_present,
            nr_zero,
            nr_swapped,
            nr_guard,
            nr_shared: of_present(shared),
            nr_pmd: if pmd == NR { nr_present } else { 0 },
            nr_merged: of_present(merged),
            nr_repeated: repeated.min(of_present(merged)),
            nr_copied: of_present(copied),
            nr_protected: protected,
            nr_pinned: of_present(pinned),
        }
    })
}

fn area() -> impl Strategy<Value = AreaFacts> {
    let backing = prop_oneof![Just(Backing::Anon), Just(Backing::Shmem), Just(Backing::File)];
    let rarely = || prop::bool::weighted(0.1);
    (backing, prop::array::uniform4(rarely()), prop::array::uniform5(rarely())).prop_map(
        |(
            backing,
            [is_disabled, is_no_huge, is_hugetlb, is_device],
            [missing, minor, tracked, is_forked, is_merging],
        )| {
            AreaFacts {
                backing,
                is_disabled,
                is_no_huge,
                is_hugetlb,
                is_device,
                awaits_missing: missing,
                awaits_minor: minor,
                is_write_tracked: tracked,
                is_forked,
                is_merging,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_forbidden_block_is_allowed_and_an_allowed_one_costs_what_is_missing(
        area in area(),
        block in block(),
        is_now in any::<bool>(),
    ) {
        let when = if is_now { When::Now } else { When::NextStart };
        let Ok(cost) = area.judge(&block, NR, when) else { return Ok(()) };
        prop_assert!(!area.is_hugetlb && !area.is_device && !area.is_disabled && !area.is_no_huge);
        prop_assert!(block.nr_guard == 0 && block.nr_protected == 0);
        prop_assert!(block.nr_merged == 0 || is_now && !area.is_merging && block.nr_repeated == 0);
        prop_assert!(block.nr_copied == 0 && block.nr_pmd < NR && !((is_now || area.is_forked) && block.nr_pinned > 0));
        prop_assert!(block.nr_present > 0, "swapped pages may never be touched again");
        prop_assert_eq!(cost.nr_new, u64::from(NR - block.nr_present - block.nr_swapped));
        let is_armed = area.awaits_missing || area.awaits_minor || area.is_write_tracked;
        prop_assert!(!is_armed || is_now, "after the next start pages come one by one");
        if area.backing == Backing::Anon {
            prop_assert!(!is_armed || cost.nr_new == 0, "nothing fills the holes of the program's own");
        }
        prop_assert_eq!(cost.nr_swapped, if is_now { block.nr_swapped.into() } else { 0 });
        prop_assert!(cost.nr_new + cost.nr_swapped + cost.nr_copied <= u64::from(NR));
    }

    #[test]
    fn blocks_are_those_of_the_pages_one_by_one(
        start in 0..700_u64,
        len in 0..3000_u64,
        file in prop::option::of(0..700_u64),
        stretches in prop::collection::vec((0..600_u64, 1..1200_u64, 0..3_usize), 0..12),
    ) {
        const ORDER: u32 = 8;
        const PAGE: u64 = 4096;
        let pages = start..start + len;
        let vma = Vma {
            range: pages.start * PAGE..pages.end * PAGE,
            pos: file.unwrap_or_default() * PAGE,
            inode: file.map_or(0, |_| 7),
            permissions: if file.is_some() { *b"rw-s" } else { *b"rw-p" },
            ..Vma::default()
        };
        let mut gathered = [0; 4].map(|_| Gathering::new(&vma, PAGE, ORDER));
        // Shared memory uses the blocks of its file.
        let place = |page: u64| file.map_or(page, |pos| page - start + pos);
        let whole = place(pages.start)..place(pages.end);
        let mut naive: BTreeMap<u64, BlockFacts> = BTreeMap::new();
        let mut at = 0;
        for (gap, nr, which) in stretches {
            at += gap;
            let is = |facts: &mut BlockFacts, nr| match which {
                0 => facts.nr_present += nr,
                1 => facts.nr_swapped += nr,
                _ => facts.nr_pinned += nr,
            };
            gathered[which].add(at..at + nr, |nr| {
                let mut facts = BlockFacts::default();
                is(&mut facts, nr);
                facts
            });
            for page in at..at + nr {
                if !pages.contains(&page) {
                    continue;
                }
                let block = place(page) >> ORDER;
                if block << ORDER >= whole.start && (block + 1) << ORDER <= whole.end {
                    is(naive.entry(block).or_default(), 1);
                }
            }
            at += nr;
        }
        let runs = together(gathered);
        let each = |run: &BlockRun| {
            let facts = run.facts;
            let first = vma.first_block(PAGE << ORDER) / PAGE;
            let block = move |block: u64| place((block << ORDER) + first) >> ORDER;
            (run.first..run.first + run.nr).map(move |one| (block(one), facts))
        };
        let ranges: Vec<_> = runs.iter().flat_map(each).collect();
        prop_assert_eq!(ranges, naive.into_iter().collect::<Vec<_>>());
        let list: Vec<_> = runs.iter().collect();
        let apart = |two: &[&BlockRun]| {
            two[0].end() < two[1].first || two[0].end() == two[1].first && two[0].facts != two[1].facts
        };
        prop_assert!(list.windows(2).all(apart), "B1: {:?}", list);
    }
}

#[test]
fn userfaultfd_forbids_what_it_waits_for_and_no_more() {
    let full = BlockFacts { nr_present: NR, ..BlockFacts::default() };
    let hole = BlockFacts { nr_present: NR - 1, ..BlockFacts::default() };
    let swapped = BlockFacts { nr_present: NR - 1, nr_swapped: 1, ..BlockFacts::default() };
    // The answers of Linux 6.18, block by block.
    for (backing, flag, allowed) in [
        (Backing::Anon, "um", [true, false, true]),
        (Backing::Anon, "uw", [true, false, true]),
        (Backing::Shmem, "um", [true, false, true]),
        (Backing::Shmem, "ui", [true, true, true]),
        (Backing::Shmem, "uw", [false, false, false]),
    ] {
        let area = AreaFacts {
            backing,
            awaits_missing: flag == "um",
            awaits_minor: flag == "ui",
            is_write_tracked: flag == "uw",
            ..AreaFacts::default()
        };
        let verdicts = [full, hole, swapped].map(|block| area.judge(&block, NR, When::Now).is_ok());
        assert_eq!(verdicts, allowed, "{backing:?} {flag}");
    }
}
