use crate::cost::{BaseSource, BaseTime, Estimate, Events, Walks};
use crate::interval::Interval;
use crate::machine::{Costs, Quantity, Unit};
use crate::tlb::{KindCounters, Lines, WalkCounters};

fn cost(value: f64, unit: Unit, range: Option<[f64; 2]>, assumed: bool) -> Quantity {
    Quantity { value, unit, source: "test".to_owned(), assumed, range }
}

fn faults(nr: u64, costs: &Costs) -> Estimate {
    Estimate::new(&Events { faults: nr, ..Events::default() }, costs, Walks::Native)
}

fn of(low: f64, mid: f64, high: f64) -> Interval {
    Interval { low, mid, high }
}

#[test]
fn a_range_holds_before_what_is_assumed_of_a_source() {
    for (range, assumed, expected) in [
        (Some([90.0, 130.0]), false, of(9e4, 1e5, 1.3e5)),
        (None, true, of(5e4, 1e5, 2e5)),
        (None, false, of(8e4, 1e5, 1.25e5)),
    ] {
        let fault = Some(cost(100.0, Unit::Ns, range, assumed));
        let estimate = faults(1_000, &Costs { fault, ..Costs::default() });
        assert_eq!(estimate.total, Some(expected), "{range:?} {assumed}");
    }
}

#[test]
fn more_of_a_rate_and_a_faster_clock_are_less_time() {
    let rate = cost(2.0, Unit::GbPerS, Some([1.0, 4.0]), false);
    assert_eq!(super::of(&rate, &Costs::default()), of(0.5, 1.0, 2.0));
    let clock = Some(cost(3.0, Unit::GHz, Some([2.0, 6.0]), false));
    let cycles = cost(10.0, Unit::Cycles, Some([5.0, 20.0]), false);
    let bounds = super::of(&cycles, &Costs { clock, ..Costs::default() });
    assert_eq!(bounds, of(0.25, 1.0, 3.0));
}

#[test]
fn a_difference_is_in_doubt_by_its_own_events_alone() {
    let fault = Some(cost(100.0, Unit::Ns, Some([50.0, 200.0]), false));
    let costs = Costs { fault, ..Costs::default() };
    let (before, now) = (faults(1_000_000, &costs), faults(999_990, &costs));
    // The error of ten faults, not of a million.
    assert_eq!(now.change(&before), Some(of(-2_000.0, -1_000.0, -500.0)));
    assert_eq!(before.change(&before), Some(of(0.0, 0.0, 0.0)));
}

#[test]
fn what_is_not_known_is_bounded_by_another_machine_and_named() {
    let costs = Costs::default();
    let (before, mut now) = (faults(1_000, &costs), faults(2_000, &costs));
    assert_eq!((now.total_ns, now.not_known.len()), (None, 1));
    let change = now.change(&before).unwrap();
    // 900 ns on cascadelake, within a factor of four.
    assert!((change.high / change.mid - 4.0).abs() < 1e-9, "{change:?}");
    assert!((change.mid / change.low - 4.0).abs() < 1e-9 && change.low > 0.0, "{change:?}");
    assert!(now.stand_ins.contains_key("costs.fault"), "{:?}", now.stand_ins);
    let run = BaseTime::given(1e9);
    now.compare_run(&Estimate { run, ..before });
    let share = now.run_change.unwrap();
    assert!((share.mid - change.mid / 1e7).abs() < 1e-4, "{share:?} {change:?}");
}

#[test]
fn walks_are_as_uncertain_as_their_lines_and_their_share() {
    let walk = Some(cost(10.0, Unit::Ns, Some([7.0, 13.0]), false));
    let walk_llc = Some(cost(20.0, Unit::Ns, Some([16.0, 24.0]), false));
    let walk_beside = Some(cost(0.5, Unit::Share, Some([0.1, 0.6]), false));
    let costs = Costs { walk, walk_llc, walk_beside, ..Costs::default() };
    let lines = Lines { llc: 1, ..Lines::default() };
    let overlapped = KindCounters { walks: 1, lines, ..KindCounters::default() };
    let walks = WalkCounters { overlapped, ..WalkCounters::default() };
    let events = Events { walks, has_links: true, ..Events::default() };
    let estimate = Estimate::new(&events, &costs, Walks::Native);
    // 3 and 4 on the sides of 30, added in quadrature; then the shares.
    assert_eq!(estimate.total, Some(of(2.5, 15.0, 21.0).rounded()));
    let open = Events { has_links: false, ..events };
    let open = Estimate::new(&open, &costs, Walks::Native);
    assert_eq!(open.total, Some(of(2.5, 15.0, 35.0).rounded()), "all may be chained");
    assert_eq!(estimate.total_ns, Some(15));
}

#[test]
fn an_estimated_run_has_instructions_and_memory_management() {
    let clock = Some(cost(2.0, Unit::GHz, Some([2.0, 2.0]), false));
    let cpi = Some(cost(0.5, Unit::Cpi, Some([0.4, 1.0]), false));
    let fault = Some(cost(100.0, Unit::Ns, Some([100.0, 100.0]), false));
    let costs = Costs { clock, cpi, fault, ..Costs::default() };
    let run = BaseTime::estimated(1_000_000, &costs, &[]);
    assert_eq!(run.ns, of(200_000.0, 250_000.0, 500_000.0));
    let estimate = Estimate { run, ..faults(1_000, &costs) };
    assert_eq!(estimate.run_time(), Some(of(300_000.0, 350_000.0, 600_000.0)));
    assert_eq!(run.source, BaseSource::Estimated);
}

#[test]
fn no_run_becomes_shorter_than_nothing() {
    let fault = Some(cost(100.0, Unit::Ns, Some([50.0, 400.0]), false));
    let costs = Costs { fault, ..Costs::default() };
    let (before, now) = (faults(1_000, &costs), faults(0, &costs));
    let change = |run: BaseTime| now.run_change_from(&Estimate { run, ..before.clone() });
    // Saves 100 us, at most 400 us, of a run of 200 us, then of 80 us.
    assert_eq!(change(BaseTime::given(200_000.0)), Some(of(-100.0, -50.0, -25.0)));
    assert_eq!(change(BaseTime::given(80_000.0)), Some(of(-100.0, -100.0, -62.5)));
    // Instructions take 100 us, plus the time of memory management.
    let ns = of(100_000.0, 100_000.0, 100_000.0);
    let run = BaseTime { ns, source: BaseSource::Estimated, runs: 0, off_cpu_ns: None };
    assert_eq!(change(run), Some(of(-80.0, -50.0, -10.0)));
}

/// Each term is rounded separately, but the total only once.
#[test]
fn the_middle_of_the_total_is_the_total() {
    let a_bit = Some(cost(0.4, Unit::Ns, None, false));
    let costs = Costs { fault: a_bit.clone(), l2_hit: a_bit, ..Costs::default() };
    let events = Events { faults: 1, l2_hits: [1, 0], ..Events::default() };
    let estimate = Estimate::new(&events, &costs, Walks::Native);
    assert_eq!((estimate.total_ns, estimate.total.unwrap().mid), (Some(0), 0.0));
}
