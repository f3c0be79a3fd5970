//! `predict --anchor` and the file that keeps an anchor with its trace.

use std::fs;

use largefolio_sim::replay::RESULTS_VERSION;
use serde_json::{Value, json};

use crate::schemas;
use crate::support::{Place, hold_settings, is_able, text};

/// Writes a machine file for `cpu`.
fn machine(place: &Place, cpu: &str) {
    let own = format!(
        "name = \"here\"\ndescription = \"a test\"\ncpu = \"{cpu}\"\nbased-on = \"zen4\"\n"
    );
    fs::write(place.path("here.toml"), own).unwrap();
}

fn predicted(place: &Place, args: &str) -> Value {
    let json = place.done(args);
    schemas::check(args, json.as_bytes());
    serde_json::from_str(&json).unwrap()
}

const PREDICT: &str =
    "predict mix.folio --kernel 6.12,7.2 --machine ./here.toml --runtime 100ms --json";

fn anchor_of(digest: &str, slope: f64, results_version: u32) -> String {
    let slope = json!({"low": slope - 0.5, "mid": slope, "high": slope + 0.5});
    let settings = ["thp.enabled=always"];
    let anchor = json!({"cpu": "a CPU", "slope": slope, "nr_rounds": 9, "settings": settings});
    json!({
        "schema_version": 1, "results_version": results_version, "trace_digest": digest,
        "kernel": "6.18", "anchor": anchor,
    })
    .to_string()
}

#[test]
fn an_anchor_multiplies_user_time_on_its_cpu_alone() {
    let place = Place::with_trace();
    machine(&place, "a CPU");
    let plain = predicted(&place, PREDICT);
    let user = |result: &Value, row: usize| {
        let user = &result["rows"][row]["estimate"]["user"];
        ["low", "mid", "high"].map(|end| user[end].as_f64().unwrap())
    };
    let digest = plain["trace"]["digest"].as_str().unwrap();
    let file = place.path("mix.folio.anchor.json");
    fs::write(&file, anchor_of(digest, 3.0, RESULTS_VERSION)).unwrap();
    let anchored = predicted(&place, PREDICT);
    for row in 0..2 {
        let ([_, before, _], after) = (user(&plain, row), user(&anchored, row));
        let expected = [2.5 * before, 3.0 * before, 3.5 * before];
        for (expected, after) in expected.into_iter().zip(after) {
            // Each term is rounded to whole nanoseconds.
            assert!((expected - after).abs() < 5.0, "{expected} {after}");
        }
        let system = |result: &Value| result["rows"][row]["estimate"]["system"].clone();
        assert_eq!(system(&plain), system(&anchored));
    }
    let full = PREDICT.replace("--json", "--full");
    let note = "user time on here: the model's times 3.00 (2.50 to 3.50), as measured for this \
                program (thp.enabled=always; n = 9).";
    let shown = place.done(&full);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&shown).contains(note), "{shown}");

    machine(&place, "another CPU");
    assert_eq!(predicted(&place, PREDICT)["rows"], plain["rows"]);
}

#[test]
fn an_anchor_of_another_recording_or_version_is_ignored_with_a_warning() {
    let place = Place::with_trace();
    machine(&place, "a CPU");
    let plain = predicted(&place, PREDICT);
    let digest = plain["trace"]["digest"].as_str().unwrap();
    for (file, why) in [
        (anchor_of("0", 3.0, RESULTS_VERSION), "it belongs to another recording"),
        (
            anchor_of(digest, 3.0, RESULTS_VERSION + 1),
            "it belongs to another version's predictions",
        ),
        (anchor_of(digest, -3.0, RESULTS_VERSION), "its slope is not a number above 0"),
        ("{\"schema_version\": 1}".to_owned(), "missing field"),
        ("{".repeat(100_000), "key must be a string"),
    ] {
        fs::write(place.path("mix.folio.anchor.json"), file).unwrap();
        let output = place.run(PREDICT);
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("mix.folio.anchor.json is ignored: ") && stderr.contains(why),
            "{why}: {stderr}"
        );
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["rows"], plain["rows"], "{why}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let place = Place::with_trace();
    machine(&place, "a CPU");
    let stderr = place.fails(&format!("{PREDICT} --anchor"));
    let no_command = stderr.contains("does not say which command it is of");
    assert!(no_command || stderr.contains("none of the machines is this one"), "{stderr}");
    let stderr = place.fails("predict mix.folio --sweep out --anchor");
    assert!(stderr.contains("cannot be used with"), "{stderr}");
    let stderr = place.fails("verify --env A=1 --save-anchor -- true");
    assert!(stderr.contains("--trace"), "{stderr}");
}

