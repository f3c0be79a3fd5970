//! The orders of docs/behaviour D.4, and properties of every plan.

use largefolio_bulk::plan::{
    Arch, Plan, PlanError, PreemptBuild, Preemption, Region, Rule, Shape, Step, Unit,
};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const MIB_PAGES: u64 = (1 << 20) / PAGE;

fn shape(nr_pages: u64, fault_page: u64) -> Shape {
    Shape { nr_pages, fault_page, page_bytes: PAGE }
}

fn plan(rule: Rule, nr_pages: u64, fault_page: u64, preemption: Preemption) -> Plan {
    Plan::new(rule, shape(nr_pages, fault_page), preemption).unwrap()
}

fn pages(plan: &Plan) -> Vec<u64> {
    plan.units().flat_map(|unit| unit.first..unit.first + unit.nr).collect()
}

fn extents(plan: &Plan) -> Vec<(u64, u64)> {
    plan.units().map(|unit| (unit.first, unit.first + unit.nr - 1)).collect()
}

/// Steps as text: `u8` for a unit of 8 MiB, `r` for a reschedule point.
fn pattern(plan: &Plan) -> String {
    let word = |step| match step {
        Step::Unit(unit) => format!("u{}", unit.nr / MIB_PAGES),
        Step::Reschedule => "r".to_owned(),
    };
    plan.steps().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn d_4_1_converging_examples() {
    let order = |n| pages(&plan(Rule::converging(PAGE), 8, n, Preemption::Cooperative));
    assert_eq!(order(0), [7, 6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(order(1), [7, 6, 5, 4, 3, 2, 0, 1]);
    assert_eq!(order(3), [7, 6, 0, 5, 1, 4, 2, 3]);
    assert_eq!(order(5), [0, 1, 2, 7, 3, 6, 4, 5]);
    assert_eq!(order(7), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn d_4_1_the_fault_page_is_the_last_and_its_neighbours_come_before_it() {
    for nr_pages in 1..=40 {
        for fault_page in 0..nr_pages {
            let order =
                pages(&plan(Rule::converging(PAGE), nr_pages, fault_page, Preemption::Preemptible));
            assert_eq!(order.last(), Some(&fault_page), "{nr_pages} pages");
            let before = order[order.len().saturating_sub(2)];
            assert!(before.abs_diff(fault_page) <= 1, "{nr_pages} pages, {before} before");
        }
    }
}

#[test]
fn d_4_1_a_point_before_each_page_and_gigantic_folios_straight_up() {
    let small = plan(Rule::converging(PAGE), 1024, 3, Preemption::Cooperative);
    let steps: Vec<_> = small.steps().collect();
    assert_eq!(steps.len(), 2048);
    assert!(steps.iter().step_by(2).all(|step| *step == Step::Reschedule));
    let gigantic = plan(Rule::converging(PAGE), 1025, 3, Preemption::Cooperative);
    assert!(pages(&gigantic).into_iter().eq(0..1025));
    assert!(gigantic.units().all(|unit| unit.nr == 1 && unit.region == Region::Whole));
    assert_eq!(gigantic.steps().count(), 2050);
    // The buddy allocator's limit: order 11 with 16K pages, 13 with 64K.
    for (page_bytes, limit) in [(PAGE, 1024), (4 * PAGE, 2048), (16 * PAGE, 8192)] {
        let rule = Rule::Converging { straight_over_pages: limit };
        assert_eq!(Rule::converging(page_bytes), rule);
    }
}

#[test]
fn d_4_3_extent_examples() {
    let merged = |nr_pages, n| {
        extents(&plan(Rule::merged(Arch::X86_64), nr_pages, n, Preemption::Preemptible))
    };
    assert_eq!(merged(512, 0), [(3, 511), (0, 2)]);
    assert_eq!(merged(512, 1), [(4, 511), (0, 3)]);
    assert_eq!(merged(512, 255), [(258, 511), (0, 252), (253, 257)]);
    assert_eq!(merged(512, 510), [(0, 507), (508, 511)]);
    assert_eq!(merged(512, 511), [(0, 508), (509, 511)]);
    assert_eq!(merged(16, 7), [(10, 15), (0, 4), (5, 9)]);
    assert_eq!(merged(4, 1), [(0, 3)]);
}

#[test]
fn d_4_3_points_before_each_unit_of_32_mib_or_of_a_page() {
    let (gib, middle) = (1024 * MIB_PAGES, 512 * MIB_PAGES);
    let x86 = plan(Rule::merged(Arch::X86_64), gib, middle, Preemption::Cooperative);
    assert_eq!(x86.units().count(), 16 + 16 + 1);
    assert_eq!(x86.steps().count(), 2 * 33);
    assert_eq!(x86.steps().next(), Some(Step::Reschedule));
    let arm = plan(Rule::merged(Arch::Other), 16, 7, Preemption::Cooperative);
    assert_eq!(pages(&arm), [10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(arm.steps().count(), 32);
    let arm = plan(Rule::merged(Arch::Other), 16, 7, Preemption::Preemptible);
    assert_eq!(extents(&arm), [(10, 15), (0, 4), (5, 9)]);
}

#[test]
fn d_4_2_posted_units_are_followed_by_points_and_the_extent_by_one_more() {
    let rule = |unit_bytes| Rule::Posted { straight_over_pages: u64::MAX, unit_bytes };
    let cooperative = |nr_pages| plan(rule(8 << 20), nr_pages, 0, Preemption::Cooperative);
    // Near is pages 0 to 2, so the right extent has 3 pages less than the folio.
    assert_eq!(pattern(&cooperative(20 * MIB_PAGES + 3)), "u8 r u8 r u4 r u0 r");
    assert_eq!(pattern(&cooperative(16 * MIB_PAGES + 3)), "u8 r u8 r r u0 r");
    let preemptible = plan(rule(8 << 20), 20 * MIB_PAGES + 3, 0, Preemption::Preemptible);
    assert_eq!(pattern(&preemptible), "u20 u0");
    // The remainder begins where the whole units end, not at a page number shifted twice.
    let units: Vec<_> = cooperative(20 * MIB_PAGES + 3).units().collect();
    let rest = Unit { first: 3 + 16 * MIB_PAGES, nr: 4 * MIB_PAGES, region: Region::Right };
    assert_eq!(units[2], rest);
}

#[test]
fn d_4_2_posted_gigantic_folios_go_straight_up_and_only_on_x86_with_preemption() {
    let posted = Rule::posted(PAGE, Arch::X86_64, PreemptBuild::Preemption);
    let gib = 1024 * MIB_PAGES;
    let preemptible = plan(posted, gib, 700, Preemption::Preemptible);
    assert_eq!(extents(&preemptible), [(0, gib - 1)]);
    let cooperative = plan(posted, gib, 700, Preemption::Cooperative);
    assert_eq!(cooperative.units().count(), 128);
    let pmd = plan(posted, 512, 255, Preemption::Cooperative);
    assert_eq!(extents(&pmd), [(258, 511), (0, 252), (253, 257)]);
    let converging = Rule::converging(PAGE);
    assert_eq!(Rule::posted(PAGE, Arch::Other, PreemptBuild::Preemption), converging);
    assert_eq!(Rule::posted(PAGE, Arch::X86_64, PreemptBuild::NoPreemption), converging);
}

#[test]
fn l_18_the_near_region_is_five_pages_and_fewer_at_the_edges() {
    let near = |n| {
        let plan = plan(Rule::merged(Arch::X86_64), 512, n, Preemption::Preemptible);
        plan.units().last().unwrap()
    };
    let sizes = [0, 1, 2, 255, 509, 510, 511].map(|n| near(n).nr);
    assert_eq!(sizes, [3, 4, 5, 5, 5, 4, 3]);
    assert!([0, 255, 511].into_iter().all(|n| near(n).region == Region::Near));
}

#[test]
fn a_shape_that_is_no_folio_has_no_plan() {
    let refused = |shape| Plan::new(Rule::converging(PAGE), shape, Preemption::Cooperative);
    let good = shape(8, 3);
    assert_eq!(refused(Shape { nr_pages: 0, ..good }), Err(PlanError::NoPages));
    let outside = PlanError::FaultPageOutside { fault_page: 8, nr_pages: 8 };
    assert_eq!(refused(Shape { fault_page: 8, ..good }), Err(outside));
    let odd = PlanError::PageBytes { page_bytes: 3 };
    assert_eq!(refused(Shape { page_bytes: 3, ..good }), Err(odd));
    let long = PlanError::TooLong { nr_pages: u64::MAX, page_bytes: PAGE };
    assert_eq!(refused(Shape { nr_pages: u64::MAX, ..good }), Err(long));
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let unit_bytes = prop_oneof![Just(0), 1..40 * PAGE, Just(8 << 20), Just(u64::MAX)];
    (0..4u8, 0..300u64, unit_bytes).prop_map(|(kind, straight_over_pages, unit_bytes)| match kind {
        0 => Rule::Converging { straight_over_pages },
        1 => Rule::Posted { straight_over_pages, unit_bytes },
        2 => Rule::Merged { unit_bytes },
        _ => Rule::OnePass { unit_bytes },
    })
}

fn any_preemption() -> impl Strategy<Value = Preemption> {
    prop_oneof![Just(Preemption::Cooperative), Just(Preemption::Preemptible)]
}

proptest! {
    #[test]
    fn every_page_is_done_once_and_the_fault_page_late(
        rule in any_rule(), nr_pages in 1..600u64, fault in 0..600u64, preemption in any_preemption(),
    ) {
        let fault_page = fault % nr_pages;
        let plan = plan(rule, nr_pages, fault_page, preemption);
        let order = pages(&plan);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..nr_pages));
        let has_near = plan.units().any(|unit| unit.region == Region::Near);
        if has_near {
            let late = order[order.len().saturating_sub(5)..].contains(&fault_page);
            prop_assert!(late, "{order:?}");
        }
    }

    #[test]
    fn units_ascend_within_their_region_and_reach_the_unit_size(
        unit_pages in 1..50u64, nr_pages in 1..600u64, fault in 0..600u64,
    ) {
        let rule = Rule::Merged { unit_bytes: unit_pages * PAGE };
        let plan = plan(rule, nr_pages, fault % nr_pages, Preemption::Cooperative);
        let units: Vec<_> = plan.units().collect();
        for pair in units.windows(2).filter(|pair| pair[0].region == pair[1].region) {
            prop_assert_eq!(pair[0].first + pair[0].nr, pair[1].first);
            prop_assert_eq!(pair[0].nr, unit_pages);
        }
        prop_assert!(units.iter().all(|unit| unit.nr <= unit_pages));
    }

    #[test]
    fn a_preemptible_kernel_needs_no_points_and_a_cooperative_one_has_them(
        rule in any_rule(), nr_pages in 1..600u64, fault in 0..600u64,
    ) {
        let points = |preemption| {
            let plan = plan(rule, nr_pages, fault % nr_pages, preemption);
            let nr_points = plan.steps().filter(|step| *step == Step::Reschedule).count();
            (nr_points, plan.units().count())
        };
        prop_assert_eq!(points(Preemption::Preemptible).0, 0);
        let (nr_points, nr_units) = points(Preemption::Cooperative);
        prop_assert!(nr_points >= nr_units);
    }

    #[test]
    fn units_and_points_are_known_without_going_through_them(
        rule in any_rule(), nr_pages in 1..600u64, fault in 0..600u64, preemption in any_preemption(),
    ) {
        let plan = plan(rule, nr_pages, fault % nr_pages, preemption);
        let nr_points = plan.steps().filter(|step| *step == Step::Reschedule).count() as u64;
        prop_assert_eq!((plan.nr_units(), plan.nr_points()), (plan.units().count() as u64, nr_points));
    }
}
