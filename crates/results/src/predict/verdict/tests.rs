use std::collections::BTreeMap;

use largefolio_sim::cost::{BaseTime, Estimate, Events, Walks};
use largefolio_sim::machine::{Costs, Quantity, Unit};
use largefolio_sim::replay::outcome::Faults;

use super::*;
use crate::predict::{Options, PredictResult, Settings, TraceInfo};

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

/// The hint if rules were not searched for.
const WHY: &str = "--why shows which rules make the difference.";

fn all_sentences(goal: Goal, rows: Vec<Outcome>) -> Vec<String> {
    let options = Options { goal, ..Options::default() };
    let (trace, settings) = (TraceInfo::default(), Settings::default());
    let report = PredictResult::new(Vec::new(), trace, settings, rows, options);
    let hints = sentences::hints(&report).into_iter().map(str::to_owned);
    sentences::describe(&report).concat().into_iter().chain(hints).collect()
}

#[test]
fn the_column_with_the_fewest_is_best_and_equals_are_named() {
    let rows = vec![row("6.12", "altra", 200), row("6.18", "altra", 150), row("7.2", "altra", 150)];
    let answer = &verdict(Goal::Faults, &rows).answers[0];
    assert_eq!(
        (answer.finding, answer.best, answer.explained_row()),
        (Finding::Better, 1, Some(1))
    );
    assert_eq!(answer.columns[1].change, Some(Interval::exact(-25.0)));
    assert_eq!(answer.columns[1].change_from_best, Some(Interval::exact(0.0)));
    let best = "6.18 is best for faults: 150, 25.0% fewer than with 6.12 (200).";
    let expected = [best, "7.2 is as good.", WHY];
    assert_eq!(all_sentences(Goal::Faults, rows), expected);
}

#[test]
fn the_first_column_may_be_best() {
    let rows = vec![row("6.12", "altra", 100), row("6.18", "altra", 150), row("7.2", "altra", 110)];
    let answer = &verdict(Goal::Memory, &rows).answers[0];
    assert_eq!(
        (answer.finding, answer.best, answer.explained_row()),
        (Finding::FirstIsBest, 0, Some(1))
    );
    let expected = ["6.12 is best for memory: 50.0% more with 6.18, 10.0% more with 7.2.", WHY];
    assert_eq!(all_sentences(Goal::Memory, rows), expected);
}

