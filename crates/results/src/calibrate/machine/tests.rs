use largefolio_linux::calibrate::{
    Caches, Cpu, Curve, Figure, HostLines, KernelCosts, LineCosts, MapcountCosts, Pace, Point,
    Rate, Storage, WalkShares,
};
use largefolio_linux::measure::Spread;
use largefolio_sim::machine::Quantity;

use super::*;

fn spread(median: f64) -> Spread {
    Spread { median, min: median, max: median, n: 3 }
}

fn figure(ns: f64) -> Figure {
    Figure { ns: spread(ns), how: "made \"up\"\nhere".to_owned() }
}

fn curve(side: Side, pages: Pages, (l1, l2): (usize, usize)) -> Curve {
    let sets =
        [8, 16, 32, 48, 64, 72, 80, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 16384, 98304];
    let ns = |nr: usize| match nr {
        nr if nr <= l1 => 1.0,
        nr if nr <= l2 => 3.0,
        _ => 60.0,
    };
    let points = |of: &dyn Fn(usize) -> f64| {
        sets.iter().map(|&nr| Point { nr, ns: spread(of(nr)) }).collect::<Vec<_>>()
    };
    Curve {
        side,
        pages,
        spread: points(&ns),
        packed: points(&|_| 1.0),
        extra: points(&|nr| ns(nr) - 1.0),
        host_lines: None,
    }
}

fn zen() -> Vec<Structure> {
    let of = |place, entries, ways, bytes| Structure {
        place,
        entries,
        ways,
        page_bytes: vec![bytes],
        leaf: "leaf".to_owned(),
    };
    let mut all = Vec::new();
    for bytes in [4 << 10, 2 << 20] {
        all.push(of(TlbLevel::L1Data, 72, None, bytes));
        all.push(of(TlbLevel::L1Instruction, 64, None, bytes));
        all.push(of(TlbLevel::L2Data, 3072, Some(8), bytes));
        all.push(of(TlbLevel::L2Instruction, 512, Some(7), bytes));
    }
    all
}

fn calibration() -> Calibration {
    let rate = |unit_bytes, ns| Rate { unit_bytes, figure: figure(ns) };
    Calibration {
        cpu: Cpu {
            name: "a CPU".to_owned(),
            is_virtual: Some(true),
            structures: zen(),
            ..Cpu::default()
        },
        clock_ghz: Some(spread(3.5)),
        curves: vec![
            curve(Side::Data, Pages::Base, (72, 2048)),
            curve(Side::Data, Pages::Pmd, (1024, 98304)),
            curve(Side::Instruction, Pages::Base, (64, 512)),
        ],
        kernel: KernelCosts {
            fault: Some(figure(700.0)),
            clear_page: Some(figure(400.0)),
            unmap_pmd: Some(figure(5000.0)),
            ..KernelCosts::default()
        },
        mapcounts: MapcountCosts { page: Some(figure(6.0)), owner_word: Some(figure(10.0)) },
        caches: Caches { l2_bytes: 1 << 20, llc_bytes: 24 << 20, is_reported: true },
        lines: LineCosts {
            l2: Some(figure(4.0)),
            memory: Some(figure(110.0)),
            ..Default::default()
        },
        walk_shares: WalkShares { overlapped: Some(spread(0.2)), ..WalkShares::default() },
        clear: vec![rate(4096, 410.0), rate(64 << 10, 3000.0)],
        copy: vec![rate(4096, 600.0)],
        returned: None,
        storage: Storage { sequential: Some(figure(1e6)), ..Storage::default() },
        host_lines: Some(HostLines { of_4k: 0.64, of_2m: 0.05 }),
        missing: vec!["folios of 32 KiB: changing it needs root".to_owned()],
    }
}

fn written(calibration: &Calibration) -> Machine {
    let calibrated = machine(calibration).unwrap();
    let text = calibrated.machine.to_toml(&calibrated.comment(Effort::Full)).unwrap();
    assert!(text.starts_with("# a CPU, measured on 2"), "{text}");
    Machine::from_toml(&text, "this.toml").unwrap()
}

