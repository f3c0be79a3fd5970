//! The safe API with this platform's primitives; small enough for an interpreter.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use largefolio_bulk::plan::{Arch, Plan, PreemptBuild, Preemption, Region, Rule, Shape, Step};
use largefolio_bulk::{
    Clearer, Copier, FolioError, Primitive, RangeError, Residency, Tuning, clear_extent,
    clear_extent_raw, clear_folio, copy_extent, copy_extent_raw, copy_folio,
};

const PAGE: usize = if cfg!(miri) { 16 } else { 64 };
const HINTS: [Residency; 3] = [Residency::TouchedNow, Residency::NotTouched, Residency::Unknown];

fn shape(nr_pages: u64, fault_page: u64) -> Shape {
    Shape { nr_pages, fault_page, page_bytes: PAGE as u64 }
}

fn rules() -> [Rule; 6] {
    let unit_bytes = 3 * PAGE as u64;
    [
        Rule::converging(PAGE as u64),
        Rule::posted(PAGE as u64, Arch::X86_64, PreemptBuild::Preemption),
        Rule::Posted { straight_over_pages: 100, unit_bytes },
        Rule::merged(Arch::Other),
        Rule::Merged { unit_bytes },
        Rule::OnePass { unit_bytes },
    ]
}

fn plans() -> impl Iterator<Item = Plan> {
    let shapes = (1..=9).flat_map(|nr| (0..nr).map(move |n| shape(nr, n)));
    shapes.flat_map(|shape| {
        rules().into_iter().flat_map(move |rule| {
            [Preemption::Cooperative, Preemption::Preemptible]
                .map(|preemption| Plan::new(rule, shape, preemption).unwrap())
        })
    })
}

#[test]
fn an_extent_is_cleared_with_every_hint_and_nothing_beside_it() {
    for hint in HINTS {
        for (start, len) in [(0, 0), (5, 0), (0, 300), (1, 1), (3, 64), (7, 250)] {
            let mut bytes = [9u8; 300];
            clear_extent(&mut bytes[start..start + len], hint);
            assert!(bytes[..start].iter().chain(&bytes[start + len..]).all(|&byte| byte == 9));
            assert!(bytes[start..start + len].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn an_extent_is_copied_with_every_hint_and_nothing_beside_it() {
    let from: Vec<u8> = (0..=255).collect();
    for hint in HINTS {
        let mut to = [9u8; 300];
        copy_extent(&mut to[10..210], &from[3..203], hint).unwrap();
        assert_eq!(&to[10..210], &from[3..203]);
        assert!(to[..10].iter().chain(&to[210..]).all(|&byte| byte == 9));
        let refused = copy_extent(&mut to[..5], &from[..6], hint);
        assert_eq!(refused, Err(RangeError::Lengths { to_bytes: 5, from_bytes: 6 }));
    }
}

#[test]
fn raw_forms_do_the_same() {
    let (mut to, from) = ([9u8; 200], [3u8; 200]);
    let at = to.as_mut_ptr();
    // SAFETY: 50 bytes from the tenth are inside the array.
    unsafe { clear_extent_raw(at.wrapping_add(10), 50, Residency::Unknown) }.unwrap();
    // SAFETY: 70 bytes from the hundredth are inside both arrays, which are distinct.
    unsafe { copy_extent_raw(at.wrapping_add(100), from.as_ptr(), 70, Residency::TouchedNow) }
        .unwrap();
    let count = |value| to.iter().map(|&byte| usize::from(byte == value)).sum::<usize>();
    assert_eq!((count(0), count(3), count(9)), (50, 70, 80));
}

#[test]
fn a_folio_is_cleared_and_copied_whole_in_every_order() {
    for plan in plans() {
        let len = usize::try_from(plan.shape().len_bytes()).unwrap();
        let mut folio = vec![9u8; len];
        let from: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut nr_points = 0;
        copy_folio(&mut folio, &from, &plan, || nr_points += 1).unwrap();
        assert_eq!(folio, from, "{plan:?}");
        clear_folio(&mut folio, &plan, || nr_points += 1).unwrap();
        assert!(folio.iter().all(|&byte| byte == 0), "{plan:?}");
        let planned = plan.steps().filter(|step| *step == Step::Reschedule).count();
        assert_eq!(nr_points, 2 * planned);
    }
}

fn interrupted(plan: &Plan, stop: usize) -> Vec<u8> {
    let mut folio = vec![9u8; usize::try_from(plan.shape().len_bytes()).unwrap()];
    let mut nr_points = 0;
    let cleared = catch_unwind(AssertUnwindSafe(|| {
        clear_folio(&mut folio, plan, || {
            if nr_points == stop {
                resume_unwind(Box::new(()));
            }
            nr_points += 1;
        })
    }));
    assert!(cleared.is_err(), "no point {stop} in {plan:?}");
    folio
}

#[test]
fn at_every_point_exactly_the_units_before_it_are_cleared() {
    for plan in plans().filter(|plan| plan.shape().nr_pages >= 8) {
        let (mut zero, mut nr_points) = (vec![false; 9 * PAGE], 0);
        for step in plan.steps() {
            if let Step::Unit(unit) = step {
                let [first, nr] = [unit.first, unit.nr].map(|n| usize::try_from(n).unwrap());
                zero[first * PAGE..(first + nr) * PAGE].fill(true);
                continue;
            }
            let folio = interrupted(&plan, nr_points);
            assert!(folio.iter().zip(&zero).all(|(&byte, &zero)| (byte == 0) == zero), "{plan:?}");
            nr_points += 1;
        }
    }
}

#[test]
fn bytes_of_another_length_are_refused_unwritten() {
    let plan = Plan::new(Rule::merged(Arch::X86_64), shape(4, 1), Preemption::Preemptible).unwrap();
    let mut folio = [9u8; 4 * PAGE];
    let error = clear_folio(&mut folio[1..], &plan, || {}).unwrap_err();
    assert_eq!(error, FolioError::Length { len_bytes: 4 * PAGE - 1, plan_bytes: 4 * PAGE as u64 });
    let error = copy_folio(&mut folio, &[1; PAGE], &plan, || {}).unwrap_err();
    assert!(matches!(error, FolioError::Range(RangeError::Lengths { .. })));
    assert!(folio.iter().all(|&byte| byte == 9));
}

#[test]
fn the_near_region_is_kept_and_the_far_ones_may_go() {
    assert_eq!(Region::Near.residency(), Residency::TouchedNow);
    assert_eq!(Region::Right.residency(), Residency::NotTouched);
    assert_eq!(Region::Left.residency(), Residency::NotTouched);
    let tuning = Tuning::host();
    for nr_pages in 1..=5 {
        let near = tuning.clearer(nr_pages * 4096, Region::Near.residency());
        assert!(!near.primitive().is_streaming());
        let near = tuning.copier(nr_pages * 4096, Region::Near.residency());
        assert!(!near.primitive().is_streaming());
    }
}

#[test]
fn what_no_cpu_does_is_not_offered() {
    assert!(Clearer::new(Primitive::Portable).is_some());
    assert!(Copier::new(Primitive::ClZero).is_none() && Copier::new(Primitive::DcZva).is_none());
    let foreign = if cfg!(target_arch = "x86_64") { Primitive::Mops } else { Primitive::Avx2 };
    assert!(Clearer::new(foreign).is_none() && Copier::new(foreign).is_none());
}
