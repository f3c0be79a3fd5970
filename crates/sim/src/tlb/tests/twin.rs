//! Compares the TLB and its page-walk caches with naive twins after every lookup and walk, on
//! random configurations and traces.

use largefolio_testkit::tlb::{NaiveEntry, NaiveLevel, NaiveLookup, NaiveStructure, NaiveTlb};
use largefolio_testkit::walk::{NaiveWalkCache, NaiveWalker};
use proptest::prelude::*;

use super::*;
use crate::machine::Machine;

/// Sizes of random structures: orders 0, 1, 2, 4 and 9 of 4 KiB pages.
const SIZES: [&str; 5] = ["4K", "8K", "16K", "64K", "2M"];

#[derive(Clone, Debug)]
enum Step {
    /// A run of references. If it must walk, it finds a leaf of this order.
    Refer {
        side: Side,
        vpn: u64,
        access: Access,
        count: u64,
        order: u8,
        is_writable: bool,
    },
    Invalidate {
        first: u64,
        nr_pages: u64,
    },
    Flush,
}

fn steps(orders: &'static [u8]) -> impl Strategy<Value = Vec<Step>> {
    let side = prop_oneof![Just(Side::Instruction), Just(Side::Data)];
    let vpn =
        prop_oneof![4 => 0_u64..64, 4 => 0_u64..1200, 1 => 0_u64..40_000, 1 => 0_u64..1 << 30];
    let access = prop_oneof![3 => Just(Access::Read), 1 => Just(Access::Write)];
    let order = prop_oneof![2 => Just(0_u8), 2 => proptest::sample::select(orders)];
    let refer = (side, vpn, access, 1_u64..5, order, any::<bool>()).prop_map(
        |(side, vpn, access, count, order, is_writable)| {
            let is_writable = is_writable || access == Access::Write;
            Step::Refer { side, vpn, access, count, order, is_writable }
        },
    );
    let range = (0_u64..1300, prop_oneof![4 => 0_u64..3, 2 => 0_u64..40, 1 => 0_u64..2000]);
    let invalidate = range.prop_map(|(first, nr_pages)| Step::Invalidate { first, nr_pages });
    let step = prop_oneof![60 => refer, 5 => invalidate, 1 => Just(Step::Flush)];
    proptest::collection::vec(step, 1..500)
}

fn any_structure() -> impl Strategy<Value = StructureConfig> {
    let sizes = prop_oneof![
        1 => Just(vec!["any"]),
        3 => proptest::sample::subsequence(SIZES.to_vec(), 1..=SIZES.len()),
    ];
    (1_u32..8, 1_u32..6, any::<bool>(), sizes).prop_map(|(sets, ways, is_full, sizes)| {
        structure(sets * ways, if is_full { 0 } else { ways }, &sizes)
    })
}

/// A level 1 always holds base pages; a level 2 can lack any size.
fn any_l1() -> impl Strategy<Value = Vec<StructureConfig>> {
    proptest::collection::vec(any_structure(), 1..4).prop_map(|mut level| {
        if !level.iter().any(|structure| structure.sizes.orders(PageSize::K4) & 1 == 1) {
            level[0] = structure(3, 0, &["4K"]);
        }
        level
    })
}

fn any_config() -> impl Strategy<Value = TlbConfig> {
    let l2 = || proptest::collection::vec(any_structure(), 0..3);
    (any_l1(), any_l1(), l2(), l2(), any::<bool>(), any_walk_caches()).prop_map(
        |(l1_instruction, l1_data, one, other, is_shared, walk_cache)| {
            let config =
                TlbConfig { l1_instruction, l1_data, walk_cache, ..config(vec![], vec![]) };
            if is_shared {
                TlbConfig { l2: one, ..config }
            } else {
                TlbConfig { l2_instruction: one, l2_data: other, ..config }
            }
        },
    )
}

fn any_walk_caches() -> impl Strategy<Value = Vec<WalkCacheConfig>> {
    let levels = vec![TlbLevel::Pgd, TlbLevel::Pmd, TlbLevel::Pud];
    let shapes = proptest::collection::vec((1_u32..4, 1_u32..4), 3);
    (proptest::sample::subsequence(levels, 0..=3), shapes).prop_map(|(levels, shapes)| {
        let cache = |(level, (sets, ways)): (TlbLevel, (u32, u32))| WalkCacheConfig {
            name: "W".to_owned(),
            level,
            entries: sets * ways,
            ways: Ways::Number(ways),
            source: "test".to_owned(),
            assumed: false,
        };
        levels.into_iter().zip(shapes).map(cache).collect()
    })
}

fn naive_walker(configs: &[WalkCacheConfig], page: PageSize) -> NaiveWalker {
    // Eight bytes per entry: 512, 2,048 and 8,192 entries in a table.
    let (table_bits, nr_levels) = match page {
        PageSize::K4 => (9, 4),
        PageSize::K16 => (11, 4),
        PageSize::K64 => (13, 3),
    };
    let cache = |config: &WalkCacheConfig| {
        let above = match config.level {
            TlbLevel::Pmd => 1,
            TlbLevel::Pud => 2,
            TlbLevel::Pgd => 3,
        };
        let ways = config.nr_ways();
        let nr_sets = (config.entries / ways) as usize;
        NaiveWalkCache::new(above * table_bits, nr_sets, ways as usize)
    };
    NaiveWalker { table_bits, nr_levels, caches: configs.iter().map(cache).collect() }
}

