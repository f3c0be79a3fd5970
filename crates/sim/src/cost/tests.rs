use std::collections::BTreeMap;

use super::*;
use crate::machine::{Machine, Quantity, UnitBytes, UnitRate};
use crate::tlb::{KindCounters, Lines};

fn quantity(value: f64, unit: Unit) -> Quantity {
    Quantity { value, unit, source: "test".to_owned(), assumed: false, range: None }
}

fn rate(size: u64, gb_per_s: f64) -> UnitRate {
    let source = "test".to_owned();
    UnitRate { size: UnitBytes(size), gb_per_s, source, assumed: true, range: None }
}

/// Costs with distinct values, so the sum shows each of them.
fn costs() -> Costs {
    Costs {
        clock: Some(quantity(2.0, Unit::GHz)),
        reference: Some(quantity(1.0, Unit::Cycles)),
        l2_hit: Some(quantity(7.0, Unit::Cycles)),
        walk: Some(quantity(10.0, Unit::Ns)),
        walk_l2: Some(quantity(4.0, Unit::Ns)),
        walk_llc: Some(quantity(20.0, Unit::Ns)),
        walk_memory: Some(quantity(100.0, Unit::Ns)),
        walk_beside: Some(quantity(0.25, Unit::Share)),
        walk_alone: Some(quantity(0.5, Unit::Share)),
        walk_fetch: Some(quantity(2.0, Unit::Share)),
        fault: Some(quantity(0.9, Unit::Us)),
        map_entry: Some(quantity(25.0, Unit::Ns)),
        fork_entry: Some(quantity(64.0, Unit::Ns)),
        unmap_batch: Some(quantity(154.0, Unit::Ns)),
        unmap_pte: Some(quantity(45.0, Unit::Ns)),
        clear: vec![rate(4 << 10, 4.0), rate(2 << 20, 8.0)],
        copy: vec![rate(4 << 10, 2.0)],
        storage_latency: Some(quantity(80.0, Unit::Us)),
        storage_rate: Some(quantity(1.0, Unit::GbPerS)),
        ..Costs::default()
    }
}

fn events() -> Events {
    Events {
        faults: 10,
        faults_around: 4,
        pressure: PressureEvents::default(),
        entries_mapped: 100,
        entries_forked: 3,
        batches_unmapped: 2,
        ptes_unmapped: 32,
        pmds_unmapped: 0,
        large_unmapped: 1,
        folios_allocated: 9,
        pmds_allocated: 0,
        batches_mapped: 7,
        pmds_forked: 1,
        batches_forked: 2,
        large_forked: 1,
        folios_freed: 2,
        pages_freed: 17,
        mapcounts_mapped: updates([101, 5, 2]),
        mapcounts_forked: updates([2, 1, 3]),
        mapcounts_unmapped: updates([32, 4, 1]),
        cleared: BTreeMap::from([(4 << 10, 4_000), (1 << 20, 8_000), (2 << 20, 16_000)]),
        copied: BTreeMap::from([(4 << 10, 6_000)]),
        read: ReadEvents {
            sync_requests: 4,
            sync_bytes: 1_000_000,
            async_requests: 2,
            async_bytes: 500_000,
            late_waits: Some(1),
            queue_ns: Some(11),
            late_ns: Some(22),
        },
        swap: SwapEvents::default(),
        l2_hits: [1_001, 0],
        walks: WalkCounters {
            chained: kind(5, [5, 3, 2], [1, 0, 0]),
            overlapped: kind(40, [40, 30, 10], [0, 20, 0]),
            alone: kind(6, [6, 4, 0], [0, 0, 3]),
            fetch: kind(7, [8, 0, 1], [2, 2, 2]),
        },
        has_links: true,
    }
}

fn kind(walks: u64, own: [u64; 3], host: [u64; 3]) -> KindCounters {
    let lines = |[l2, llc, memory]: [u64; 3]| Lines { l2, llc, memory };
    KindCounters { walks, pmd_walks: walks / 2, lines: lines(own), host_lines: lines(host) }
}

fn updates([pages, folios, owner_words]: [u64; 3]) -> MapcountUpdates {
    MapcountUpdates { pages, folios, owner_words }
}

