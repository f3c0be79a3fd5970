//! Tests the stack against one plain list per size, against the TLB, and on known answers.

use largefolio_mm::units::{Order, Pfn, Vpn};
use largefolio_testkit::lru::{NaiveHit, NaiveLru, NaiveLruEntry};
use proptest::prelude::*;

use super::super::{Access, LeafKind, Tlb, Translation, tests as tlb_tests};
use super::*;

const SMALL: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const LARGE: [usize; 6] = [7, 8, 9, 40, 70, 80];

fn translation(vpn: u64, order: u8, is_writable: bool) -> Translation {
    let order = Order::new(order);
    let first_vpn = Vpn(order.round_down(vpn));
    let leaf = LeafKind::Pte;
    Translation { first_vpn, order, pfn: Pfn(first_vpn.0), is_writable, leaf }
}

#[derive(Clone, Debug)]
enum Step {
    Refer { vpn: u64, access: Access, order: u8, is_writable: bool, is_walked: bool },
    Invalidate { first: u64, nr_pages: u64 },
}

fn steps(nr_pages: u64) -> impl Strategy<Value = Vec<Step>> {
    let access = prop_oneof![4 => Just(Access::Read), 1 => Just(Access::Write)];
    let order = prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2), 1 => Just(4)];
    let is_walked = prop::bool::weighted(0.1);
    let refer = (0..nr_pages, access, order, any::<bool>(), is_walked).prop_map(
        |(vpn, access, order, is_writable, is_walked)| {
            let is_writable = is_writable || access == Access::Write;
            Step::Refer { vpn, access, order, is_writable, is_walked }
        },
    );
    let range = (0..nr_pages, prop_oneof![4 => Just(1_u64), 1 => 0..nr_pages]);
    let invalidate = range.prop_map(|(first, nr_pages)| Step::Invalidate { first, nr_pages });
    proptest::collection::vec(prop_oneof![12 => refer, 1 => invalidate], 1..600)
}

/// Lists, the largest last. The largest one determines the ranges of entries.
struct Lists(Vec<NaiveLru>);

impl Lists {
    fn new(sizes: &[usize]) -> Self {
        Self(sizes.iter().map(|&size| NaiveLru::new(size)).collect())
    }

    fn refer(&mut self, vpn: u64, is_write: bool, walked: NaiveLruEntry, is_walked: bool) {
        let hit: Vec<NaiveHit> = self.0.iter_mut().map(|list| list.refer(vpn, is_write)).collect();
        let filled = match hit[hit.len() - 1] {
            NaiveHit::Hit(entry) if !is_walked => {
                for (list, hit) in self.0.iter_mut().zip(hit) {
                    match hit {
                        NaiveHit::Hit(own) => assert_eq!(own, entry, "lists include each other"),
                        _ => list.fill(entry),
                    }
                }
                return;
            }
            _ => walked,
        };
        self.0.iter_mut().for_each(|list| list.fill(filled));
    }
}

fn compare(sizes: &[usize], steps: &[Step]) -> Result<(), TestCaseError> {
    let mut stack = LruStack::new(PageSize::K4, sizes[sizes.len() - 1]);
    let mut lists = Lists::new(sizes);
    let mut distances = Distances::default();
    for step in steps {
        match *step {
            Step::Refer { vpn, access, order, is_writable, is_walked } => {
                let walked = translation(vpn, order, is_writable);
                let then = if is_walked { Then::Fill } else { Then::Use };
                let hit = stack.lookup(Vpn(vpn), access, then);
                distances.count(hit);
                if hit.needs_walk() || is_walked {
                    stack.fill(&walked);
                }
                let first = walked.first_vpn.0;
                let entry = NaiveLruEntry { first, order, is_writable };
                lists.refer(vpn, access == Access::Write, entry, is_walked);
            }
            Step::Invalidate { first, nr_pages } => {
                stack.invalidate(Vpn(first), nr_pages);
                lists.0.iter_mut().for_each(|list| list.invalidate(first, nr_pages));
            }
        }
        prop_assert_eq!(stack.validate(), Ok(()), "after {:?}", step);
        let misses: Vec<u64> = distances.misses(sizes).iter().map(|p| p.misses).collect();
        let expected: Vec<u64> = lists.0.iter().map(|list| list.nr_misses).collect();
        prop_assert_eq!(misses, expected, "after {:?}", step);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(300)))]

    #[test]
    fn one_stack_counts_what_a_list_of_each_size_does(steps in steps(24)) {
        compare(&SMALL, &steps)?;
    }

    #[test]
    fn so_it_does_where_most_references_miss(steps in steps(400)) {
        compare(&SMALL, &steps)?;
    }

    #[test]
    fn and_where_it_grows(steps in steps(100)) {
        compare(&LARGE, &steps)?;
    }
}

