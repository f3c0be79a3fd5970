//! This version reads the files of earlier versions of folio, as `docs/guide/versions.md` promises.
//!
//! Folders in `fixtures` are never regenerated. Each later release adds its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use serde_json::Value;

use crate::support::Place;

const VERSIONS: [&str; 2] = ["0.1", "1.0"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Traces of 0.1, with the format version that each needs.
const TRACES: &[(&str, u32)] =
    &[("v1", 1), ("v2", 2), ("v3", 3), ("v4-execs", 4), ("v4-faults", 4), ("v5", 5)];

#[test]
fn earlier_traces_keep_their_events() {
    let place = Place::new();
    for (name, version) in TRACES {
        let trace = fixture(&format!("0.1/{name}.folio")).display().to_string();
        let info: Value =
            serde_json::from_str(&place.done(&format!("trace info {trace} --json"))).unwrap();
        assert_eq!(
            (&info["meta"]["schema_version"], &info["schema_version"]),
            (&(*version).into(), &1.into())
        );
        let events = place.done(&format!("trace cat {trace} --csv"));
        let expected = fs::read_to_string(fixture(&format!("0.1/{name}.csv"))).unwrap();
        assert!(events == expected, "{name}: other events than 0.1 read");
        place.done(&format!("predict {trace} --kernel 6.12 --machine altra"));
    }
    let written: BTreeSet<u32> = TRACES.iter().map(|(_, version)| *version).collect();
    assert_eq!(written, (1..=5).collect(), "a version of the schema has no trace");
}

fn pointers(at: &str, value: &Value, paths: &mut BTreeSet<String>) {
    paths.insert(at.to_owned());
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        pointers(&format!("{at}/{name}"), value, paths);
    }
}

#[test]
fn results_keep_their_fields() {
    let place = Place::new();
    let trace = fixture("0.1/v1.folio").display().to_string();
    let now = place.done(&format!("predict {trace} --kernel 6.12,7.2 --machine altra --json"));
    let now: Value = serde_json::from_str(&now).unwrap();
    let fields = |value: &Value| {
        let mut paths = BTreeSet::new();
        pointers("", value, &mut paths);
        pointers("/rows", &value["rows"][0], &mut paths);
        paths
    };
    // Sizes, costs and reasons that are data are not fields.
    let is_data = |at: &&String| {
        let kinds =
            ["by_size", "cached_bytes", "asked", "constants", "stand_ins", "causes", "pressure"];
        kinds.iter().any(|kind| at.contains(&format!("/{kind}/")))
    };
    for version in VERSIONS {
        let before = json(&fixture(&format!("{version}/predict.json")));
        // Version 2 changed the meaning of `is_judged`, and no field went.
        let version_of = |result: &Value| result["schema_version"].as_u64();
        assert!(version_of(&before) <= version_of(&now), "the fixture of {version} is newer");
        let before = fields(&before);
        let now = fields(&now);
        let gone: Vec<&String> = before.difference(&now).filter(|at| !is_data(at)).collect();
        assert!(gone.is_empty(), "{version} has these: {gone:?}");
        assert!(before.len() > 100, "{}", before.len());
    }
}

fn columns(path: &Path) -> BTreeSet<String> {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let name_and_type = |column: &parquet::schema::types::ColumnDescPtr| {
        format!("{} {:?}", column.path().string(), column.physical_type())
    };
    schema.columns().iter().map(name_and_type).collect()
}

#[test]
fn data_frames_keep_their_columns() {
    let place = Place::new();
    let trace = fixture("0.1/v1.folio").display().to_string();
    let args = "--kernel 6.12,7.2 --machine altra --parquet -o now.parquet";
    place.done(&format!("predict {trace} {args}"));
    let now = columns(&place.path("now.parquet"));
    for version in VERSIONS {
        let before = columns(&fixture(&format!("{version}/predict.parquet")));
        let gone: Vec<&String> = before.difference(&now).collect();
        assert!(gone.is_empty(), "{version} has these columns: {gone:?}");
        assert!(before.len() > 100, "{}", before.len());
    }
}

fn assert_sweep_continues(version: &str) {
    let place = Place::new();
    fs::create_dir(place.path("sweep")).unwrap();
    for entry in fs::read_dir(fixture(&format!("{version}/sweep"))).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, place.path("sweep").join(path.file_name().unwrap())).unwrap();
    }
    let before = json(&place.path("sweep/_manifest.json"));
    let trace = fixture("0.1/v1.folio").display().to_string();
    let args = format!("predict {trace} --kernel 6.12,7.2 --machine altra --sweep sweep --json");
    let now: Value = serde_json::from_str(&place.done(&args)).unwrap();
    let runs = now["runs"].as_array().unwrap();
    assert_eq!(runs[0], before["runs"][0], "the first request is still listed");
    // Cells with unchanged rules are found; rows with other rules stay next to the new ones.
    let nr = |value: &Value| value.as_u64().unwrap();
    let (found, done) = (nr(&runs[1]["nr_found"]), nr(&runs[1]["nr_done"]));
    assert_eq!((found + done, nr(&now["nr_cells"])), (2, nr(&before["nr_cells"]) + done));
    assert_eq!(runs[1]["set_aside"], serde_json::json!([]), "a part of {version} is damaged");
    assert_eq!(now["failed"], serde_json::json!([]));
}

#[test]
fn an_earlier_sweep_can_continue() {
    for version in VERSIONS {
        assert_sweep_continues(version);
    }
}

#[test]
fn earlier_readings_can_be_read() {
    let place = Place::new();
    let reading = fixture("0.1/maps.json").display().to_string();
    let stdout = place.done(&format!("maps --diff {reading} {reading}"));
    assert!(stdout.contains("1 the same"), "{stdout}");
}

/// Files that users write or copy: a kernel with every rule, a machine, a tuning profile.
#[test]
fn files_of_users_are_read() {
    let place = Place::new();
    let file = |name: &str| fixture(&format!("1.0/{name}")).display().to_string();
    let trace = fixture("0.1/v1.folio").display().to_string();
    let (kernel, machine) = (file("kernel.toml"), file("machine.toml"));
    let stdout = place.done(&format!("predict {trace} --kernel {kernel} --machine {machine}"));
    assert!(stdout.contains("altra-of-1.0, 4K pages"), "{stdout}");
    let settings = place.path("sys/kernel/mm/transparent_hugepage");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("enabled"), "always madvise [never]\n").unwrap();
    let plan = place.done(&format!("tune --root . --profile {} --json", file("tuning.toml")));
    assert!(plan.contains("\"thp.enabled\""), "{plan}");
}