#[test]
fn measured_numbers_are_marked_measured_and_the_rest_assumed_with_the_reason() {
    let calibration = calibration();
    let machine = written(&calibration);
    let fault = machine.costs.fault.unwrap();
    assert!(fault.source.starts_with("measured: made \"up\"\nhere; median of n = 3"), "{fault:?}");
    assert!(!fault.assumed);
    let fork = machine.costs.fork_entry.unwrap();
    assert!(fork.assumed && fork.source.contains("not measured on this machine"), "{fork:?}");
    assert_eq!(machine.costs.fork_pmd, None);
    let comment = super::machine(&calibration).unwrap().comment(Effort::Full);
    assert!(comment.contains("Not measured: folios of 32 KiB: changing it needs root"));
    // 59 ns minus the lines of walks over 16,384 and 49,152 pages.
    let walk = machine.costs.walk.unwrap();
    assert!(!walk.assumed && walk.value > 1.0 && walk.value < 59.0, "{walk:?}");
    let [l2, llc, memory] =
        [&machine.costs.walk_l2, &machine.costs.walk_llc, &machine.costs.walk_memory];
    let is_assumed = |cost: &Option<Quantity>| cost.as_ref().unwrap().assumed;
    assert_eq!([l2, llc, memory].map(is_assumed), [false, true, false]);
    let shares = [&machine.costs.walk_beside, &machine.costs.walk_alone, &machine.costs.walk_fetch];
    assert_eq!(shares.map(is_assumed), [false, true, true]);
    let walker = &machine.tlb.walker;
    assert_eq!((walker.l2.0, walker.llc.0, walker.is_virtual), (1 << 20, 12 << 20, true));
    assert!((machine.costs.clear[0].gb_per_s - 10.24).abs() < 1e-9);
}

#[test]
fn a_listed_cpu_has_its_documented_structures_where_the_curve_contradicts_cpuid() {
    let mut calibration = calibration();
    // Zen 5 has 4,096 entries, and twelve bits of CPUID for their number.
    for known in &mut calibration.cpu.structures {
        if known.place == TlbLevel::L2Data {
            known.entries = 128;
        }
    }
    let entries = |machine: &Machine| machine.tlb.l2_data[0].entries;
    assert_eq!(entries(&written(&calibration)), 128);
    calibration.cpu.id = ["AuthenticAMD", "26", "2"].map(str::to_owned).to_vec();
    let machine = written(&calibration);
    assert_eq!(entries(&machine), 4096);
    let source = &machine.tlb.l2_data[0].source;
    assert!(source.starts_with("CPUID says 128 entries, which the measured curve"), "{source}");
    // The curve has level 1's step where CPUID says.
    assert_eq!(machine.tlb.l1_data[0].entries, 72);
    let comment = super::machine(&calibration).unwrap().comment(Effort::Full);
    assert!(comment.contains("the file has the structures of zen5"), "{comment}");
}

#[test]
fn walks_to_pmd_entries_have_a_fixed_part_where_2m_folios_are_walked_for_as_4k_folios_are() {
    // Here 2M folios have their own entries.
    assert_eq!(written(&calibration()).costs.walk_pmd, None);
    let mut splintered = calibration();
    splintered.curves[1] = curve(Side::Data, Pages::Pmd, (72, 2048));
    let costs = written(&splintered).costs;
    // The same time, but a line of PMD entries costs less than the PTEs' lines.
    let [walk, walk_pmd] = [costs.walk, costs.walk_pmd].map(|cost| cost.unwrap().value);
    assert!(walk_pmd >= walk && walk_pmd < 59.0, "{walk} {walk_pmd}");
}

#[test]
fn map_counts_are_separated_from_the_costs_that_include_them() {
    let with = |unmap_pte, unmap_large| {
        let (pte, large) = (Some(figure(unmap_pte)), Some(figure(unmap_large)));
        let rest = (Some(figure(80.0)), Some(figure(210.0)));
        let kernel = KernelCosts {
            unmap_pte: pte,
            unmap_large: large,
            unmap_batch: rest.0,
            folio_free: rest.1,
            ..calibration().kernel
        };
        written(&Calibration { kernel, ..calibration() }).costs
    };
    let ns = |cost: &Option<Quantity>| cost.as_ref().map(|cost| cost.value);
    let costs = with(45.0, 150.0);
    assert_eq!((ns(&costs.page_mapcount), ns(&costs.owner_word)), (Some(6.0), Some(10.0)));
    assert_eq!((ns(&costs.unmap_pte), ns(&costs.unmap_large)), (Some(39.0), Some(134.0)));
    assert!(costs.unmap_pte.unwrap().source.ends_with("; less page_mapcount"));
    let stand_in = Machine::named(STAND_IN).unwrap().costs;
    assert_eq!(ns(&costs.fork_entry), ns(&stand_in.fork_entry), "has them out already");
    // A map count is part of its entry's cost, however slow it was alone.
    let costs = with(5.0, 150.0);
    assert_eq!((ns(&costs.page_mapcount), ns(&costs.owner_word)), (Some(4.5), Some(10.0)));
    assert_eq!((ns(&costs.unmap_pte), ns(&costs.unmap_large)), (Some(0.5), Some(135.5)));
    // Too little of another cost would be left, so nothing is subtracted.
    let costs = with(45.0, 15.0);
    assert_eq!((ns(&costs.page_mapcount), ns(&costs.owner_word)), (None, None));
    assert_eq!((ns(&costs.unmap_pte), ns(&costs.unmap_large)), (Some(45.0), Some(15.0)));
}

