//! Tests the checksum: a damaged trace is an error, or reads exactly as written.

use std::fs;
use std::path::Path;

use super::common::{NR_FILES, read, rows_of, write};
use largefolio_trace::generate::Rng;
use largefolio_trace::{Event, Meta, Op, Reader, TraceError};
use proptest::prelude::*;

fn rows() -> Vec<Event> {
    let mut rng = Rng::new(3);
    let run = |i: u32| Event::references(i % 3, Op::Read, rng.below(50) << 12, 1 + rng.below(9));
    let mut rows: Vec<_> = (0..200).map(run).collect();
    rows[7] = Event { pos: 3, file: Some(NR_FILES - 1), ..Event::new(0, Op::Open) };
    rows
}

fn all_of(path: &Path) -> Result<(Meta, Vec<Event>), TraceError> {
    let reader = Reader::open(path)?;
    Ok((reader.meta().clone(), rows_of(reader)?))
}

fn trace() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    write(&path, &rows());
    fs::read(path).unwrap()
}

fn opened(bytes: &[u8]) -> Result<(Meta, Vec<Event>), TraceError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    fs::write(&path, bytes).unwrap();
    all_of(&path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(600)))]

    #[test]
    fn a_flipped_bit_is_an_error_or_changes_nothing(
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let bytes = trace();
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= 1 << bit;
        if let Ok(found) = opened(&damaged) {
            prop_assert!(found == opened(&bytes).unwrap(), "byte {}", at.index(bytes.len()));
        }
    }
}

#[test]
fn damaged_rows_and_metadata_are_named() {
    let bytes = trace();
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    let error = opened(&damaged).unwrap_err().to_string();
    assert!(error.contains("its rows do not match their checksum"), "{error}");
    let path_at = bytes.windows(3).position(|window| window == b"/f2").unwrap();
    let mut damaged = bytes;
    damaged[path_at + 2] ^= 1;
    let error = opened(&damaged).unwrap_err().to_string();
    assert!(error.contains("its metadata does not match its checksum"), "{error}");
}

#[test]
fn a_trace_without_checksum_is_refused_with_the_remedy() {
    let mut bytes = trace();
    let key = b"largefolio.checksum";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    bytes[at] = b'L';
    let error = opened(&bytes).unwrap_err().to_string();
    assert!(error.contains("it has no checksum") && error.contains("record it again"), "{error}");
}

#[test]
fn traces_without_rows_and_with_several_row_groups_verify() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    write(&path, &[]);
    assert_eq!(read(&path).unwrap(), []);
    let rows = vec![Event::references(0, Op::Exec, 0x1000, 1); (1 << 19) + 5];
    write(&path, &rows);
    assert!(read(&path).unwrap() == rows);
}
