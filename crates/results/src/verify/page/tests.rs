//! Verdicts that are not measured on this machine.

use std::time::Duration;

use largefolio_linux::verify::rounds::Rounds;
use largefolio_linux::verify::run::Sample;
use largefolio_linux::verify::verdict::{Verdict, compare};

use super::*;

fn view(nr_rounds: u64, verdict: Verdict) -> VerifyResult {
    let sample = |ns: u64| Sample {
        wall: Duration::from_nanos(ns),
        user: Duration::from_nanos(ns / 2),
        system: Duration::ZERO,
        nr_minor_faults: ns % 7,
        nr_major_faults: 0,
    };
    let ns = |nr: u64| 10_000_000 + nr * 7919 % 100_003;
    let rounds = Rounds {
        plain: (0..nr_rounds).map(|nr| sample(ns(nr))).collect(),
        changed: (0..nr_rounds).map(|nr| sample(ns(nr + 3) * 9 / 10)).collect(),
        is_stopped: false,
    };
    VerifyResult::new(&compare(&rounds), verdict, &rounds)
        .about("wall", 0.01, "<b>heap</b> 64K".to_owned())
        .of(vec!["folio".to_owned(), "verify".to_owned()])
}

#[test]
fn many_rounds_are_thinned_and_the_page_says_so() {
    let page = of(&view(1_600, Verdict::Confirmed)).unwrap().html();
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    assert!(page.contains("1500 of 1600 rounds are shown, evenly spread."));
    assert_eq!(page.matches("<circle class=\"changed-run\"").count(), 1500 + 1500 + 5);
}

#[test]
fn the_verdict_stands_first_and_names_are_text() {
    let page = of(&view(12, Verdict::Confirmed)).unwrap().html();
    let (head, _) = page.split_once("<main>").unwrap();
    assert!(head.contains("class=\"verdict yes\">confirmed"), "{head}");
    assert!(!page.contains("<b>heap"), "a name became an element");
    let page = of(&view(12, Verdict::NotConfirmed)).unwrap().html();
    assert!(page.contains("class=\"verdict no\">not confirmed"));
}

#[test]
fn a_prediction_stands_beside_the_measurement() {
    let mut view = view(12, Verdict::Confirmed);
    let mut predicted = Predicted {
        kernel: "6.18".to_owned(),
        changed_kernel: "6.18+thp=always".to_owned(),
        rules_note: None,
        machine: "zen4".to_owned(),
        difference_ns: Some(-1_000_000),
        ratio: Some(0.9),
        ratio_range: Some([0.85, 0.94]),
        unusable: None,
        holds: Some(false),
        not_known: Vec::new(),
        assumed: vec!["fault".to_owned()],
    };
    view.prediction = Some(predicted.clone());
    let page = of(&view).unwrap().html();
    assert!(page.contains("data-at=\"/prediction/ratio\""));
    assert!(page.contains("outside the predicted bounds") && page.contains("assumed costs: fault"));
    (predicted.ratio, predicted.not_known) = (None, vec!["costs.walk".to_owned()]);
    view.prediction = Some(predicted);
    let page = of(&view).unwrap().html();
    assert!(page.contains("not known: the machine file lacks costs.walk"));
}