#[test]
fn freeing_is_separate_only_if_unmapping_excludes_it() {
    let with = |folio_free: Option<Figure>| {
        let kernel = KernelCosts {
            unmap_batch: Some(figure(80.0)),
            unmap_pte: Some(figure(20.0)),
            folio_free,
            page_free: Some(figure(8.0)),
            ..calibration().kernel
        };
        written(&Calibration { kernel, ..calibration() }).costs
    };
    let costs = with(Some(figure(210.0)));
    let ns = |cost: &Option<Quantity>| cost.as_ref().map(|cost| cost.value);
    assert_eq!((ns(&costs.folio_free), ns(&costs.page_free)), (Some(210.0), Some(8.0)));
    assert_eq!((ns(&costs.unmap_batch), ns(&costs.unmap_pmd)), (Some(80.0), Some(5000.0)));
    // The other machine's costs of unmapping include freeing, so no measured part may be added.
    let costs = with(None);
    let stand_in = Machine::named(STAND_IN).unwrap().costs;
    assert_eq!((ns(&costs.folio_free), ns(&costs.page_free)), (None, None));
    for (cost, other) in [
        (&costs.unmap_batch, &stand_in.unmap_batch),
        (&costs.unmap_large, &stand_in.unmap_large),
        (&costs.unmap_pte, &stand_in.unmap_pte),
        (&costs.unmap_pmd, &stand_in.unmap_pmd),
    ] {
        assert_eq!(ns(cost), ns(other));
        assert!(cost.as_ref().is_none_or(|cost| cost.assumed));
    }
}

#[test]
fn the_read_interval_is_measured_at_the_deepest_queue() {
    let with = |deep: f64| {
        let at_depth = vec![(1, figure(9e4)), (16, figure(deep)), (4, figure(3e4))];
        let storage = Storage { random: Some(figure(8e4)), at_depth, ..Storage::default() };
        written(&Calibration { storage, ..calibration() }).costs.storage_interval
    };
    assert!((with(1e4).unwrap().value - 1e4).abs() < 1e-9);
    assert_eq!(with(9e4), None);
}

#[test]
fn the_file_notes_a_changed_clock() {
    let mut calibration = calibration();
    let pace = Pace {
        clock_ghz: spread(3.6),
        clock_all_ghz: Spread { min: 1.9, ..spread(3.6) },
        touch_ns: spread(1500.0),
        nr_rounds: 20,
        nr_rejected: 2,
        agreed: Some((true, 0.07)),
        seconds: 60.0,
    };
    calibration.kernel.pace = Some(pace);
    let comment = machine(&calibration).unwrap().comment(Effort::Full);
    assert!(comment.contains("20 rounds in 60 s at 3.60 GHz, 2 rejected"), "{comment}");
    assert!(comment.contains("THE CLOCK CHANGED: 1.90 to 3.60 GHz"), "{comment}");
}

