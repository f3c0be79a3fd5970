//! `folio predict --policy`.

use serde_json::Value;

use crate::support::{Place, text};

fn place() -> Place {
    let place = Place::with_trace();
    std::fs::copy("../../policies/exec-order.o", place.path("mine.o")).unwrap();
    place
}

fn json(place: &Place, args: &str) -> Value {
    serde_json::from_str(&place.done(&format!("predict mix.folio {args} --json"))).unwrap()
}

#[test]
fn each_kernel_has_a_column_with_each_policy() {
    let place = place();
    let args = "--kernel 6.16,7.2 --machine altra --policy mine.o,pressure";
    let result = json(&place, args);
    let rows = result["rows"].as_array().unwrap();
    let kernels: Vec<&str> = rows.iter().map(|row| row["kernel"].as_str().unwrap()).collect();
    assert_eq!(
        kernels,
        [
            "6.16",
            "6.16+policy=mine",
            "6.16+policy=pressure",
            "7.2",
            "7.2+policy=mine",
            "7.2+policy=pressure"
        ]
    );
    assert!(rows[0].get("policy").is_none());
    let policy = &rows[1]["policy"];
    assert_eq!(policy["name"], "mine");
    assert_eq!(policy["digest"].as_str().unwrap().len(), 64);
    let counts = &policy["points"]["window"];
    assert!(counts["asked"].as_u64() >= counts["honoured"].as_u64());
    assert!(counts["honoured"].as_u64() > Some(0), "{counts}");
    assert_eq!(counts["refused"], 0);
    let csv = place.done(&format!("predict mix.folio {args} --csv"));
    assert!(csv.contains("6.16+policy=mine,altra,4096,1,cold,17179869184,policy_window_asked,"));
    let table = place.done(&format!("predict mix.folio {args}"));
    assert!(table.contains("6.16+policy=mine on altra: the policy was called"), "{table}");
    assert!(table.contains("honoured, 0 refused)") && !table.contains("--fs xfs"), "{table}");
    let args = format!("predict mix.folio {args}");
    assert!(place.done(&format!("{args} --fs none")).contains("(0 honoured,"));
    let table = place.done(&args.replace("6.16,7.2", "6.1"));
    assert!(table.contains("--fs xfs replays all files on a filesystem that does"), "{table}");
}

#[test]
fn a_policy_is_a_kernel_edit_that_why_explains() {
    let place = place();
    let kernels = "6.16,6.17+policy=mine.o --machine altra";
    let result = json(&place, &format!("--kernel {kernels} --why"));
    let switches = result["why"][0]["switches"].as_array().unwrap();
    let rule = |switch: &Value| switch["rules"][0]["rule"].as_str().unwrap().to_owned();
    let rules: Vec<String> = switches.iter().map(rule).collect();
    assert!(rules.contains(&"policy".to_owned()), "{rules:?}");
    assert!(rules.contains(&"fault.exec".to_owned()), "{rules:?}");
}

#[test]
fn a_sweep_computes_a_changed_policy_again() {
    let place = place();
    let args = "predict mix.folio --kernel 6.16 --machine altra --policy mine.o --sweep all";
    assert!(place.done(args).contains(": 2 cells done, 0 found"));
    assert!(place.done(args).contains(": 0 cells done, 2 found"));
    std::fs::copy("../../policies/always-exec.o", place.path("mine.o")).unwrap();
    assert!(place.done(args).contains(": 1 cell done, 1 found"));
}

#[test]
fn invalid_policies_are_rejected_before_the_replay() {
    let place = place();
    std::fs::write(place.path("text.o"), "not an object").unwrap();
    std::fs::write(place.path("large.o"), vec![0; 2 << 20]).unwrap();
    for (policy, expected) in [
        ("exec-oder", "did you mean exec-order"),
        ("text.o", "it is not a BPF object file"),
        ("large.o", "bytes"),
        ("none.o", "cannot read the policy none.o"),
    ] {
        let output =
            place.run(&format!("predict mix.folio --kernel 7.2 --machine altra --policy {policy}"));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{policy}: {stderr}");
    }
    let stderr = place.fails("maps --elf /bin/true --kernel 7.2+policy=pressure");
    assert!(stderr.contains("omit +policy"), "{stderr}");
}