#[test]
fn machines_and_sizes_of_memory_have_answers_of_their_own() {
    let mut rows = vec![
        row("6.12", "altra", 9),
        row("6.12", "zen4", 5),
        row("7.2", "altra", 8),
        row("7.2", "zen4", 6),
    ];
    let result = verdict(Goal::Faults, &rows);
    let pairs: Vec<_> =
        result.answers.iter().map(|answer| (answer.reference, answer.best)).collect();
    assert_eq!(pairs, [(0, 2), (1, 1)]);
    let sentences = all_sentences(Goal::Faults, rows.clone());
    assert!(sentences[0].starts_with("On altra: 7.2 is best for faults: 8,"), "{sentences:?}");
    assert!(
        sentences[1].starts_with("On zen4: 6.12 is best for faults: 20.0% more"),
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
    assert_eq!(all_sentences(Goal::Faults, rows.clone()), expected);
    let worse = [rows, seeds("7.3", [120, 120, 120])].concat();
    let expected = "Which is best is not certain: 10.0% fewer (-20.0% to +10.0%) with 7.2, 20.0% more with \
                    7.3 than with 6.12.";
    assert_eq!(all_sentences(Goal::Faults, worse)[0], expected, "only one difference is certain");
}

#[test]
fn shared_memory_that_is_gone_at_the_end_counts() {
    let mut rows = vec![row("6.12", "altra", 100), row("7.2", "altra", 100)];
    rows[0].memory_stat = BTreeMap::from([("file", 90 << 10)]);
    rows[1].memory_stat = BTreeMap::from([("file", 400 << 10)]);
    assert_eq!(rows.iter().map(memory_bytes).collect::<Vec<_>>(), [100 << 10, 400 << 10]);
    let answer = &verdict(Goal::Memory, &rows).answers[0];
    assert_eq!((answer.finding, answer.best), (Finding::FirstIsBest, 0));
}

#[test]
fn one_column_and_equal_columns_are_told_so() {
    let alone = |goal| all_sentences(goal, vec![row("6.12", "altra", 100)]).concat();
    assert!(alone(Goal::Time).starts_with("With 6.12, none of the mapped text"));
    assert_eq!(alone(Goal::Faults), "With 6.12, there are 100 faults, 0 of them major.");
    let memory = "With 6.12, memory use is 100 KiB: private memory at its peak, and the page cache \
                  with shared memory.";
    assert_eq!(alone(Goal::Memory), memory);
    let same = vec![row("6.12", "altra", 100), row("7.2", "altra", 100)];
    assert_eq!(verdict(Goal::Faults, &same).answers[0].explained_row(), None);
    assert_eq!(
        all_sentences(Goal::Faults, same),
        ["6.12 and 7.2 have the same number of faults, 100."]
    );
    assert!(verdict(Goal::Time, &[]).answers.is_empty());
}

#[test]
fn time_is_a_share_of_the_run_and_what_nobody_could_measure_is_none() {
    let timed = |kernel, low: f64, mid: f64, high: f64| {
        let total = Some(Interval { low, mid, high });
        let estimate = Estimate { total, run: BaseTime::given(1e9), ..Estimate::default() };
        Outcome { estimate, ..row(kernel, "altra", 1) }
    };
    // Without terms, no cost can explain a difference.
    let rows = vec![timed("6.12", 1e6, 2e6, 3e6), timed("7.2", 1e6, 2e6, 3e6)];
    assert_eq!(verdict(Goal::Time, &rows).answers[0].finding, Finding::Same);
    assert_eq!(all_sentences(Goal::Time, rows), ["6.12 and 7.2 take the same time."]);
}

#[test]
fn a_count_of_nothing_is_compared_without_a_share() {
    let rows = |counts: [u64; 4]| {
        let names = ["6.12", "6.18", "7.2", "7.3"];
        names.into_iter().zip(counts).map(|(name, nr)| row(name, "altra", nr)).collect::<Vec<_>>()
    };
    let all = all_sentences(Goal::Faults, rows([0, 0, 0, 0]));
    assert_eq!(all, ["6.12, 6.18, 7.2 and 7.3 have the same number of faults, 0."]);
    let some = all_sentences(Goal::Faults, rows([0, 0, 3, 5]));
    let expected = "6.12 is best for faults: it has none; 3 with 7.2, 5 with 7.3.";
    assert_eq!(some[..2], [expected, "6.18 is as good."]);
    let less = all_sentences(Goal::Faults, rows([4, 4, 0, 8]));
    assert_eq!(less[0], "7.2 is best for faults: 0, 100.0% fewer than with 6.12 (4).");
    let worse = all_sentences(Goal::Faults, rows([4, 4, 4, 8]));
    assert_eq!(
        worse[..2],
        ["6.12 is best for faults: 100.0% more with 7.3.", "6.18 and 7.2 are as good."]
    );
}

/// Creates a run of one second with faults that cost `low` to `high` ns each.
fn timed(kernel: &str, faults: u64, low: f64, high: f64) -> Outcome {
    let source = "test".to_owned();
    let (unit, range) = (Unit::Ns, Some([low, high]));
    let fault = Quantity { value: 100.0, unit, source, assumed: false, range };
    let costs = Costs { fault: Some(fault), ..Costs::default() };
    let events = Events { faults, ..Events::default() };
    let estimate = Estimate::new(&events, &costs, Walks::Native);
    Outcome {
        estimate: Estimate { run: BaseTime::given(1e9), ..estimate },
        ..row(kernel, "altra", 1)
    }
}

/// 1,000 faults of 100 ns are 0.01% of a run of a second.
#[test]
fn a_sign_is_certain_only_where_every_bound_could_be_measured() {
    let compare = |faults, low, high| {
        let rows = [timed("6.12", 100_000, low, high), timed("7.2", faults, low, high)];
        (
            verdict(Goal::Time, &rows).answers[0].finding,
            all_sentences(Goal::Time, rows.to_vec()).concat(),
        )
    };
    assert_eq!(compare(104_000, 99.0, 101.0).0, Finding::Same, "0.04%");
    let (finding, sentence) = compare(103_000, 10.0, 400.0);
    assert_eq!(finding, Finding::NotCertain, "0% to 0.12%");
    let expected = "No difference is certain: a run takes 0.03% more (0% to +0.12%) with 7.2 than with \
                    6.12.";
    assert!(sentence.starts_with(expected), "{sentence}");
    assert_eq!(compare(106_000, 99.0, 101.0).0, Finding::FirstIsBest, "0.06%");
    assert_eq!(compare(94_000, 99.0, 101.0).0, Finding::Better, "-0.06%");
    assert_eq!(compare(94_000, 80.0, 101.0).0, Finding::NotCertain, "-0.06% to -0.048%");
}
