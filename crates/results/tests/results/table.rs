//! Compares the data frame with the JSON of the same result, and the Parquet file with the data
//! frame.

use std::collections::BTreeMap;
use std::path::Path;

use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use bytes::Bytes;
use largefolio_results::predict::{Options, PredictResult, Settings, TraceInfo, parquet, table};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Fragmented, Outcome, replay};
use largefolio_trace::generate::{Workload, ZipfMix};
use serde_json::{Map, Value, json};

/// Values keyed by data become lists of structs; the second name is the struct's first field.
const KEYED: &[(&str, &str)] = &[
    ("folios_text_by_size", "folio_bytes"),
    ("folios_data_by_size", "folio_bytes"),
    ("folios_shmem_by_size", "folio_bytes"),
    ("folios_anon_by_size", "folio_bytes"),
    ("folios_text_partial_by_size", "folio_bytes"),
    ("folios_data_partial_by_size", "folio_bytes"),
    ("folios_shmem_partial_by_size", "folio_bytes"),
    ("folios_anon_partial_by_size", "folio_bytes"),
    ("cached_bytes", "folio_bytes"),
    ("anon_sizes", "folio_bytes"),
    ("memory_stat", "name"),
    ("cleared_bytes", "unit_bytes"),
    ("copied_bytes", "unit_bytes"),
    ("latency_sizes", "unit_bytes"),
    ("pmd_refused", "reason"),
    ("collapse_refused", "reason"),
    ("pressure", "name"),
    ("asked", "folio_bytes"),
];

const OF_THE_RESULT: &[&str] = &[
    "cell",
    "trace",
    "program",
    "trace_digest",
    "tool_version",
    "results_version",
    "kernel_text",
    "machine_text",
    "numa",
    "unusable_permille",
    "unusable_bytes",
    "aged_rounds",
    "filesystem",
    "annotations",
    "linked",
    "cgroups",
    "reference_ns",
    "policy",
    "policy_digest",
    "policy_asked",
    "policy_honoured",
    "policy_refused",
    "changes",
];

/// The second row's kernel, which has little memory and a pool of huge pages.
const SMALL: &str = "7.2+anon-64K=always+thp=always+hugepages.2048=2";

fn settings() -> Settings {
    let (memory_bytes, swap_bytes, unusable_permille) = (16 << 30, 1 << 30, 300);
    let filesystem = Some("xfs".to_owned());
    let annotations = vec!["a*=64K".to_owned(), "b=2M".to_owned()];
    let reference_ns = 5;
    Settings {
        memory_bytes,
        swap_bytes,
        unusable_permille,
        unusable_bytes: 64 << 10,
        aged_rounds: 2,
        filesystem,
        annotations,
        changes: vec!["50%:defrag=always".to_owned()],
        allocator: None,
        numa: None,
        reference_ns,
        rules_notes: Vec::new(),
    }
}

/// A program with many effects: pressure, swap, refusals, fragmentation, unknown costs.
fn rich() -> PredictResult {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zipf.folio");
    let mix = ZipfMix { nr_runs: 60_000, filesystem: "xfs".into(), ..ZipfMix::default() };
    mix.write(&path).unwrap();
    let spec = |kernel: &str, machine: &str, mib: u64| CellSpec {
        seed: u64::MAX,
        ram_bytes: mib << 20,
        swap_bytes: 1 << 30,
        fragmentation: Fragmented { bytes: 128 << 10, permille: 300 },
        aged_rounds: 2,
        linked: vec!["2M".parse().unwrap()],
        cgroups: vec!["1G".parse().unwrap()],
        changes: vec!["50%:defrag=always".parse().unwrap()],
        ..CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
    };
    let specs = [
        spec("6.12", "altra", 16 << 10),
        spec(SMALL, "cascadelake", 48),
        spec("7.2", "grace-64k", 1 << 10),
    ];
    let (meta, rows) = replay(&path, &specs, &mut |_| {}).unwrap();
    let digest = Some(largefolio_trace::digest(&path).unwrap());
    let trace = TraceInfo { digest, ..TraceInfo::new("zipf.folio", &meta) };
    let command = vec!["folio".to_owned(), "predict".to_owned()];
    PredictResult::new(command, trace, settings(), rows, Options::default())
}

fn batch(report: &PredictResult) -> RecordBatch {
    table::batch(&report.trace, &report.settings, &report.rows).unwrap()
}

fn value(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt64 => json!(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float64 => json!(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|at| value(&items, at)).collect()
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let pair = |(field, column): (&arrow_schema::FieldRef, &ArrayRef)| {
                (field.name().clone(), value(column, row))
            };
            Value::Object(fields.iter().zip(columns).map(pair).collect::<Map<_, _>>())
        }
        other => panic!("a table has no {other}"),
    }
}

