//! Checks known ranges against concrete numbers (I1).

use proptest::prelude::*;

use super::super::super::interpreter::{computed, computed32, holds};
use super::*;

/// Numbers at sign and half-word boundaries and range ends, and any others.
fn number() -> impl Strategy<Value = u64> {
    let ends = [0, 1, 13, 31, 32, 63, 1 << 31, 1 << 32, 13 << 32, 1 << 63, u64::MAX, HALF];
    let near = (prop::sample::select(ends.to_vec()), -2_i64..3);
    let near = near.prop_map(|(end, by)| end.wrapping_add_signed(by));
    prop_oneof![6 => near, 1 => any::<u64>(), 1 => any::<u32>().prop_map(u64::from)]
}

/// A number, and a true fact about it.
fn known() -> impl Strategy<Value = (u64, Number)> {
    (number(), number(), number(), number(), 0_u8..6).prop_map(|(of, one, two, three, kind)| {
        let around = |of: u64, other: u64| Range { min: of.min(other), max: of.max(other) };
        let all = around(of, one).hull(around(of, two));
        let low = around(of & HALF, three & HALF);
        let known = match kind {
            0 => Number::exact(of),
            1 => Number::of(all),
            2 => Number::new(Range::ANY, low),
            3 => Number::new(all, low),
            // A range of the lower half, after the upper half is cleared.
            4 => return (of & HALF, Number::new(all, low).low_half()),
            _ => Number::ANY,
        };
        (of, known)
    })
}

fn width() -> impl Strategy<Value = Width> {
    prop::sample::select(vec![Width::Whole, Width::Half])
}

fn comparison() -> impl Strategy<Value = u8> {
    let all = (1_u8..=0xd).map(|op| op << 4);
    let is_one = |op: &u8| ![jump::CALL, jump::EXIT].contains(op);
    prop::sample::select(all.filter(is_one).collect::<Vec<_>>())
}

fn is_within(number: u64, known: Number) -> bool {
    let holds = |range: Range, number| range.min <= number && number <= range.max;
    holds(known.all, number) && holds(known.low, number & HALF)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_number_stays_within_what_is_known_of_it(
        ((a, of_a), (b, of_b)) in (known(), known()),
        width in width(),
        op in prop::sample::select((0_u8..=0xc).map(|op| op << 4).collect::<Vec<_>>()),
    ) {
        prop_assert!(is_within(a, of_a) && is_within(b, of_b));
        let given = match width {
            Width::Whole => computed(op, a, b),
            Width::Half => computed32(op, a as u32, b as u32).into(),
        };
        // As `verify` handles a move, and an operation with one operand.
        let computed = match (op, width) {
            (alu::MOV, Width::Whole) => of_b,
            (alu::MOV, Width::Half) => of_b.low_half(),
            _ => of_a.computed(op, of_b, width),
        };
        prop_assert!(is_within(given, computed), "{:x} of {:?}", given, computed);
        prop_assert!(is_within(a, of_a.hull(of_b)) && is_within(b, of_a.hull(of_b)));
    }

    #[test]
    fn shifts_by_every_number_stay_within_what_is_known(
        (a, of_a) in known(),
        by in 0_u64..70,
        width in width(),
        op in prop::sample::select(vec![alu::LSH, alu::RSH, alu::ARSH]),
    ) {
        let given = match width {
            Width::Whole => computed(op, a, by),
            Width::Half => computed32(op, a as u32, by as u32).into(),
        };
        let computed = of_a.computed(op, Number::exact(by), width);
        prop_assert!(is_within(given, computed), "{:x} of {:?}", given, computed);
    }

    #[test]
    fn a_comparison_leaves_every_number_that_gets_there(
        ((a, of_a), (b, of_b)) in (known(), known()),
        width in width(),
        op in comparison(),
    ) {
        let is_taken = holds(op, a, b, width == Width::Half);
        let other = mirrored(op);
        prop_assert_eq!(is_taken, holds(other, b, a, width == Width::Half));
        let [left_a, left_b] = if is_taken {
            [of_a.if_true(op, of_b, width), of_b.if_true(other, of_a, width)]
        } else {
            [of_a.if_false(op, of_b, width), of_b.if_false(other, of_a, width)]
        };
        prop_assert!(is_within(a, left_a), "{:x} of {:?}", a, left_a);
        prop_assert!(is_within(b, left_b), "{:x} of {:?}", b, left_b);
        // The range must not get wider.
        let is_inside = |range: Range, of: Range| of.min <= range.min && range.max <= of.max;
        prop_assert!(is_inside(left_a.all, of_a.all) && is_inside(left_a.low, of_a.low));
    }
}

#[test]
fn comparisons_with_a_sign_and_of_halves_are_understood() {
    let (any, limit) = (Number::ANY, Number::exact(13));
    let all = |min, max| Range { min, max };
    let positive = any.if_false(jump::JSLT, Number::exact(0), Width::Whole);
    assert_eq!(positive.all, all(0, i64::MAX as u64));
    assert_eq!(positive.if_false(jump::JSGT, limit, Width::Whole).all, all(0, 13));
    let minus = Number::exact(u64::MAX);
    assert_eq!(any.if_true(jump::JSGT, minus, Width::Whole).all, all(0, i64::MAX as u64));
    // Below 14 as a signed number includes every negative number.
    assert_eq!(any.if_false(jump::JSGT, limit, Width::Whole), any);
    // The lower half is bounded; the upper half is shifted out or cleared.
    let half = any.if_false(jump::JGT, limit, Width::Half);
    assert_eq!((half.all, half.low), (Range::ANY, all(0, 13)));
    let up = half.computed(alu::LSH, Number::exact(32), Width::Whole);
    assert_eq!(up.computed(alu::RSH, Number::exact(32), Width::Whole).all, all(0, 13));
    assert_eq!(up.computed(alu::ARSH, Number::exact(29), Width::Whole).all, all(0, 13 << 3));
    assert_eq!(half.low_half().all, all(0, 13));
    assert_eq!(half.computed(alu::AND, Number::exact(HALF), Width::Whole).all, all(0, 13));
}
