//! `folio predict --parquet`, read back.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Value, json};

use crate::support::{Place, text};

pub(crate) type Frame = BTreeMap<String, Value>;

pub(crate) fn rows(path: &Path) -> Vec<Frame> {
    let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    file.get_row_iter(None).unwrap().map(|row| frame(&row.unwrap())).collect()
}

fn frame(row: &Row) -> Frame {
    row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(flag) => json!(flag),
        Field::Long(number) => json!(number),
        Field::ULong(number) => json!(number),
        Field::Double(number) => json!(number),
        Field::Str(text) => json!(text),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        Field::Group(row) => Value::Object(frame(row).into_iter().collect()),
        other => panic!("a table has no {other}"),
    }
}

#[test]
fn a_data_frame_has_a_row_a_cell_with_the_numbers_of_the_json() {
    let place = Place::with_trace();
    let args = "predict mix.folio --kernel 6.12,7.2 --machine altra,grace-64k --memory 64M,1G";
    assert_eq!(place.done(&format!("{args} --parquet -o cells.parquet")), "");
    let json: Value = serde_json::from_str(&place.done(&format!("{args} --json"))).unwrap();
    let expected = json["rows"].as_array().unwrap();
    let frame = rows(&place.path("cells.parquet"));
    assert_eq!(frame.len(), 8);
    for (row, expected) in frame.iter().zip(expected) {
        for (column, pointer) in [
            ("kernel", "/kernel"),
            ("machine", "/machine"),
            ("memory_bytes", "/memory_bytes"),
            ("faults_total", "/faults/total"),
            ("tlb_data_l2_misses", "/tlb/data/l2_misses"),
            ("folios_text_mapped_bytes", "/folios/text/mapped_bytes"),
            ("estimate_walk_ns", "/estimate/causes/walk/ns"),
        ] {
            assert_eq!(&row[column], expected.pointer(pointer).unwrap(), "{column}");
        }
        assert_eq!((&row["trace"], &row["program"]), (&json!("mix.folio"), &json!("zipf-mix")));
        assert_eq!(row["trace_digest"], json["trace"]["digest"]);
        assert_eq!(row["trace_digest"].as_str().unwrap().len(), 64);
    }
}

#[test]
fn parquet_can_be_piped_and_excludes_other_forms() {
    let place = Place::with_trace();
    let piped = place.run("predict mix.folio --kernel 6.12 --parquet").stdout;
    assert!(piped.starts_with(b"PAR1") && piped.ends_with(b"PAR1"));
    for other in ["--json", "--csv"] {
        let stderr = place.fails(&format!("predict mix.folio --parquet {other}"));
        assert!(stderr.contains("cannot be used with"), "{stderr}");
    }
}

#[test]
fn binary_is_not_written_to_a_terminal() {
    let place = Place::with_trace();
    let folio = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
    let command = format!("{folio} predict mix.folio --kernel 6.12 --parquet");
    let script = std::process::Command::new("script")
        .current_dir(place.0.path())
        .args(["--quiet", "--return", "--command", &command, "typescript"])
        .stdin(std::process::Stdio::null())
        .output();
    let output = match script {
        Ok(output) => output,
        Err(error) => {
            largefolio_testkit::skipped!(
                "script(1), which makes a terminal, does not run: {error}"
            );
            return;
        }
    };
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{stdout}");
    assert!(stdout.contains("write it to a file with -o FILE"), "{stdout}");
}
