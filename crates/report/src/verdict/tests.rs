use std::collections::BTreeMap;

use largefolio_sim::cost::{BaseTime, Estimate};
use largefolio_sim::replay::outcome::Faults;

use super::*;
use crate::{PredictResult, Settings, TraceInfo};

/// A row with `faults` and that many KiB of page cache.
fn row(kernel: &str, machine: &str, faults: u64) -> Outcome {
    Outcome {
        kernel: kernel.to_owned(),
        machine: machine.to_owned(),
        page_bytes: 4096,
        faults: Faults { total: faults, ..Faults::default() },
        cached_bytes: BTreeMap::from([(4096, faults << 10)]),
        ..Outcome::default()
    }
}

fn verdict(goal: Goal, rows: &[Outcome]) -> Verdict {
    Verdict::new(goal, rows)
}

/// What is said where rules were not searched for.
const WHY: &str = "--why tells which rules make the difference.";

fn said(goal: Goal, rows: Vec<Outcome>) -> Vec<String> {
    let report = PredictResult::new(Vec::new(), TraceInfo::default(), Settings::default(), rows);
    words::sentences(&report.with_goal(goal)).concat()
}

#[test]
fn the_column_with_the_fewest_is_best_and_equals_are_named() {
    let rows = vec![row("6.12", "altra", 200), row("6.18", "altra", 150), row("7.2", "altra", 150)];
    let answer = &verdict(Goal::Faults, &rows).answers[0];
    assert_eq!((answer.finding, answer.best, answer.told()), (Finding::Better, 1, Some(1)));
    assert_eq!(answer.columns[1].change, Some(Interval::exact(-25.0)));
    assert_eq!(answer.columns[1].change_from_best, Some(Interval::exact(0.0)));
    let best = "6.18 is best for faults: 150, 25.0% fewer than with 6.12 (200).";
    let expected = [best, "7.2 is as good.", WHY];
    assert_eq!(said(Goal::Faults, rows), expected);
}

#[test]
fn the_first_column_may_be_best() {
    let rows = vec![row("6.12", "altra", 100), row("6.18", "altra", 150), row("7.2", "altra", 110)];
    let answer = &verdict(Goal::Memory, &rows).answers[0];
    assert_eq!((answer.finding, answer.best, answer.told()), (Finding::FirstIsBest, 0, Some(1)));
    let expected = ["6.12 is best for memory: 50.0% more with 6.18, 10.0% more with 7.2.", WHY];
    assert_eq!(said(Goal::Memory, rows), expected);
}

#[test]
fn machines_and_sizes_of_memory_have_answers_of_their_own() {
    let mut rows = vec![
        row("6.12", "altra", 9),
        row("6.12", "zen4", 5),
        row("7.2", "altra", 8),
        row("7.2", "zen4", 6),
    ];
    let found = verdict(Goal::Faults, &rows);
    let pairs: Vec<_> =
        found.answers.iter().map(|answer| (answer.reference, answer.best)).collect();
    assert_eq!(pairs, [(0, 2), (1, 1)]);
    let sentences = said(Goal::Faults, rows.clone());
    assert!(sentences[0].starts_with("On altra: 7.2 is best for faults: 8,"), "{sentences:?}");
    assert!(
        sentences[2].starts_with("On zen4: 6.12 is best for faults: 20.0% more"),
        "{sentences:?}"
    );
    rows[2].memory_bytes = 1;
    assert_eq!(verdict(Goal::Faults, &rows).answers.len(), 3);
}

#[test]
fn seeds_are_samples_of_one_column() {
    let seeds = |kernel, faults: [u64; 3]| {
        let of = move |(seed, faults)| Outcome { seed, ..row(kernel, "altra", faults) };
        (0..).zip(faults).map(of).collect::<Vec<_>>()
    };
    let rows = [seeds("6.12", [100, 100, 100]), seeds("7.2", [90, 110, 80])].concat();
    let answer = &verdict(Goal::Faults, &rows).answers[0];
    assert_eq!(answer.columns.len(), 1);
    assert_eq!(answer.columns[0].change, Some(Interval { low: -20.0, mid: -10.0, high: 10.0 }));
    assert_eq!((answer.finding, answer.best), (Finding::NotCertain, 0));
    let expected =
        ["No difference is certain: 10.0% fewer (-20.0% to +10.0%) with 7.2 than with 6.12.", WHY];
    assert_eq!(said(Goal::Faults, rows), expected);
}

#[test]
fn one_column_and_equal_columns_are_told_so() {
    let alone = said(Goal::Faults, vec![row("6.12", "altra", 100)]);
    assert!(alone[0].starts_with("With 6.12, none of the mapped text"), "{alone:?}");
    let same = vec![row("6.12", "altra", 100), row("7.2", "altra", 100)];
    assert_eq!(verdict(Goal::Faults, &same).answers[0].told(), None);
    assert_eq!(said(Goal::Faults, same), ["6.12 and 7.2 have the same faults, 100."]);
    assert!(verdict(Goal::Time, &[]).answers.is_empty());
}

#[test]
fn time_is_a_share_of_the_run_and_what_nobody_could_measure_is_none() {
    let timed = |kernel, low: f64, mid: f64, high: f64| {
        let total = Some(Interval { low, mid, high });
        let estimate = Estimate { total, run: BaseTime::given(1e9), ..Estimate::default() };
        Outcome { estimate, ..row(kernel, "altra", 1) }
    };
    // Without terms there is no difference that a cost could explain.
    let rows = vec![timed("6.12", 1e6, 2e6, 3e6), timed("7.2", 1e6, 2e6, 3e6)];
    assert_eq!(verdict(Goal::Time, &rows).answers[0].finding, Finding::Same);
    assert_eq!(said(Goal::Time, rows), ["6.12 and 7.2 take the same time."]);
}