#[test]
fn memory_pressure_has_a_time_if_the_machine_file_has_its_costs() {
    let pressure = PressureEvents {
        folios_evicted: 3,
        pages_reclaimed: 50,
        pages_kept: 400,
        pages_scanned: 7_000,
        pages_moved: 11,
    };
    let costs = Costs {
        reclaim_folio: Some(quantity(600.0, Unit::Ns)),
        reclaim_page: Some(quantity(100.0, Unit::Ns)),
        reclaim_scan: Some(quantity(200.0, Unit::Ns)),
        compact_scan: Some(quantity(2.0, Unit::Ns)),
        compact_move: Some(quantity(3.0, Unit::Us)),
        ..costs()
    };
    let ns = |pressure, costs: &Costs| {
        let estimate = Estimate::new(&Events { pressure, ..events() }, costs, Walks::Native);
        estimate.causes[&Cause::Fault].ns.unwrap()
    };
    let without = ns(PressureEvents::default(), &costs);
    assert_eq!(ns(pressure, &costs) - without, 1_800 + 5_000 + 80_000 + 14_000 + 33_000);
    assert_eq!(ns(pressure, &self::costs()), without);
}

#[test]
fn swap_space_costs_by_the_page_in_memory_and_by_the_read_on_a_disk() {
    let swap = |is_on_disk| SwapEvents {
        is_on_disk,
        pages_in: 8,
        waits: 2,
        pages_out: 5,
        page_bytes: 4096,
        ..SwapEvents::default()
    };
    let of = |swap, costs: &Costs| {
        let estimate = Estimate::new(&Events { swap, ..events() }, costs, Walks::Native);
        let time = &estimate.causes[&Cause::Swap];
        (time.ns, time.terms.len(), estimate.not_known)
    };
    let priced = Costs {
        swap_in: Some(quantity(2.0, Unit::Us)),
        swap_out: Some(quantity(3.0, Unit::Us)),
        ..costs()
    };
    assert_eq!(of(swap(false), &priced).0, Some(8 * 2_000 + 5 * 3_000));
    // Two latencies, and 32 KiB at 1 GB/s. The program does not wait for writes.
    assert_eq!(of(swap(true), &priced).0, Some(2 * 80_000 + 8 * 4096));
    let pooled = SwapEvents { pooled_in: 3, pooled_out: 4, ..swap(true) };
    assert_eq!(of(pooled, &priced).0, Some(2 * 80_000 + 8 * 4096 + 3 * 2_000 + 4 * 3_000));
    let (ns, _, not_known) = of(swap(false), &costs());
    assert_eq!(ns, None);
    assert!(not_known.contains("costs.swap_in") && not_known.contains("costs.swap_out"));
    assert_eq!(of(SwapEvents::default(), &costs()).1, 0);
}

#[test]
fn map_counts_cost_what_the_machine_file_says_and_nothing_apart_without_it() {
    let apart = Costs {
        page_mapcount: Some(quantity(7.0, Unit::Ns)),
        owner_word: Some(quantity(11.0, Unit::Ns)),
        ..costs()
    };
    let (whole, estimate) = (costs(), Estimate::new(&events(), &apart, Walks::Native));
    let whole = Estimate::new(&events(), &whole, Walks::Native);
    for (cause, more) in [
        (Cause::Map, 106 * 7 + 2 * 11),
        (Cause::Fork, 3 * 7 + 3 * 11),
        (Cause::Unmap, 36 * 7 + 11),
        (Cause::Fault, 0),
    ] {
        let ns = |estimate: &Estimate| estimate.causes[&cause].ns.unwrap();
        assert_eq!(ns(&estimate) - ns(&whole), more, "{cause:?}");
    }
    assert!(estimate.not_known.is_empty());
}

#[test]
fn walks_that_end_at_a_pmd_entry_have_a_cost_of_their_own_where_the_file_gives_one() {
    let walk_ns = |walk_pmd| {
        let costs = Costs { walk_pmd, walk: Some(quantity(20.0, Unit::Ns)), ..costs() };
        Estimate::new(&events(), &costs, Walks::Native).causes[&Cause::Walk].ns.unwrap()
    };
    let (alike, free) = (walk_ns(None), walk_ns(Some(quantity(4.0, Unit::Ns))));
    assert_eq!(walk_ns(Some(quantity(20.0, Unit::Ns))), alike);
    // Chained: 2 of 5 walks end at a PMD entry and save 16 ns each; others by their shares.
    assert!(alike - free >= 2 * 16, "{alike} {free}");
}