fn columns(batch: &RecordBatch, row: usize) -> BTreeMap<String, Value> {
    let schema = batch.schema();
    let pair = |(field, column): (&arrow_schema::FieldRef, &ArrayRef)| {
        (field.name().clone(), value(column, row))
    };
    schema.fields().iter().zip(batch.columns()).map(pair).collect()
}

fn leaves(name: &str, value: &Value, all_leaves: &mut BTreeMap<String, Value>) {
    let keyed = KEYED.iter().find(|(known, _)| *known == name);
    match (value, keyed) {
        // The column of the settings has the names.
        (groups, _) if name == "cgroups" => {
            all_leaves.insert("cgroup_counts".to_owned(), groups.clone());
        }
        // Values over time are only in the JSON.
        _ if matches!(name, "asked_tenths" | "aged" | "statistics_processes" | "changes") => {}
        (Value::Object(sizes), _) if name == "unusable_at_start" => {
            let size = |name: &String| name.parse::<u64>().unwrap();
            let entry = |(name, permille): (&String, &Value)| json!({ "folio_bytes": size(name), "permille": permille });
            all_leaves.insert(name.to_owned(), sizes.iter().map(entry).collect());
        }
        (Value::Object(entries), Some((_, key))) => {
            all_leaves
                .insert(name.to_owned(), entries.iter().map(|entry| item(key, entry)).collect());
        }
        (Value::Object(entries), None) => {
            for (key, value) in entries {
                let below = if name.is_empty() { key.clone() } else { format!("{name}_{key}") };
                leaves(&below.replace("estimate_causes_", "estimate_"), value, all_leaves);
            }
        }
        _ => {
            let is_left_out = name == "detail"
                || name.starts_with("estimate_") && name.ends_with("_terms")
                || name.starts_with("estimate_constants_")
                || name.starts_with("estimate_stand_ins")
                || name.starts_with("estimate_run_change")
                || name.ends_with("difference_ns");
            if !is_left_out {
                all_leaves.insert(name.to_owned(), value.clone());
            }
        }
    }
}

fn item(key: &str, (name, value): (&String, &Value)) -> Value {
    let is_size = key.ends_with("_bytes");
    let name = if is_size { json!(name.parse::<u64>().unwrap()) } else { json!(name) };
    let mut fields = Map::from_iter([(key.to_owned(), name)]);
    match value {
        Value::Object(counts) => fields.extend(counts.clone()),
        count => {
            let counted = if is_size { "bytes" } else { "count" };
            fields.insert(counted.to_owned(), count.clone());
        }
    }
    Value::Object(fields)
}

/// Sorts by number: the table sorts sizes as numbers, the JSON as text.
fn sorted(mut value: Value) -> Value {
    let size = |item: &Value| {
        let sizes = [&item["folio_bytes"], &item["unit_bytes"]];
        sizes.into_iter().find_map(Value::as_u64)
    };
    if let Value::Array(items) = &mut value {
        items.sort_by_key(size);
    }
    value
}

fn assert_same(outcome: &Outcome, columns: &BTreeMap<String, Value>) {
    let mut expected = BTreeMap::new();
    leaves("", &serde_json::to_value(outcome).unwrap(), &mut expected);
    for (name, value) in &expected {
        let column = columns.get(name).unwrap_or_else(|| panic!("no column {name}"));
        assert_eq!(column, &sorted(value.clone()), "{name}");
    }
    for name in columns.keys().filter(|name| !OF_THE_RESULT.contains(&name.as_str())) {
        let may_lack = ["estimate_", "hugetlb_", "nodes_", "processes_"];
        let is_absent = match &columns[name] {
            Value::Null => may_lack.iter().any(|part| name.starts_with(part)),
            value => ["gaps", "processes_programs"].contains(&name.as_str()) && *value == json!([]),
        };
        assert!(expected.contains_key(name) || is_absent, "{name} is not in the JSON");
    }
}

#[test]
fn every_number_of_a_row_is_that_of_the_json() {
    let report = rich();
    let batch = batch(&report);
    let rows: Vec<_> = (0..report.rows.len()).map(|row| columns(&batch, row)).collect();
    for (outcome, row) in report.rows.iter().zip(&rows) {
        assert_same(outcome, row);
    }
    // Here, no program shares memory or copies a page.
    let absent = ["folios_shmem_by_size", "copied_bytes"];
    let is_absent = |name: &str| name.contains("_partial_") || absent.contains(&name);
    for (name, _) in KEYED.iter().filter(|(name, _)| !is_absent(name)) {
        let is_filled = |row: &BTreeMap<_, _>| row[*name] != json!([]);
        assert!(rows.iter().any(is_filled), "the replays have no {name}: the test is too weak");
    }
    assert!(rows[1]["cgroup_counts"][0]["peak_bytes"].as_u64() > Some(1 << 20));
    assert!(rows[0]["hugetlb_faults"].is_null() && rows[1]["hugetlb_faults"] == 0);
    let times: Vec<_> = rows.iter().map(|row| &row["estimate_total_ns"]).collect();
    assert!(times.iter().any(|time| time.is_null()), "{times:?}");
    assert!(times.iter().any(|time| !time.is_null()), "{times:?}");
}

