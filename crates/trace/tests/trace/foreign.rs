//! Tests files that are not traces, or traces that this version cannot read. The error describes
//! each one.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use super::common::{read, write};
use largefolio_trace::{Event, Op, TraceError};
use parquet::basic::{Repetition, Type as Physical};
use parquet::data_type::Int32Type;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

fn error_of(bytes: &[u8]) -> TraceError {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    fs::write(&path, bytes).unwrap();
    read(&path).unwrap_err()
}

fn foreign_parquet(json: Option<&str>) -> Vec<u8> {
    parquet_of("x", json.as_slice())
}

fn parquet_of(column: &str, json: &[&str]) -> Vec<u8> {
    let column = Type::primitive_type_builder(column, Physical::INT32)
        .with_repetition(Repetition::REQUIRED)
        .build();
    let columns = vec![Arc::new(column.unwrap())];
    let schema = Arc::new(Type::group_type_builder("m").with_fields(columns).build().unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 2], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    for text in json {
        let pair = KeyValue::new("largefolio".to_owned(), (*text).to_owned());
        writer.append_key_value_metadata(pair);
    }
    writer.into_inner().unwrap()
}

#[test]
fn foreign_files_are_named() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "an empty file"),
        (b"\x7fELF\x02\x01", "an ELF program"),
        (b"\x1f\x8b\x08\0\0", "a gzip file"),
        (b"hello world", "a file that starts with \"hell\""),
        (b"PA", "a file that starts with \"PA\""),
        (&foreign_parquet(None), "a Parquet file with 1 columns (x)"),
    ];
    for (bytes, expected) in cases {
        let TraceError::NotATrace { found, .. } = error_of(bytes) else { panic!("{expected}") };
        assert_eq!(found, expected);
    }
}

/// This reader would take the first, others the last.
#[test]
fn metadata_that_stand_twice_are_refused() {
    let TraceError::Corrupt { what, .. } = error_of(&parquet_of("x", &["{}", "{}"])) else {
        panic!("it is damaged")
    };
    assert!(what.contains("`largefolio` twice"), "{what}");
}

#[test]
fn a_directory_and_a_missing_file_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let TraceError::NotATrace { found, .. } = read(dir.path()).unwrap_err() else { panic!() };
    assert_eq!(found, "a directory");
    let error = read(Path::new("/nonexistent/t.folio")).unwrap_err();
    assert!(error.to_string().starts_with("cannot open /nonexistent/t.folio:"), "{error}");
}

#[test]
fn a_newer_trace_is_named_even_if_its_footer_has_unknown_keys() {
    let json = r#"{"schema_version": 9, "colour": "green"}"#;
    let TraceError::NewerSchema { found, known, .. } = error_of(&foreign_parquet(Some(json)))
    else {
        panic!("schema version 9 is newer");
    };
    assert_eq!((found, known), (9, 7));
}

#[test]
fn damaged_metadata_is_named() {
    let cases = [
        ("", "has no version"),
        ("{}", "has no version"),
        (r#"{"schema_version": 1, "colour": 1}"#, "unknown field `colour`"),
        (r#"{"schema_version": 1, "page_bytes": 4096}"#, "does not have the columns of a trace"),
    ];
    for (json, expected) in cases {
        let error = error_of(&foreign_parquet(Some(json)));
        assert!(matches!(error, TraceError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let json = r#"{"schema_version": 1, "page_bytes": 4097}"#;
    assert!(matches!(error_of(&foreign_parquet(Some(json))), TraceError::BadMeta { .. }));
}

#[test]
fn what_a_foreign_file_says_of_itself_stays_on_its_line() {
    let long = format!("{{\"schema_version\": 1, \"{}\": 1}}", "a".repeat(1 << 20));
    let error = error_of(&foreign_parquet(Some(&long))).to_string();
    assert!(error.contains("unknown field `aaa") && error.len() < 1000, "{} bytes", error.len());
    let broken = r#"{"schema_version": 1, "x\nfolio: all is well": 1}"#;
    let column = "x\nfolio: all is well";
    for bytes in [foreign_parquet(Some(broken)), parquet_of(column, &[])] {
        let error = error_of(&bytes).to_string();
        assert!(error.contains("x?folio"), "{error}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    write(&path, &[Event::references(0, Op::Exec, 0x1000, 1); 3]);
    let bytes = fs::read(&path).unwrap();
    for len in 4..bytes.len() {
        let error = error_of(&bytes[..len]);
        assert!(matches!(error, TraceError::Corrupt { .. }), "{len}: {error}");
    }
}

#[test]
fn a_footer_length_beyond_the_file_is_refused_without_reading_it() {
    for len in [u32::MAX, 1 << 31, 64 << 20, 100] {
        let mut bytes = b"PAR1".to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(b"PAR1");
        assert!(matches!(error_of(&bytes), TraceError::Corrupt { .. }));
    }
}

#[test]
fn a_footer_that_is_far_behind_the_rows_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let rows = [Event::references(0, Op::Exec, 0x1000, 1); 3];
    write(&path, &rows);
    let bytes = fs::read(&path).unwrap();
    let len = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap());
    let footer = &bytes[bytes.len() - 8 - len as usize..];
    // The file is sparse, so the gap takes no space.
    let move_to = |at: u64| {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(footer, at).unwrap();
    };
    move_to(64 << 20);
    assert_eq!(read(&path).unwrap(), rows, "others keep an index there");
    move_to(1 << 30);
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("too far from its rows"), "{error}");
}

fn footer_of(id: u8, element: &[u8], nr_elements: u32) -> Vec<u8> {
    let mut footer = vec![id << 4 | 9, 0xfc];
    let mut rest = nr_elements;
    while rest >= 0x80 {
        footer.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    footer.push(rest as u8);
    (0..nr_elements).for_each(|_| footer.extend(element));
    footer.push(0);
    let len = footer.len() as u32;
    [b"PAR1", &footer[..], &len.to_le_bytes(), b"PAR1"].concat()
}

#[test]
fn footers_whose_elements_decode_to_gigabytes_are_refused() {
    let schema = footer_of(2, &[0x48, 0, 0], 1 << 22);
    let groups = footer_of(4, &[0], 1 << 23);
    let pairs = footer_of(5, &[0x18, 0, 0], 1 << 22);
    for bytes in [schema, groups, pairs] {
        let error = error_of(&bytes).to_string();
        assert!(error.contains("lists more entries than such a file can have"), "{error}");
    }
}
