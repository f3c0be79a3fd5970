//! `folio trace`.

use std::fs;

use serde_json::Value;

use crate::support::{Place, text};

#[test]
fn generators_are_deterministic_and_follow_the_seed() {
    let place = Place::new();
    for workload in [
        "zipf --runs 5000",
        "random --file-size 1M --reads 500",
        "ret-stubs --pages 64 --calls 500",
    ] {
        let make = |seed: u64, name: &str| {
            place.done(&format!("trace gen {workload} --seed {seed} -o {name}"));
            fs::read(place.path(name)).unwrap()
        };
        let first = make(7, "a");
        assert_eq!(first, make(7, "b"), "{workload}");
        assert_ne!(first, make(8, "c"), "{workload}");
    }
    place.done("trace gen sequential --file-size 1M -o a");
    place.done("trace gen sequential --file-size 1M -o b");
    assert_eq!(fs::read(place.path("a")).unwrap(), fs::read(place.path("b")).unwrap());
}

#[test]
fn generated_traces_can_be_predicted() {
    let place = Place::new();
    for workload in [
        "ret-stubs --pages 64 --order backward --advice hugepage",
        "sequential --file-size 1M --mapped",
        "sequential --file-size 1M",
        "random --file-size 1M --mapped",
        "zipf --runs 0",
    ] {
        place.done(&format!("trace gen {workload} -o t.folio"));
        place.done("predict t.folio");
    }
}

#[test]
fn info_says_what_a_trace_holds() {
    let place = Place::with_trace();
    insta::assert_snapshot!(without_versions(&place.done("trace info mix.folio")));
    let info: Value = serde_json::from_str(&place.done("trace info mix.folio --json")).unwrap();
    assert_eq!(info["schema_version"], 1);
    assert_eq!(info["nr_threads"], 1);
    assert_eq!(info["ops"]["mmap"]["nr_rows"], 3);
    let sum: u64 = info["ops"]
        .as_object()
        .unwrap()
        .values()
        .map(|op| op["nr_references"].as_u64().unwrap())
        .sum();
    assert_eq!(info["meta"]["nr_references"], sum);
}

/// Sizes and versions change with the encoder and the release.
fn without_versions(text: &str) -> String {
    let kept = text.lines().map(|line| match line.split_once(" a row), ") {
        Some((head, _)) => format!("{head} a row), ..\n"),
        None => format!("{}\n", line.replace(env!("CARGO_PKG_VERSION"), "VERSION")),
    });
    kept.collect()
}

#[test]
fn cat_writes_the_events_in_every_form() {
    let place = Place::with_trace();
    insta::assert_snapshot!(place.done("trace cat mix.folio --head 6"));
    insta::assert_snapshot!(place.done("trace cat mix.folio --head 4 --json"));
    insta::assert_snapshot!(place.done("trace cat mix.folio --head 4 --csv"));
    let all = place.done("trace cat mix.folio --csv");
    assert_eq!(all.lines().count(), 1 + 20_004);
    assert_eq!(place.done("trace cat mix.folio --head 0"), "");
    let names = all.lines().next().unwrap();
    assert_eq!(place.done("trace cat mix.folio --head 0 --csv"), format!("{names}\n"));
}

#[test]
fn cat_names_the_effects_of_system_calls() {
    let place = Place::new();
    place.done("trace gen ret-stubs --pages 8 --calls 1 --advice hugepage -o t.folio");
    insta::assert_snapshot!(place.done("trace cat t.folio"));
    place.done("trace gen random --file-size 1M --reads 2 -o r.folio");
    insta::assert_snapshot!(place.done("trace cat r.folio"));
}

#[test]
fn gen_prints_its_summary_on_stderr() {
    let place = Place::new();
    let output = place.run("trace gen sequential --file-size 1M -o t.folio");
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).contains("generated t.folio"), "{}", text(&output.stderr));
}