fn times(estimate: &Estimate) -> Vec<(&'static str, Option<u64>)> {
    estimate.causes.iter().map(|(cause, time)| (cause.name(), time.ns)).collect()
}

#[test]
fn each_cause_is_the_product_worked_out_by_hand() {
    let estimate = Estimate::new(&events(), &costs(), Walks::Native);
    let expected = [
        ("fault", 10 * 900),
        ("map", 100 * 25),
        ("fork", 3 * 64),
        ("unmap", 2 * 154 + 32 * 45),
        // 12,000 bytes below 2M at 4 GB/s, 16,000 at 8 GB/s.
        ("clear", 3_000 + 2_000),
        ("copy", 3_000),
        ("read", 4 * 80_000 + 1_000_000 + 11 + 22),
        ("swap", 0),
        ("tlb", 3_504),
        (
            "walk",
            (50 + 20 + 60 + 200)
                + (400 + 160 + 600 + 1_000) / 4
                + (60 + 24 + 80) / 2
                + (70 + 32 + 100) * 2,
        ),
    ];
    assert_eq!(times(&estimate), expected.map(|(cause, ns)| (cause, Some(ns))));
    let sum: u64 = expected.iter().map(|(_, ns)| ns).sum();
    assert_eq!((estimate.total_ns, estimate.known_ns), (Some(sum), sum));
    assert!(estimate.not_known.is_empty());
    let assumed: Vec<&str> = estimate.assumed().map(|(name, _)| name).collect();
    assert_eq!(assumed, ["costs.clear of 2M", "costs.clear of 4K", "costs.copy of 4K"]);
}

#[test]
fn a_rate_says_nothing_of_pieces_outside_the_sizes_it_is_given_for() {
    let mut events = events();
    events.copied = BTreeMap::from([(4 << 10, 6_000), (64 << 10, 1 << 16)]);
    let estimate = Estimate::new(&events, &costs(), Walks::Native);
    assert_eq!(estimate.causes[&Cause::Copy].ns, None);
    assert_eq!(estimate.total_ns, None);
    assert_eq!(estimate.not_known, ["costs.copy of 64K".to_owned()].into());
    // The known part stays in the lower bound.
    let terms = &estimate.causes[&Cause::Copy].terms;
    assert_eq!(terms.iter().map(|term| term.ns).collect::<Vec<_>>(), [Some(3_000), None]);
    events.copied = BTreeMap::from([(2 << 10, 6_000)]);
    let estimate = Estimate::new(&events, &costs(), Walks::Native);
    assert_eq!(estimate.total_ns, None, "nor of smaller ones");
}

#[test]
fn a_virtual_machine_pays_for_nested_walks() {
    let estimate = Estimate::new(&events(), &costs(), Walks::Nested);
    let native = Estimate::new(&events(), &costs(), Walks::Native);
    let host_ns = 4 + 20 * 20 / 4 + 3 * 100 / 2 + (2 * 4 + 2 * 20 + 2 * 100) * 2;
    let walks = |estimate: &Estimate| estimate.causes[&Cause::Walk].ns.unwrap();
    assert_eq!(
        estimate.total_ns.unwrap() - native.total_ns.unwrap(),
        walks(&estimate) - walks(&native)
    );
    assert_eq!(walks(&estimate) - walks(&native), host_ns);
}

type Forget = fn(&mut Costs);

