//! Rows by hand, and random rows against the documented rule.

use proptest::prelude::*;

use super::*;
use crate::study::file::Ours;

fn row(change: Change, same_within: f64) -> Row {
    Row {
        what: String::new(),
        published: None,
        unit: "%".to_owned(),
        ours_unit: "%".to_owned(),
        change,
        same_within,
        ours: Ours::None(String::new()),
        in_kernel: None,
        basis: Vec::new(),
        inputs_of_series: None,
        other_quantity: None,
        reason: None,
        disagrees: None,
    }
}

fn pair(before: f64, after: f64, measure: Change) -> ValuePair {
    let change = match measure {
        Change::Points => Some(after - before),
        _ if before == 0.0 => (after == 0.0).then_some(0.0),
        _ => Some((after / before - 1.0) * 100.0),
    };
    ValuePair { before: Some(before), after: Some(after), change }
}

fn compared(row: &Row, published: ValuePair, ours: ValuePair) -> Compared {
    Compared {
        published,
        ours,
        closeness: Closeness::of(row, published, ours, false),
        has_own_input: false,
        is_assumed: false,
        is_undecided: false,
    }
}

fn score(row: &Row, published: ValuePair, ours: ValuePair) -> Score {
    Score::of(row, compared(row, published, ours))
}

#[test]
fn a_match_has_the_level_and_the_change() {
    let points = row(Change::Points, 1.0);
    let of = |published: [f64; 2], ours: [f64; 2]| {
        let [published, ours] = [published, ours].map(|[a, b]| pair(a, b, Change::Points));
        score(&points, published, ours)
    };
    assert_eq!(of([46.0, 7.0], [45.0, 7.5]), Score::Match);
    assert_eq!(of([46.0, 7.0], [62.5, 23.5]), Score::Miss);
    assert_eq!(of([11.0, 11.0], [0.0, 0.0]), Score::Miss);
    assert_eq!(of([11.0, 11.0], [11.4, 10.9]), Score::Match);
    assert_eq!(of([0.0, 0.0], [0.0, 0.0]), Score::Zero);
    assert_eq!(of([1.0, 0.0], [0.27, 0.26]), Score::Zero);
    assert_eq!(of([0.0, 0.0], [2.31, 2.28]), Score::Miss);
    let percent = row(Change::Percent, 0.0);
    let of = |published, ours| score(&percent, published, ours);
    let single = |after| ValuePair { before: None, after: Some(after), change: None };
    assert_eq!(of(single(8.0), single(8.0)), Score::Match);
    assert_eq!(of(single(0.0), single(0.0)), Score::Zero);
    assert_eq!(of(single(8.0), single(7.0)), Score::Miss);
    let [some, more] = [4096.0, 6144.0].map(|after| pair(0.0, after, Change::Percent));
    assert_eq!((of(some, some), of(some, more)), (Score::Match, Score::Miss));
    let change = |change| ValuePair { change: Some(change), ..ValuePair::default() };
    assert_eq!(of(change(-65.0), pair(40.0, 15.0, Change::Percent)), Score::Match);
    assert_eq!(of(change(-65.0), pair(40.0, 25.0, Change::Percent)), Score::Miss);
    assert_eq!(of(change(0.0), pair(40.0, 40.0, Change::Percent)), Score::Zero);
}

#[test]
fn a_level_in_another_unit_is_not_met() {
    let mut other = row(Change::Percent, 1.0);
    let published = pair(83.4, 41.3, Change::Percent);
    assert_eq!(score(&other, published, published), Score::Match);
    other.ours_unit = "ms".to_owned();
    assert_eq!(level(&other, published, published), None);
    assert_eq!(score(&other, published, published), Score::Miss);
}

#[derive(Clone, Debug)]
struct Made {
    row: Row,
    compared: Compared,
}

fn made() -> impl Strategy<Value = Made> {
    let number = || prop_oneof![Just(0.0), Just(0.4), Just(11.0), 0.0..2.0_f64, 1.0..100.0_f64];
    let change = prop_oneof![Just(Change::Points), Just(Change::Percent)];
    let kinds = (change, prop_oneof![Just(0.0), Just(1.0)], any::<[bool; 5]>(), 0..3_u8);
    (kinds, [number(), number(), number(), number()], -0.3..0.3_f64).prop_map(
        |((measure, same_within, flags, form), [a, b, c, d], off)| {
            let [has_own_input, is_other, is_assumed, is_near, has_unit] = flags;
            let mut row = row(measure, same_within);
            row.other_quantity = is_other.then(|| "another".to_owned());
            if has_unit {
                row.ours_unit = "ms".to_owned();
            }
            let mut published = pair(a, b, measure);
            let near = [a, b].map(|level| level * (1.0 + off));
            let ours = if is_near { pair(near[0], near[1], measure) } else { pair(c, d, measure) };
            match form {
                0 => (published.before, published.after) = (None, None),
                1 => (published.before, published.change) = (None, None),
                _ => {}
            }
            let compared =
                Compared { has_own_input, is_assumed, ..compared(&row, published, ours) };
            Made { row, compared }
        },
    )
}

proptest! {
    #[test]
    fn random_rows_are_scored_as_the_rule_says(Made { row, compared } in made()) {
        let score = Score::of(&row, compared);
        let Compared { published, ours, .. } = compared;
        if compared.has_own_input {
            prop_assert_eq!(score, Score::OwnInput);
            return Ok(());
        }
        if row.other_quantity.is_some() {
            prop_assert_eq!(score, Score::OtherQuantity);
            return Ok(());
        }
        let slack = |number: f64, unit: f64| (0.1 * number.abs()).max(row.same_within * unit) + 1e-6;
        let near = |published: Option<f64>, ours: Option<f64>, unit: f64| match published {
            None => true,
            Some(published) => ours.is_some_and(|ours| {
                (ours - published).abs() <= slack(published, unit)
            }),
        };
        let is_points = row.change == Change::Points;
        let of_level = |level: Option<f64>| if is_points { 1.0 } else { level.unwrap_or(0.0) / 100.0 };
        let is_near = near(published.before, ours.before, of_level(published.before))
            && near(published.after, ours.after, of_level(published.after))
            && near(published.change, ours.change, 1.0);
        let is_match = matches!(score, Score::Match | Score::Coincidence);
        if is_match {
            let what = format!("{row:?} {compared:?}");
            let has_level = published.before.is_some() || published.after.is_some();
            prop_assert!(is_near || published.change.is_some_and(|change| change.abs() <= row.same_within), "{}", what);
            prop_assert!(!has_level || row.unit == row.ours_unit, "{}", what);
            prop_assert_eq!(score == Score::Coincidence, compared.is_assumed, "{}", what);
            let nothing = |number: Option<f64>| number.is_none_or(|number| number == 0.0);
            let pairs = [published, ours];
            let is_nothing = pairs.iter().all(|p| nothing(p.before) && nothing(p.after) && nothing(p.change));
            prop_assert!(!is_nothing, "{}", what);
        }
        if score == Score::Zero {
            let small = |number: Option<f64>| number.is_none_or(|number| number.abs() <= row.same_within);
            prop_assert!(small(published.before) && small(published.after) && small(published.change));
            prop_assert!(small(ours.change));
        }
    }

    #[test]
    fn a_row_with_an_input_of_its_series_never_counts(Made { row, compared } in made()) {
        let compared = Compared { has_own_input: true, ..compared };
        prop_assert!(!Score::of(&row, compared).is_independent());
    }
}
