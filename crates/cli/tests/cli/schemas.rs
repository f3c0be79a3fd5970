//! Every JSON of the command line matches its schema, and has no field that the schema lacks.
//!
//! `Place::run` checks the JSON of all tests here; the table in this file has a command for each
//! schema.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;

use serde_json::{Deserializer, Value};

use crate::help::VERBS;
use crate::schema::Closed;
use crate::support::{Place, hold_settings};

/// Schemas of results that need root, on a kernel that can be traced.
const ROOT_SCHEMAS: &[&str] = &["collapse", "maps-waste", "maps-stalls", "maps-hot"];

/// The schemas that `folio schema` prints, changed to forbid further fields.
fn validators() -> &'static BTreeMap<String, Closed> {
    static VALIDATORS: OnceLock<BTreeMap<String, Closed>> = OnceLock::new();
    VALIDATORS.get_or_init(|| {
        let closed = |name: String| (name.clone(), Closed::new(&name, published_schema(&name)));
        names().into_iter().map(closed).collect()
    })
}

/// Returns the names that `folio schema` lists. (`Place::done` would recurse.)
fn names() -> Vec<String> {
    let list = stdout_of("schema");
    list.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn published_schema(name: &str) -> Value {
    serde_json::from_str(&stdout_of(&format!("schema {name}"))).unwrap()
}

fn stdout_of(args: &str) -> String {
    let output = Place::new().command(args).output().unwrap();
    assert!(output.status.success(), "{args}");
    String::from_utf8(output.stdout).unwrap()
}

fn schema_of(args: &[&str], value: &Value) -> &'static str {
    let has = |word| args.contains(&word);
    match args {
        ["predict", ..] if has("--sweep") => "sweep",
        ["predict", ..] => "predict",
        ["maps", ..] if has("--diff") => "maps-diff",
        ["maps", ..] if has("--elf") => "maps-elf",
        ["maps", ..] if has("--waste") => "maps-waste",
        ["maps", ..] if has("--hot") => "maps-hot",
        ["maps", ..] if has("--stalls") => "maps-stalls",
        ["maps", ..] => "maps",
        ["advise", ..] if value.get("processes").is_some() => "advise-process",
        ["advise", ..] => "advise",
        ["warm", ..] => "warm",
        ["collapse", ..] => "collapse",
        ["tune", ..] => "tune",
        ["verify", ..] => "verify",
        ["trace", "info", ..] => "trace-info",
        ["trace", "cat", ..] => "trace-cat",
        ["calibrate", ..] if args.iter().any(|word| word.starts_with("--programs")) => {
            "calibrate-programs"
        }
        ["calibrate", ..] if has("--check") => "calibrate-check",
        ["calibrate", ..] => "calibrate",
        _ => panic!("folio {}: which schema has this JSON?", args.join(" ")),
    }
}

/// Returns the arguments of folio itself if they request JSON on standard output.
fn asks_for_json(args: &str) -> Option<Vec<&str>> {
    let own: Vec<&str> = args.split_whitespace().take_while(|word| *word != "--").collect();
    let goes_elsewhere = own.contains(&"-o") && own.first() == Some(&"predict");
    (own.contains(&"--json") && !goes_elsewhere).then_some(own)
}

fn faults(name: &str, value: &Value) -> Vec<String> {
    let closed = validators().get(name).unwrap_or_else(|| panic!("there is no schema {name}"));
    closed.faults(value)
}

pub(crate) fn check(args: &str, stdout: &[u8]) {
    let Some(own) = asks_for_json(args) else { return };
    for value in Deserializer::from_slice(stdout).into_iter::<Value>() {
        let value = value.unwrap_or_else(|fault| panic!("{args}: no JSON: {fault}"));
        let name = schema_of(&own, &value);
        let faults = faults(name, &value);
        assert!(faults.is_empty(), "{args}: mend schemas/{name}.json, or the result: {faults:#?}");
    }
}

