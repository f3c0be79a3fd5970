//! Verdicts from synthetic measurements.

use std::time::Duration;

use largefolio_linux::timed_run::Sample;
use largefolio_linux::timed_run::memory_sample::MemorySample;
use largefolio_linux::verify::metric::Metric;
use largefolio_linux::verify::proof::Trace;
use largefolio_linux::verify::rounds::{LoadRun, Rounds};
use largefolio_linux::verify::threshold::Threshold;
use largefolio_linux::verify::verdict::{Judged, VerifyQuestion};

use super::super::result::Change;
use super::*;

/// Rounds in which the changed runs take `percent` of the plain ones.
fn judged_rounds(nr_rounds: u64, percent: u64) -> (Rounds, Judged, VerifyQuestion) {
    let run = |ns: u64| {
        let sample = Sample {
            wall: Duration::from_nanos(ns),
            user: Duration::from_nanos(ns / 2),
            nr_minor_faults: 100,
            ..Sample::default()
        };
        LoadRun { sample, ..LoadRun::default() }
    };
    let ns = |nr: u64| 10_000_000 + nr * 7919 % 100_003;
    let rounds = Rounds {
        plain: (0..nr_rounds).map(|nr| run(ns(nr))).collect(),
        changed: (0..nr_rounds).map(|nr| run(ns(nr + 3) * percent / 100)).collect(),
        ..Rounds::default()
    };
    let metric = Metric::quantity("wall");
    let question =
        VerifyQuestion { metric, margin: 0.01, trace: Trace::Possible, thresholds: Vec::new() };
    let judged = Judged::of(&rounds, &question);
    (rounds, judged, question)
}

fn view(nr_rounds: u64, percent: u64) -> VerifyResult {
    let (rounds, judged, question) = judged_rounds(nr_rounds, percent);
    VerifyResult::new(&rounds, &judged, &question)
        .about(Change { change: "<b>heap</b> 64K".to_owned(), ..Change::default() })
        .of(vec!["folio".to_owned(), "verify".to_owned()])
}

#[test]
fn missing_changes_are_reported_first_and_fail_a_limit() {
    let (mut rounds, _, mut question) = judged_rounds(12, 80);
    for run in rounds.changed.iter_mut().skip(3) {
        run.disturbance = Some("thp.enabled was never".to_owned());
    }
    question.thresholds = vec![Threshold::parse("wall>+2%").unwrap()];
    let judged = Judged::of(&rounds, &question);
    let view = VerifyResult::new(&rounds, &judged, &question);
    assert_eq!((view.verdict, view.nr_counted, view.is_yes()), ("not proved", 3, false));
    let text = view.shown();
    let first = text.lines().nth(1).unwrap();
    assert!(first.starts_with("warning: 9 of 12 rounds do not count"), "{text}");
    assert!(first.contains("thp.enabled was never (rounds 4, 5, 6,"), "{text}");
    assert!(text.contains("\nnot proved: the change took effect in 3 of 12 rounds"), "{text}");
    assert!(text.contains("\nopen: --fail-if wall>+2%"), "{text}");
    assert!(text.find("\nnot proved") < text.find("median [range]"), "{text}");
    let page = of(&view).unwrap().html();
    assert_eq!(page.matches("<td>thp.enabled was never</td>").count(), 9);
}

#[test]
fn rounds_without_a_value_are_none() {
    let (mut rounds, _, mut question) = judged_rounds(12, 80);
    let sample = MemorySample { unknown_bytes: 1 << 20, ..MemorySample::default() };
    for run in rounds.plain.iter_mut().chain(rounds.changed.iter_mut().skip(3)) {
        run.memory = Some(sample.clone());
    }
    question.metric = Metric::quantity("memory");
    let view = VerifyResult::new(&rounds, &Judged::of(&rounds, &question), &question);
    assert_eq!((view.verdict, view.nr_counted), ("inconclusive", 12));
    assert!(view.reason().ends_with(": fewer than 10 rounds cannot decide"), "{}", view.reason());
}

#[test]
fn limits_decide_the_exit_status_if_given() {
    let (rounds, _, mut question) = judged_rounds(12, 105);
    let mut judge = |limit| {
        question.thresholds = vec![Threshold::parse(limit).unwrap()];
        VerifyResult::new(&rounds, &Judged::of(&rounds, &question), &question)
    };
    assert!(judge("wall>+20%").is_yes());
    let failed = judge("wall>+2%");
    assert!(!failed.is_yes() && failed.shown().contains("failed: --fail-if wall>+2%"));
    assert!(!judge("server memory>+2%").is_yes(), "nothing is known of it");
}

#[test]
fn many_rounds_are_thinned_with_a_note() {
    let page = of(&view(1_600, 90)).unwrap().html();
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    assert!(page.contains("1500 of 1600 rounds are shown, evenly spread."));
    assert_eq!(page.matches("<circle class=\"changed-run\"").count(), 1500 + 1500 + 9);
}

#[test]
fn the_verdict_comes_first_and_names_are_escaped() {
    let page = of(&view(12, 90)).unwrap().html();
    let (head, _) = page.split_once("<main>").unwrap();
    assert!(head.contains("class=\"verdict yes\">confirmed"), "{head}");
    assert!(!page.contains("<b>heap"), "a name became an element");
    let page = of(&view(12, 110)).unwrap().html();
    assert!(page.contains("class=\"verdict no\">not confirmed"));
}

#[test]
fn the_page_shows_the_prediction_with_the_measurement() {
    let mut view = view(12, 90);
    let mut predicted = PredictedChange {
        errors: None,
        anchor: None,
        saved_anchor: None,
        not_saved: None,
        kernel: "6.18".to_owned(),
        changed_kernel: "6.18+thp=always".to_owned(),
        rules_note: None,
        machine: "zen4".to_owned(),
        wall: PredictedTime {
            difference_ns: Some(-1_000_000),
            ratio: Some(0.9),
            ratio_range: Some([0.85, 0.94]),
            holds: Some(false),
            ..PredictedTime::default()
        },
        user: PredictedTime::default(),
        system: PredictedTime { ratio: Some(0.5), ..PredictedTime::default() },
        not_known: Vec::new(),
        assumed: vec!["fault".to_owned()],
    };
    view.prediction = Some(predicted.clone());
    let page = of(&view).unwrap().html();
    assert!(page.contains("data-at=\"/prediction/ratio\""));
    assert!(
        page.contains("THE MEASURED RATIO IS OUTSIDE") && page.contains("assumed costs: fault")
    );
    assert!(page.contains("Predicted system time: -50.0%"), "{page}");
    (predicted.wall.ratio, predicted.not_known) = (None, vec!["costs.walk".to_owned()]);
    view.prediction = Some(predicted);
    let page = of(&view).unwrap().html();
    assert!(page.contains("Not known: the machine file lacks costs.walk"));
}