fn cyclic(nr_pages: u64, nr_rounds: u64, order: u8) -> Vec<Point> {
    let mut stack = LruStack::new(PageSize::K4, NR_ENTRIES_MAX);
    let mut distances = Distances::default();
    for vpn in (0..nr_rounds).flat_map(|_| 0..nr_pages) {
        let hit = stack.lookup(Vpn(vpn), Access::Read, Then::Use);
        distances.count(hit);
        if hit.needs_walk() {
            stack.fill(&translation(vpn, order, true));
        }
    }
    stack.validate().unwrap();
    let both = [distances.clone(), distances];
    Curve::new(&both, OwnSizes::default()).data
}

#[test]
fn a_walk_in_circles_misses_all_below_its_length_and_only_cold_from_there() {
    for (nr_pages, order) in [(2, 0), (63, 0), (64, 0), (1000, 0), (8192, 0), (4096, 4)] {
        let nr_blocks = nr_pages >> order;
        for Point { entries, misses } in cyclic(nr_pages, 5, order) {
            let expected = if (entries as u64) < nr_blocks { 5 * nr_blocks } else { nr_blocks };
            assert_eq!(misses, expected, "{nr_pages} pages, {entries} entries");
        }
    }
    let beyond = cyclic(8193, 3, 0);
    assert!(beyond.iter().all(|point| point.misses == 3 * 8193), "the largest buffer misses too");
}

#[test]
fn free_places_are_used_before_an_entry_goes() {
    // Buffers of two: c replaces b, a is still there.
    let mut stack = LruStack::new(PageSize::K4, 8);
    let mut refer = |vpn: u64| {
        let hit = stack.lookup(Vpn(vpn), Access::Read, Then::Use);
        if hit.needs_walk() {
            stack.fill(&translation(vpn, 0, true));
        }
        if vpn == 2 {
            stack.invalidate(Vpn(2), 1);
        }
        hit
    };
    let _ = (refer(1), refer(2), refer(3));
    assert_eq!(refer(1), StackHit::Entry { depth: 2 });
}

#[test]
fn the_grid_holds_every_small_size_and_powers_of_two() {
    let sizes: Vec<usize> = grid().collect();
    assert_eq!(sizes[..34], (1..=32).chain([34, 36]).collect::<Vec<_>>());
    assert!((0..=13).all(|shift| sizes.contains(&(1 << shift))), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&NR_ENTRIES_MAX));
    assert!(sizes.len() < 200, "{} sizes", sizes.len());
}

#[test]
fn a_fully_associative_level_1_alone_is_a_point_of_the_curve() {
    let nr_entries = 24;
    let config = tlb_tests::config(vec![tlb_tests::structure(nr_entries, 0, &["any"])], vec![]);
    let mut tlb = Tlb::new(&config, PageSize::K4);
    let mut stack = LruStack::new(PageSize::K4, NR_ENTRIES_MAX);
    let mut distances = Distances::default();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let vpn = (state >> 33) % 400;
        if state >> 55 == 0 {
            tlb.invalidate(Vpn(vpn), 40);
            stack.invalidate(Vpn(vpn), 40);
        }
        let hit = tlb.lookup(Side::Data, Vpn(vpn), Access::Read);
        let then = if hit.needs_walk() { Then::Fill } else { Then::Use };
        let measured = stack.lookup(Vpn(vpn), Access::Read, then);
        distances.count(measured);
        // Pages from 256 on are always mapped by blocks, so the range of an entry never changes.
        let walked = translation(vpn, if vpn >= 256 { 4 } else { 0 }, true);
        if hit.needs_walk() {
            tlb.fill(Side::Data, Vpn(vpn), &walked);
        }
        if measured.needs_walk() || hit.needs_walk() {
            stack.fill(&walked);
        }
    }
    let misses = distances.misses(&[nr_entries as usize])[0].misses;
    assert_eq!(misses, tlb.counters().data.l1_misses);
}

#[test]
fn own_sizes_are_those_of_the_machine_file() {
    use crate::machine::Machine;
    let own = |name: &str, orders| {
        OwnSizes::new(&Machine::named(name).unwrap().tlb, PageSize::K4, orders)
    };
    let altra = own("altra", 1);
    assert_eq!((altra.l1_instruction, altra.l1_data), (Some(48), Some(48)));
    assert_eq!((altra.l2_instruction, altra.l2_data), (Some(1280), Some(1280)));
    assert_eq!(own("altra", 1 | 1 << 4 | 1 << 9), altra, "one structure holds all sizes");
    assert_eq!(own("cascadelake", 1).l1_data, Some(64));
    assert_eq!(own("cascadelake", 1 | 1 << 9).l1_data, Some(64 + 32), "PMD entries have their own");
    assert_eq!(own("cascadelake", 0), OwnSizes::default(), "nothing was looked up");
    let points =
        Curve::new(&<[Distances; 2]>::default(), OwnSizes { l2_data: Some(1281), ..altra });
    assert!(points.data.iter().any(|point| point.entries == 1281));
}