#[test]
fn structures_are_those_of_the_cpu_with_a_note_if_measurements_differ() {
    let mut calibration = calibration();
    let machine = written(&calibration);
    assert_eq!(machine.tlb.l1_data.len(), 1);
    assert_eq!((machine.tlb.l1_data[0].entries, machine.tlb.l2_data[0].entries), (72, 3072));
    // 512 entries are not divisible into seven ways.
    assert_eq!(machine.tlb.l2_instruction[0].ways, Ways::Full);
    assert_eq!(machine.tlb.l1_data[0].sizes, EntrySizes::Any);
    assert!(machine.costs.l2_hit.unwrap().value > 1.9);
    let comment = super::machine(&calibration).unwrap().comment(Effort::Quick);
    assert!(comment.contains("L1 data TLB, 4K folios: 72 to 80 pages of 4K measured, CPUID says 72 entries; they agree."), "{comment}");
    calibration.curves[0] = curve(Side::Data, Pages::Base, (128, 2048));
    let comment = super::machine(&calibration).unwrap().comment(Effort::Quick);
    assert!(
        comment.contains("128 to 256 pages of 4K measured, CPUID says 72 entries; THEY DISAGREE."),
        "{comment}"
    );
}

#[test]
fn detects_4k_entries_below_2m_folios() {
    let mut calibration = calibration();
    calibration.cpu.is_virtual = None;
    calibration.curves[1] = curve(Side::Data, Pages::Pmd, (72, 2048));
    let machine = written(&calibration);
    assert_eq!(machine.tlb.walker.host_page, EntrySize::parse("4K").unwrap());
    assert!(machine.tlb.walker.is_virtual);
    assert_eq!(machine.tlb.l2_data[0].sizes, EntrySizes::Any);
}

#[test]
fn no_measurement_makes_an_invalid_file() {
    let absurd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -5.0, 1e300, 1e-300];
    for value in absurd {
        let mut calibration = calibration();
        for curve in &mut calibration.curves {
            for points in [&mut curve.spread, &mut curve.packed, &mut curve.extra] {
                for point in points {
                    point.ns = spread(value);
                }
            }
        }
        calibration.clock_ghz = Some(spread(value));
        calibration.kernel.fault = Figure::of(&[value], 1, "x");
        calibration.kernel.map_entry = Figure::of(&[value], 1, "x");
        for known in &mut calibration.cpu.structures {
            (known.entries, known.ways) = (u32::MAX, Some(0));
        }
        calibration.cpu.name = "\u{1b}[31m\"\"\"'''\\".to_owned();
        written_or_refused(&calibration);
        calibration.cpu.structures.clear();
        calibration.cpu.is_virtual = None;
        written_or_refused(&calibration);
        written(&Calibration { cpu: calibration.cpu.clone(), ..self::calibration() }.named());
    }
    // Inverted curves: larger sets are faster.
    let mut calibration = calibration();
    for curve in &mut calibration.curves {
        for points in [&mut curve.spread, &mut curve.extra] {
            let values: Vec<_> = points.iter().rev().map(|point| point.ns).collect();
            points.iter_mut().zip(values).for_each(|(point, ns)| point.ns = ns);
        }
    }
    written(&calibration);
    written(&Calibration::default().named());
}

trait Named {
    fn named(self) -> Self;
}

impl Named for Calibration {
    fn named(mut self) -> Self {
        self.cpu.name = "a CPU".to_owned();
        self
    }
}

fn written_or_refused(calibration: &Calibration) {
    let calibrated = machine(calibration).unwrap();
    if let Ok(text) = calibrated.machine.to_toml(&calibrated.comment(Effort::Full)) {
        Machine::from_toml(&text, "this.toml").unwrap();
    }
}

#[test]
fn days_are_dates() {
    for (days, expected) in [
        (0, "1970-01-01"),
        (59, "1970-03-01"),
        (11_016, "2000-02-29"),
        (11_017, "2000-03-01"),
        (19_722, "2023-12-31"),
        (19_723, "2024-01-01"),
        (47_540, "2100-02-28"),
        (47_541, "2100-03-01"),
    ] {
        assert_eq!(date(days), expected, "{days}");
    }
}

#[test]
fn base_pages_are_spread_over_the_hosts_table_as_pagemap_shows() {
    let mut calibration = calibration();
    assert_eq!(written(&calibration).tlb.walker.host_lines, Some(50));
    let base = calibration.curves[0].clone();
    calibration.curves[1] = Curve { pages: Pages::Pmd, ..base };
    let walker = written(&calibration).tlb.walker;
    assert_eq!((walker.host_page.bytes(), walker.host_lines), (4096, Some(640)));
    calibration.host_lines = None;
    let walker = written(&calibration).tlb.walker;
    assert_eq!(walker.host_lines, None);
    assert!(walker.source.contains("hidden (run as root)"), "{}", walker.source);
}
