//! Every JSON result matches its schema in `crates/lab/schemas`, and has no field that it lacks.

use std::fs;

use serde_json::{Deserializer, Value};

use crate::schema::Closed;
use crate::support::Place;

fn schema_of(command: &str) -> &'static str {
    match command.split_whitespace().collect::<Vec<_>>()[..] {
        ["study", ..] => "study",
        ["bench", ..] => "bench",
        ["crosscheck", "cow" | "collapse", ..] => "crosscheck-programs",
        ["crosscheck", "run", ..] => "crosscheck-run",
        ["crosscheck", "workloads", ..] => "crosscheck-workloads",
        ["crosscheck", ..] => "crosscheck",
        _ => panic!("folio-lab {command}: which schema has this JSON?"),
    }
}

pub(crate) fn check(command: &str, stdout: &[u8]) {
    let own = command.split(" -- ").next().unwrap();
    if !own.split_whitespace().any(|word| word == "--json") {
        return;
    }
    let name = schema_of(own);
    let path = format!("{}/schemas/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let title = schema["title"].as_str().unwrap();
    assert!(title.starts_with("folio-lab ") && title.contains(" --json"), "{title}");
    let closed = Closed::new(name, schema);
    for value in Deserializer::from_slice(stdout).into_iter::<Value>() {
        let faults = closed.faults(&value.unwrap());
        assert!(faults.is_empty(), "{command}: mend {name}.json, or the result: {faults:#?}");
    }
}

#[test]
fn a_benchmark_matches_its_schema() {
    Place::new().done("bench owners --threads 1 --calls 100 --rounds 2 --json");
}