fn naive_level(structures: &[StructureConfig], page: PageSize) -> NaiveLevel {
    let naive = |config: &StructureConfig| {
        let ways = config.nr_ways();
        let orders = match &config.sizes {
            EntrySizes::Any => (0..=20).collect(),
            EntrySizes::Listed(sizes) => sizes
                .iter()
                .filter(|size| size.bytes() >= page.bytes())
                .map(|size| u8::try_from((size.bytes() / page.bytes()).ilog2()).unwrap())
                .collect(),
        };
        NaiveStructure::new((config.entries / ways) as usize, ways as usize, orders)
    };
    structures.iter().map(naive).collect()
}

fn naive(config: &TlbConfig, page: PageSize) -> NaiveTlb {
    let mut l2 = Vec::new();
    let mut add = |structures: &[StructureConfig]| {
        (!structures.is_empty()).then(|| {
            l2.push(naive_level(structures, page));
            l2.len() - 1
        })
    };
    let shared = add(&config.l2);
    let l2_of = [shared.or(add(&config.l2_instruction)), shared.or(add(&config.l2_data))];
    let l1 = [naive_level(&config.l1_instruction, page), naive_level(&config.l1_data, page)];
    NaiveTlb { l1, l2, l2_of }
}

fn compare(config: &TlbConfig, page: PageSize, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut tlb = Tlb::new(config, page);
    let mut twin = naive(config, page);
    let mut walker = naive_walker(&config.walk_cache, page);
    let mut expected = Counters::default();
    for (nr, step) in steps.iter().enumerate() {
        match *step {
            Step::Refer { side, vpn, access, count, order, is_writable } => {
                let lookup = tlb.lookup_run(side, Vpn(vpn), access, count);
                let twin_lookup = twin.lookup(side as usize, vpn, access == Access::Write);
                prop_assert_eq!(lookup, translated(twin_lookup), "step {}: {:?}", nr, step);
                count_lookup(expected.side_mut(side), twin_lookup, count);
                if lookup.needs_walk() {
                    // Uses a new frame each time to expose stale entries.
                    let order = Order::new(order.min(page.pmd_order().get()));
                    let first_vpn = Vpn(order.round_down(vpn));
                    let pfn = Pfn(((nr as u64) << 20) + first_vpn.0);
                    let is_pmd = order == page.pmd_order();
                    let leaf = if is_pmd { LeafKind::Pmd } else { LeafKind::Pte };
                    let translation = Translation { first_vpn, order, pfn, is_writable, leaf };
                    tlb.fill(side, Vpn(vpn), &translation);
                    let (first, order, pfn) = (first_vpn.0, order.get(), pfn.0);
                    let entry = NaiveEntry { first, order, pfn, is_writable };
                    twin.fill(side as usize, vpn, entry, is_pmd);
                    expected.count_walk(leaf);
                    let [pte, pmd, pud, pgd] = walker.walk(vpn, is_pmd);
                    expected.count_steps(Steps { pgd, pud, pmd, pte });
                }
                for side in [Side::Instruction, Side::Data] {
                    for vpn in [vpn, vpn ^ 1, vpn ^ 16] {
                        let twin_entry = twin.peek(side as usize, vpn);
                        prop_assert_eq!(tlb.peek(side, Vpn(vpn)).map(as_naive), twin_entry);
                    }
                }
            }
            Step::Invalidate { first, nr_pages } => {
                tlb.invalidate(Vpn(first), nr_pages);
                twin.invalidate(first, nr_pages);
                walker.invalidate(first, nr_pages);
            }
            Step::Flush => {
                tlb.flush();
                twin.flush();
                walker.flush();
            }
        }
        prop_assert_eq!(tlb.validate(), Ok(()), "after step {}: {:?}", nr, step);
        let (now, twin) = (tlb.counters().walk_references(), expected.walk_references());
        prop_assert_eq!(now, twin, "walks after step {}: {:?}", nr, step);
    }
    prop_assert_eq!(tlb.counters(), &expected);
    Ok(())
}

fn translated(lookup: NaiveLookup) -> Lookup {
    match lookup {
        NaiveLookup::L1 => Lookup::L1,
        NaiveLookup::L2 => Lookup::L2,
        NaiveLookup::Miss => Lookup::Miss,
        NaiveLookup::Permission => Lookup::Permission,
    }
}

fn as_naive(entry: Entry) -> NaiveEntry {
    NaiveEntry {
        first: entry.first_vpn.0,
        order: entry.order.get(),
        pfn: entry.pfn.0,
        is_writable: entry.is_writable,
    }
}

fn count_lookup(counters: &mut SideCounters, lookup: NaiveLookup, count: u64) {
    counters.references += count;
    match lookup {
        NaiveLookup::L1 => {}
        NaiveLookup::L2 => counters.l1_misses += 1,
        NaiveLookup::Miss => {
            counters.l1_misses += 1;
            counters.l2_misses += 1;
        }
        NaiveLookup::Permission => counters.permission_misses += 1,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(400)))]

    #[test]
    fn random_structures_agree_with_the_naive_model(
        config in any_config(),
        steps in steps(&[0, 1, 2, 4, 9]),
    ) {
        compare(&config, PageSize::K4, &steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_built_in_machines_agree_with_the_naive_model_at_every_page_size(
        name in proptest::sample::select(crate::machine::names().collect::<Vec<_>>()),
        steps in steps(&[0, 2, 4, 5, 7, 9, 11, 13]),
    ) {
        let machine = Machine::named(name).unwrap();
        for &page in &machine.page_sizes {
            compare(&machine.tlb, page, &steps)?;
        }
    }
}