#[test]
fn a_result_is_checked_for_every_schema() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    let own = std::process::id();
    fs::write(place.path("old.json"), place.done(&format!("maps {own} --json"))).unwrap();
    let program = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
    let commands = [
        "predict mix.folio --kernel 6.12,7.2 --machine altra --why --json".to_owned(),
        "predict mix.folio --kernel 6.12 --machine altra --sweep set --json".to_owned(),
        "predict mix.folio --kernel 6.12 --machine altra --where --latency --json".to_owned(),
        format!("maps {own} --json"),
        format!("maps {own} --diff old.json --json"),
        format!("maps --elf {program} --json"),
        "advise mix.folio --json".to_owned(),
        format!("advise {own} --json"),
        "warm --check mix.folio --json".to_owned(),
        "tune --json".to_owned(),
        "verify --env X=1 --runs 4 --margin 50 --json -- true".to_owned(),
        "trace info mix.folio --json".to_owned(),
        "trace cat mix.folio --head 100 --json".to_owned(),
        "calibrate --quick --dir . -o quick.toml --json".to_owned(),
        "calibrate --check --quick --dir . --machine zen4 --json".to_owned(),
    ];
    // The tests of calibrate check this one: it needs a machine file.
    let mut checked = BTreeSet::from(["calibrate-programs".to_owned()]);
    let root_commands = [
        format!("collapse {own} --kind anon --json"),
        format!("maps {own} --waste --json"),
        "maps --stalls --for 1s --json".to_owned(),
        format!("maps {own} --hot --for 1s --json"),
    ];
    for args in commands.iter().chain(&root_commands) {
        if args.starts_with("calibrate") && !largefolio_testkit::is_whole() {
            largefolio_testkit::skipped!("only `make test-all` checks `folio {args}`");
            checked.insert(schema_of(&asks_for_json(args).unwrap(), &Value::Null).to_owned());
            continue;
        }
        let output = place.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // Without root, or in a container, whose processes the kernel's events do not name.
        if let Some(at) = root_commands.iter().position(|one| one == args)
            && output.status.code() == Some(2)
            && (!rustix::process::geteuid().is_root() || stderr.contains("PID namespace"))
        {
            largefolio_testkit::skipped!("{args}: {stderr}");
            checked.insert(ROOT_SCHEMAS[at].to_owned());
            continue;
        }
        assert!(matches!(output.status.code(), Some(0 | 1)), "{args}: {stderr}");
        let value = Deserializer::from_slice(&output.stdout).into_iter::<Value>().next();
        let value = value.unwrap_or_else(|| panic!("{args}: printed nothing")).unwrap();
        checked.insert(schema_of(&asks_for_json(args).unwrap(), &value).to_owned());
    }
    assert_eq!(Vec::from_iter(checked), names());
}

#[test]
fn the_published_files_are_those_that_folio_prints() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut stems: Vec<String> =
        files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    stems.sort();
    assert_eq!(stems, names());
    for name in names() {
        let file = fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
        assert_eq!(stdout_of(&format!("schema {name}")), file);
        // The title is the command, and its verb has the option.
        let title = published_schema(&name)["title"].as_str().unwrap().to_owned();
        assert!(title.starts_with("folio ") && title.contains(" --json"), "{title}");
    }
}

#[test]
fn every_verb_with_json_has_a_schema() {
    for verb in VERBS {
        if stdout_of(&format!("{verb} --help")).contains("--json\n") {
            let args: Vec<&str> = verb.split_whitespace().collect();
            let name = schema_of(&args, &Value::Null);
            assert!(names().iter().any(|known| known == name), "{verb}: no schema {name}");
        }
    }
}

#[test]
fn detects_a_new_missing_or_retyped_field() {
    let place = Place::with_trace();
    let info = place.done("trace info mix.folio --json");
    let info: Value = serde_json::from_str(&info).unwrap();
    assert!(faults("trace-info", &info).is_empty());
    let assert_fault = |expected: &str, change: &dyn Fn(&mut Value)| {
        let mut other = info.clone();
        change(&mut other);
        let message = faults("trace-info", &other).join("; ");
        assert!(message.contains(expected), "{expected}: {message}");
    };
    assert_fault("news", &|info| info["meta"]["news"] = 1.into());
    assert_fault("brk", &|info| {
        info["meta"].as_object_mut().unwrap().remove("brk");
    });
    assert_fault("string", &|info| info["meta"]["files"][0]["path"] = 7.into());
    assert_fault("1 was expected", &|info| info["schema_version"] = 2.into());
    assert!(schema_forgives_what_is_new(&info), "the published schema lets fields be added");
}

fn schema_forgives_what_is_new(info: &Value) -> bool {
    let mut more = info.clone();
    more["meta"]["news"] = 1.into();
    jsonschema::validator_for(&published_schema("trace-info")).unwrap().is_valid(&more)
}
