//! Detail of folios and fault times, compared with the counts.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::detail::{Area, AreaKind, Detail, Origin};
use largefolio_sim::replay::timeline::NR_BUCKETS;
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, replay};
use largefolio_sim::tlb::Side;
use largefolio_sim::tlb::curve::Point;
use largefolio_trace::generate::{Workload, ZipfMix};
use largefolio_trace::{Event, Op};

use super::{ADDR, HUGE, store, two_huge_pages};

fn spec(kernel: &str, machine: &str, detail_runs_max: u32) -> CellSpec {
    CellSpec {
        detail_runs_max,
        ..CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
    }
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/demo.folio")
}

fn run(path: &Path, specs: &[CellSpec]) -> Vec<Outcome> {
    replay(path, specs, &mut |_| {}).unwrap().1
}

fn zipf(dir: &Path) -> PathBuf {
    let path = dir.join("zipf.folio");
    let mix = ZipfMix { nr_runs: 20_000, filesystem: "xfs".into(), ..ZipfMix::default() };
    mix.write(&path).unwrap();
    path
}

fn bytes_by_size<'a>(
    outcome: &Outcome,
    areas: impl Iterator<Item = &'a Area>,
) -> BTreeMap<u64, u64> {
    let mut bytes = BTreeMap::new();
    for run in areas.flat_map(|area| &area.runs) {
        let size = outcome.page_bytes << run.order.get();
        *bytes.entry(size).or_default() += run.nr_pages * outcome.page_bytes;
    }
    bytes
}

fn check(outcome: &Outcome) -> &Detail {
    let detail = outcome.detail.as_ref().unwrap();
    assert_eq!(detail.nr_left_out, 0);
    for area in &detail.areas {
        let mut end = 0;
        for run in &area.runs {
            assert!(run.page >= end && run.nr_pages > 0, "{} {run:?}", area.path);
            end = run.page + run.nr_pages;
        }
    }
    let files = detail.areas.iter().filter(|area| area.kind == AreaKind::File);
    assert_eq!(bytes_by_size(outcome, files), outcome.cached_bytes);
    assert_eq!(detail.buckets.len(), NR_BUCKETS);
    let faults: u64 = detail.buckets.iter().map(|bucket| bucket.faults).sum();
    let read: u64 = detail.buckets.iter().map(|bucket| bucket.read_bytes).sum();
    assert_eq!((faults, read), (outcome.faults.total, outcome.reads.bytes));
    detail
}

#[test]
fn detail_agrees_with_what_was_counted() {
    let dir = tempfile::tempdir().unwrap();
    let cells = [("6.1", "altra"), ("6.12", "cascadelake"), ("7.2", "grace-64k")];
    let specs = cells.map(|(kernel, machine)| spec(kernel, machine, 1 << 20));
    for path in [zipf(dir.path()), demo()] {
        for outcome in run(&path, &specs) {
            let detail = check(&outcome);
            // Detail has no areas for private copies of file pages.
            let private = detail.areas.iter().filter(|area| area.kind != AreaKind::File);
            let private: u64 = bytes_by_size(&outcome, private).values().sum();
            let anon = outcome.folios.anon.mapped_bytes;
            assert!(private > 0 && private <= anon, "{private} of {anon}");
        }
    }
}

#[test]
fn keeping_detail_changes_no_count() {
    let specs = [spec("6.18", "altra", 0), spec("6.18", "altra", 1 << 20)];
    let mut outcomes = run(&demo(), &specs);
    assert_eq!(outcomes[0].detail, None);
    assert!(outcomes[1].detail.take().is_some());
    assert_eq!(outcomes[0], outcomes[1]);
}

#[test]
fn every_folio_has_its_cause() {
    let outcomes = run(&demo(), &[spec("6.18", "altra", 1 << 20)]);
    let detail = check(&outcomes[0]);
    let origins: BTreeSet<Origin> =
        detail.areas.iter().flat_map(|area| area.runs.iter().map(|run| run.origin)).collect();
    for origin in [Origin::Fetch, Origin::Load, Origin::Marker, Origin::ReadCall, Origin::Touch] {
        assert!(origins.contains(&origin), "{origin:?} is not among {origins:?}");
    }
    assert!(!origins.contains(&Origin::Earlier), "the page cache was cold");
    let kinds: BTreeSet<AreaKind> = detail.areas.iter().map(|area| area.kind).collect();
    assert!(kinds.contains(&AreaKind::Heap) && kinds.contains(&AreaKind::Stack), "{kinds:?}");
}

#[test]
fn a_warm_page_cache_is_the_earlier_runs() {
    let mut warm = spec("6.18", "altra", 1 << 20);
    warm.cache = CacheState::Warm;
    let outcomes = run(&demo(), &[warm]);
    let detail = check(&outcomes[0]);
    let files = detail.areas.iter().filter(|area| area.kind == AreaKind::File);
    let origins: BTreeSet<Origin> =
        files.flat_map(|area| area.runs.iter().map(|run| run.origin)).collect();
    assert_eq!(origins, BTreeSet::from([Origin::Earlier]));
}