#[test]
fn a_measured_anchor_is_kept_with_the_trace_and_used_from_then_on() {
    largefolio_testkit::only_in_test_all!("changes settings that other tests read");
    let _settings = hold_settings();
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("changing a setting needs root");
        return;
    }
    let place = Place::new();
    if !is_able(&place.run("record --runs 1 -o job.folio -- sh -c :")) {
        return;
    }
    let recorded: Value =
        serde_json::from_str(&place.done("predict job.folio --kernel 6.12 --json")).unwrap();
    machine(&place, recorded["trace"]["machine"].as_str().unwrap());
    let args = "predict job.folio --kernel this --machine ./here.toml --json";
    let output = place.run(&format!("{args} --anchor"));
    let stderr = text(&output.stderr);
    if !is_able(&output) || stderr.contains("fewer than two that would change") {
        return;
    }
    assert!(stderr.contains("folio: measuring sh -c :"), "{stderr}");
    assert!(stderr.contains("n = 9); kept in "), "{stderr}");
    let file: Value =
        serde_json::from_slice(&fs::read(place.path("job.folio.anchor.json")).unwrap()).unwrap();
    assert!(file["measured"].as_array().unwrap().len() >= 2, "{file}");
    let with: Value = serde_json::from_slice(&output.stdout).unwrap();
    let anchor = &with["rows"][0]["estimate"]["anchor"];
    assert_eq!((anchor, &anchor["nr_rounds"]), (&file["anchor"], &json!(9)));
    assert_eq!(&predicted(&place, args)["rows"][0]["estimate"]["anchor"], anchor);
}

/// 1 s of CPU time, a quarter with a walk in progress.
const PERF_STAT: &str = "
     4,000,000,000      cycles
     2,000,000,000      instructions
            12,000      dtlb_load_misses.walk_completed
             3,000      dtlb_store_misses.walk_completed
       700,000,000      dtlb_load_misses.walk_active
       200,000,000      dtlb_store_misses.walk_active
       100,000,000      itlb_misses.walk_active

       1.200000000 seconds time elapsed
       0.900000000 seconds user
       0.100000000 seconds sys
";

#[test]
fn counts_of_perf_stat_give_the_run_time_and_scale_the_walks() {
    let place = Place::with_trace();
    fs::write(place.path("stat.txt"), PERF_STAT).unwrap();
    let args = "predict mix.folio --kernel 6.12,7.2 --machine zen4 --json";
    let plain = predicted(&place, args);
    let counted = predicted(&place, &format!("{args} --perf-stat stat.txt"));
    let estimate = |result: &Value, row: usize| result["rows"][row]["estimate"].clone();
    let run = &estimate(&counted, 0)["run"];
    assert_eq!((&run["source"], &run["ns"]["mid"]), (&json!("measured"), &json!(1.2e9)));
    assert_eq!(counted["trace"]["counted"]["dtlb_misses"]["mid"], 15_000.0);
    let walks = |result: &Value, row: usize| {
        estimate(result, row)["causes"]["walk"]["ns"].as_f64().unwrap()
    };
    // The first column has the counted time, and the other changes as much as before.
    assert!((walks(&counted, 0) - 2.5e8).abs() < 5.0, "{}", walks(&counted, 0));
    let ratio = |result: &Value| walks(result, 1) / walks(result, 0);
    assert!((ratio(&counted) / ratio(&plain) - 1.0).abs() < 1e-3);
    for cause in ["fault", "tlb", "clear"] {
        let of = |result: &Value| estimate(result, 1)["causes"][cause]["ns"].clone();
        assert_eq!(of(&counted), of(&plain), "{cause}");
    }
    let full = place.done(&args.replace("--json", "--full --perf-stat stat.txt"));
    let words = full.split_whitespace().collect::<Vec<_>>().join(" ");
    for note in [
        "250.00 ms with a walk in progress; cycles per instruction 2.00",
        "from the cycles with a walk in progress in 1 plain run;",
    ] {
        assert!(words.contains(note), "{note}: {full}");
    }
}

#[test]
fn output_of_perf_stat_that_cannot_be_used_is_refused_with_the_reason() {
    let place = Place::with_trace();
    let args = "predict mix.folio --kernel 6.12 --machine zen4 --perf-stat stat.txt";
    assert!(place.fails(args).contains("stat.txt"));
    for (text, why) in [
        ("Performance counter stats\n", "it has no counts"),
        ("1 cycles:u\n1 instructions\n", "count in different modes"),
    ] {
        fs::write(place.path("stat.txt"), text).unwrap();
        let stderr = place.fails(args);
        assert!(stderr.contains(why) && stderr.contains("stat.txt"), "{stderr}");
    }
    let part = PERF_STAT.replace("itlb_misses.walk_active", "branches");
    fs::write(place.path("stat.txt"), part).unwrap();
    let output = place.run(args);
    let stderr = text(&output.stderr);
    assert!(
        output.status.success() && stderr.contains("also need the events itlb_misses"),
        "{stderr}"
    );
}