#[test]
fn what_is_not_known_is_named_and_never_nothing() {
    let whole = Estimate::new(&events(), &costs(), Walks::Native);
    let cases: [(&str, &[Cause], Forget); 17] = [
        ("costs.fault", &[Cause::Fault], |costs| costs.fault = None),
        ("costs.map_entry", &[Cause::Map], |costs| costs.map_entry = None),
        ("costs.fork_entry", &[Cause::Fork], |costs| costs.fork_entry = None),
        ("costs.unmap_batch", &[Cause::Unmap], |costs| costs.unmap_batch = None),
        ("costs.clear", &[Cause::Clear], |costs| costs.clear.clear()),
        ("costs.copy", &[Cause::Copy], |costs| costs.copy.clear()),
        ("costs.storage_rate", &[Cause::Read], |costs| costs.storage_rate = None),
        ("costs.storage_latency", &[Cause::Read], |costs| costs.storage_latency = None),
        ("costs.l2_hit", &[Cause::Tlb], |costs| costs.l2_hit = None),
        ("costs.walk", &[Cause::Walk], |costs| costs.walk = None),
        ("costs.walk_l2", &[Cause::Walk], |costs| costs.walk_l2 = None),
        ("costs.walk_llc", &[Cause::Walk], |costs| costs.walk_llc = None),
        ("costs.walk_memory", &[Cause::Walk], |costs| costs.walk_memory = None),
        ("costs.walk_beside", &[Cause::Walk], |costs| costs.walk_beside = None),
        ("costs.walk_alone", &[Cause::Walk], |costs| costs.walk_alone = None),
        ("costs.walk_fetch", &[Cause::Walk], |costs| costs.walk_fetch = None),
        ("costs.clock", &[Cause::Tlb], |costs| costs.clock = None),
    ];
    for (name, causes, forget) in cases {
        let mut costs = costs();
        forget(&mut costs);
        let estimate = Estimate::new(&events(), &costs, Walks::Native);
        assert_eq!(estimate.not_known.iter().collect::<Vec<_>>(), [name]);
        assert_eq!(estimate.total_ns, None, "{name}");
        for cause in Cause::ALL {
            let is_known = !causes.contains(&cause);
            assert_eq!(estimate.causes[&cause].ns.is_some(), is_known, "{name}: {cause:?}");
        }
        assert!(estimate.known_ns < whole.known_ns, "{name}");
    }
}

#[test]
fn a_cost_that_nothing_needs_may_be_unknown() {
    let estimate = Estimate::new(&Events::default(), &Costs::default(), Walks::Native);
    assert_eq!(estimate.total_ns, Some(0));
    assert!(estimate.not_known.is_empty() && estimate.constants.is_empty());
}

#[test]
fn reads_without_a_clock_of_the_program_are_not_known() {
    let costs = Costs { reference: None, ..costs() };
    assert_eq!(Timing::new(&costs), None);
    let mut events = events();
    (events.read.queue_ns, events.read.late_ns, events.read.late_waits) = (None, None, None);
    let estimate = Estimate::new(&events, &costs, Walks::Native);
    assert!(estimate.not_known.contains("costs.reference"));
    assert_eq!(estimate.causes[&Cause::Read].ns, None);
}

#[test]
fn differences_are_against_the_reference_and_absent_where_one_is_not_known() {
    let reference = Estimate::new(&events(), &costs(), Walks::Native);
    let more = Events { faults: 12, ..events() };
    let mut other = Estimate::new(&more, &costs(), Walks::Native);
    other.compare(&reference);
    assert_eq!(other.difference_ns, Some(1_800));
    assert_eq!(other.causes[&Cause::Fault].difference_ns, Some(1_800));
    assert_eq!(other.causes[&Cause::Walk].difference_ns, Some(0));
    let costs = Costs { fault: None, ..costs() };
    let mut unknown = Estimate::new(&events(), &costs, Walks::Native);
    unknown.compare(&reference);
    assert_eq!((unknown.difference_ns, unknown.causes[&Cause::Fault].difference_ns), (None, None));
}

#[test]
fn absurd_counts_saturate() {
    let events = Events { faults: u64::MAX, l2_hits: [u64::MAX; 2], ..events() };
    let estimate = Estimate::new(&events, &costs(), Walks::Native);
    assert_eq!(estimate.total_ns, Some(u64::MAX));
    let timing = Timing::new(&costs()).unwrap();
    assert!(timing.of_references(u64::MAX) > 0 && timing.of_bytes(u64::MAX) == u64::MAX);
    let mut device = Device::new(timing);
    assert_eq!(device.read(u64::MAX, u64::MAX).done_ns, u64::MAX);
}