#[test]
fn the_curve_agrees_with_a_machine_that_is_fully_associative() {
    let outcomes = run(&demo(), &[spec("6.12", "altra", 1 << 20), spec("6.18", "zen4", 1 << 20)]);
    for outcome in &outcomes {
        let curve = &check(outcome).tlb_curve;
        for (side, counted) in
            [(Side::Instruction, &outcome.tlb.instruction), (Side::Data, &outcome.tlb.data)]
        {
            let points = curve.of(side);
            assert!(points.is_sorted_by(|a, b| a.entries < b.entries && a.misses >= b.misses));
            let [Some(l1), Some(_)] = curve.own.of(side) else { panic!("{:?}", curve.own) };
            let of_l1 = points.iter().find(|point| point.entries == l1).unwrap().misses;
            // Level 1 of both is one array for all sizes used here.
            let off = of_l1.abs_diff(counted.l1_misses);
            assert!(off * 200 <= counted.l1_misses, "{of_l1}, counted {counted:?}");
        }
    }
    let misses = outcomes[0].tlb.instruction.l1_misses;
    let points = &outcomes[0].detail.as_ref().unwrap().tlb_curve.instruction;
    assert!(points.contains(&Point { entries: 48, misses }), "text is never written: exact");
}

#[test]
fn too_many_runs_leave_the_smallest_areas_out() {
    let outcomes = run(&demo(), &[spec("6.12", "altra", 100), spec("6.12", "altra", 1)]);
    for (outcome, runs_max) in outcomes.iter().zip([100, 1]) {
        let detail = outcome.detail.as_ref().unwrap();
        let nr_runs: usize = detail.areas.iter().map(|area| area.runs.len()).sum();
        assert!(nr_runs <= runs_max && detail.nr_left_out > 0, "{nr_runs} runs");
    }
}

/// Returns each process's final folios of [`two_huge_pages`] after `events`.
fn private(spec: CellSpec, events: &[Event]) -> BTreeMap<usize, Vec<(u64, Origin)>> {
    let (_dir, path) = two_huge_pages(events);
    let outcome = run(&path, &[spec]).remove(0);
    let detail = outcome.detail.unwrap();
    let areas = detail.areas.iter().filter(|area| area.kind == AreaKind::Private);
    let runs =
        |area: &Area| area.runs.iter().map(|run| (run.nr_pages, run.origin)).collect::<Vec<_>>();
    areas.map(|area| (area.process, runs(area))).collect()
}

#[test]
fn private_folios_have_causes_of_their_own() {
    let of = |kernel: &str, events: &[Event]| private(spec(kernel, "altra", 1 << 20), events);
    let plain = of("6.18+thp=never", &[]);
    assert_eq!(plain[&0], [(1024, Origin::Touch)]);

    let collapse = Event { addr: ADDR, len: HUGE, ..Event::new(0, Op::Collapse) };
    let collapsed = of("6.18+thp=never", &[collapse]);
    assert_eq!(collapsed[&0], [(512, Origin::Collapse), (512, Origin::Touch)]);

    let fork = Event { aux: 1, ..Event::new(0, Op::Fork) };
    let forked = of("6.18+thp=never", &[fork, store(1, 0)]);
    assert_eq!(forked[&0], [(1024, Origin::Touch)]);
    assert_eq!(forked[&1], [(1, Origin::Copy), (1023, Origin::Inherited)]);
}

#[test]
fn khugepaged_is_told_from_faults() {
    let advise = Event { addr: ADDR, len: 2 * HUGE, aux: 14, ..Event::new(0, Op::Madvise) };
    // Twenty seconds at a nanosecond each: khugepaged wakes every ten.
    let long = Event::references(0, Op::Write, ADDR, 20_000_000_000);
    let of = |events: &[Event]| private(spec("6.18+thp=madvise", "altra", 1 << 20), events);
    assert_eq!(of(&[advise])[&0], [(1024, Origin::Touch)]);
    let collapsed = of(&[advise, long, store(0, 0), long, store(0, 1)]);
    assert_eq!(collapsed[&0], [(1024, Origin::Khugepaged)]);
}

#[test]
fn where_no_huge_page_is_free_the_cause_says_so() {
    let mut short = spec("6.18+thp=always", "altra", 1 << 20);
    (short.ram_bytes, short.fragmentation.permille) = (256 << 20, 1000);
    let fallen_back = private(short, &[]);
    let nr = |of: Origin| -> u64 {
        fallen_back[&0].iter().filter(|(_, origin)| *origin == of).map(|(nr, _)| nr).sum()
    };
    assert!(nr(Origin::Fallback) > 0, "{fallen_back:?}");
    let plenty = private(spec("6.18+thp=always", "altra", 1 << 20), &[]);
    assert_eq!(plenty[&0], [(1024, Origin::Touch)]);
}