#[test]
fn a_row_says_which_cell_it_is() {
    let report = rich();
    let row = columns(&batch(&report), 1);
    let expected = json!({
        "cell": null, "kernel_text": null, "machine_text": null, "trace": "zipf.folio", "program": "zipf-mix",
        "trace_digest": report.trace.digest, "tool_version": largefolio_results::predict::TOOL_VERSION,
        "results_version": largefolio_sim::replay::RESULTS_VERSION, "kernel": SMALL,
        "machine": "cascadelake", "page_bytes": 4096, "seed": u64::MAX, "cache": "cold",
        "memory_bytes": 48 << 20, "swap_bytes": 1 << 30, "unusable_permille": 300,
        "unusable_bytes": 65536, "aged_rounds": 2,
        "filesystem": "xfs", "annotations": ["a*=64K", "b=2M"], "linked": ["2M"], "cgroups": ["1G"], "reference_ns": 5,
        "changes": ["50%:defrag=always"],
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{name}");
    }
}

#[test]
fn every_result_has_the_same_columns() {
    let report = rich();
    let none = table::batch(&TraceInfo::default(), &Settings::default(), &[]).unwrap();
    let one = table::batch(&report.trace, &Settings::default(), &report.rows[..1]).unwrap();
    for batch in [&none, &one, &batch(&report)] {
        assert_eq!(batch.schema().fields(), table::schema().fields());
    }
    assert!(table::schema().metadata().is_empty());
    let names: Vec<_> = table::schema()
        .fields()
        .iter()
        .map(|field| format!("{} {}{}", field.name(), field.data_type(), nullable(field)))
        .collect();
    insta::assert_snapshot!(names.join("\n"));
}

fn nullable(field: &arrow_schema::FieldRef) -> &'static str {
    if field.is_nullable() { "?" } else { "" }
}

#[test]
fn a_count_no_data_frame_holds_is_an_error_that_names_it() {
    let mut report = rich();
    report.rows[1].faults.major = 1 << 63;
    let error = table::batch(&report.trace, &report.settings, &report.rows).unwrap_err();
    assert!(error.to_string().starts_with("faults_major is 9223372036854775808"), "{error}");
}

#[test]
fn cells_have_their_identities() {
    let batch = batch(&rich());
    let cells: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
    let named = table::with_cells(&batch, &cells).unwrap();
    assert_eq!(columns(&named, 2)["cell"], "c");
    assert_eq!(named.schema(), batch.schema());
    let error = table::with_cells(&batch, &cells[..2]).unwrap_err().to_string();
    assert_eq!(error, "there are 2 cells but 3 rows");
}

fn read(file: &Path) -> (RecordBatch, BTreeMap<String, String>) {
    let bytes = Bytes::from(std::fs::read(file).unwrap());
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    let pairs = builder.metadata().file_metadata().key_value_metadata().cloned().unwrap();
    let metadata = pairs.into_iter().filter_map(|pair| Some((pair.key, pair.value?))).collect();
    (builder.build().unwrap().next().unwrap().unwrap(), metadata)
}

#[test]
fn a_file_gives_the_data_frame_back_and_says_where_it_is_from() {
    let report = rich();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cells.parquet");
    let file = parquet::file(&report).unwrap();
    std::fs::write(&path, &file).unwrap();
    let (read, metadata) = read(&path);
    assert_eq!(read.columns(), batch(&report).columns());
    assert_eq!(metadata[table::KEY_TABLE_VERSION], "1");
    assert_eq!(metadata[table::KEY_COMMAND_LINE], r#"["folio","predict"]"#);
    let settings: Settings = serde_json::from_str(&metadata[table::KEY_SETTINGS]).unwrap();
    assert_eq!(settings, report.settings);
    let trace: TraceInfo = serde_json::from_str(&metadata[table::KEY_TRACE]).unwrap();
    assert_eq!(trace, report.trace);
    let again = parquet::file_of(&batch(&report)).unwrap();
    assert_eq!(again, parquet::file_of(&batch(&report)).unwrap(), "the same bytes");
}