#[test]
fn a_queue_delays_what_comes_behind_and_idles_in_between() {
    let (latency_ns, bytes_per_s) = (50, 1_000_000_000);
    let timing = Timing { latency_ns, bytes_per_s, interval_ns: 0, reference_ps: 500 };
    let mut device = Device::new(timing);
    let serve = |device: &mut Device, now, bytes| {
        let read = device.read(now, bytes);
        (read.queue_ns, read.done_ns)
    };
    assert_eq!(serve(&mut device, 10, 100), (0, 160));
    assert_eq!(serve(&mut device, 10, 200), (100, 360));
    // The transfers end at 310; the second read's latency does not occupy the device.
    assert_eq!(serve(&mut device, 310, 1), (0, 361));
    assert_eq!(serve(&mut device, 1_000, 1), (0, 1_051));
    assert_eq!(timing.of_references(4), 2);
}

#[test]
fn short_reads_start_an_interval_apart_and_long_ones_a_transfer() {
    let costs = Costs { storage_interval: Some(quantity(30.0, Unit::Ns)), ..costs() };
    let timing = Timing::new(&costs).unwrap();
    assert_eq!((timing.interval_ns, timing.latency_ns), (30, 80_000));
    let mut device = Device::new(timing);
    let done: Vec<u64> = (0..3).map(|_| device.read(0, 10).done_ns).collect();
    assert_eq!(done, [80_010, 80_040, 80_070]);
    let read = device.read(1_000, 100);
    assert_eq!((read.queue_ns, read.done_ns), (0, 81_100));
    assert_eq!(device.read(1_000, 1).queue_ns, 100);
    let estimate = Estimate::new(&events(), &costs, Walks::Native);
    assert!(estimate.constants.contains_key("costs.storage_interval"));
}

#[test]
fn the_machines_with_every_cost_know_every_cause() {
    for name in ["altra", "cascadelake", "zen4", "xeon-4210r", "phone", "phone-little"] {
        let costs = Machine::named(name).unwrap().costs;
        assert!(Timing::new(&costs).is_some(), "{name}");
        let events = Events { cleared: BTreeMap::from([(4 << 10, 4_000)]), ..events() };
        let estimate = Estimate::new(&events, &costs, Walks::Native);
        assert!(estimate.total_ns.is_some(), "{name}: {:?}", estimate.not_known);
        let nested = Estimate::new(&events, &costs, Walks::Nested);
        assert!(nested.total_ns > estimate.total_ns, "{name}");
    }
    let milan = Machine::named("milan").unwrap().costs;
    let estimate = Estimate::new(&events(), &milan, Walks::Native);
    assert_eq!(estimate.total_ns, None);
    assert!(estimate.not_known.contains("costs.fault"));
}

#[test]
fn finer_costs_take_the_place_of_coarser_ones() {
    let fine = Costs {
        fault_around: Some(quantity(180.0, Unit::Ns)),
        folio_alloc: Some(quantity(300.0, Unit::Ns)),
        map_batch: Some(quantity(30.0, Unit::Ns)),
        fork_batch: Some(quantity(20.0, Unit::Ns)),
        fork_large: Some(quantity(80.0, Unit::Ns)),
        folio_free: Some(quantity(200.0, Unit::Ns)),
        page_free: Some(quantity(8.0, Unit::Ns)),
        fork_pmd: Some(quantity(2.0, Unit::Us)),
        unmap_large: Some(quantity(700.0, Unit::Ns)),
        unmap_pmd: Some(quantity(5.0, Unit::Us)),
        ..costs()
    };
    let events = Events { pmds_unmapped: 3, ..events() };
    let (fine, coarse) = (
        Estimate::new(&events, &fine, Walks::Native),
        Estimate::new(&events, &costs(), Walks::Native),
    );
    let of = |estimate: &Estimate, cause| estimate.causes[&cause].ns.unwrap();
    assert_eq!(of(&fine, Cause::Fault), 10 * 900 + 4 * 180 + 9 * 300);
    assert_eq!(of(&coarse, Cause::Fault), 10 * 900);
    assert_eq!(of(&fine, Cause::Map), 100 * 25 + 7 * 30);
    assert_eq!(of(&coarse, Cause::Map), 100 * 25);
    assert_eq!(of(&fine, Cause::Fork), 2 * 64 + 20 + 80 + 2_000);
    assert_eq!(of(&coarse, Cause::Fork), 3 * 64);
    let freed = 2 * 200 + 17 * 8;
    assert_eq!(of(&fine, Cause::Unmap), 154 + 700 + 32 * 45 + 3 * 5_000 + freed);
    assert_eq!(of(&coarse, Cause::Unmap), (2 + 3) * 154 + 32 * 45);
}
