//! Files and results that a sweep refuses, and the parts of them that it keeps.

use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use largefolio_results::predict::sweep::manifest::MANIFEST;
use largefolio_results::predict::sweep::{NEVER, Sweep, SweepError, TaskError, TaskResult};
use largefolio_testkit::parquet::with_hidden_fields;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::{here, place, request, run, write_trace};

#[test]
fn what_does_not_belong_to_the_task_is_refused() {
    let place = place();
    write_trace(&place.path().join("other.folio"), 2_001);
    let dir = place.path().join("set");
    let traces = ["mix.folio", "other.folio"];
    let mut sweep = Sweep::open(&dir, &request(&place, &["6.12"], &traces), NEVER).unwrap();
    let tasks = sweep.missing(16);
    let (mine, theirs) = (here(&tasks[0]), here(&tasks[1]));
    let mut half = mine.clone();
    half.part.truncate(half.part.len() / 2);
    let mut flipped = mine.clone();
    flipped.part[100] ^= 0xff;
    let nothing = TaskResult::default();
    let hidden = TaskResult { part: with_hidden_fields(&mine.part).unwrap(), ..mine.clone() };
    let all = [
        (&theirs, "cells that"),
        (&half, "read"),
        (&nothing, "read"),
        (&hidden, "not a Parquet footer"),
    ];
    for (result, why) in all {
        let error = sweep.add(&tasks[0], result.clone(), NEVER).unwrap_err();
        assert!(matches!(error, SweepError::NotOfTheTask(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    // Damage inside a page can yield other values or an error, but never a panic.
    let _ = sweep.add(&tasks[0], flipped, NEVER);
    sweep.add(&tasks[1], theirs, NEVER).unwrap();
    assert!(sweep.counts().nr_done >= 4);
}

/// A kilobyte that would expand to a gigabyte: one long value in each of many rows.
#[test]
fn a_part_that_would_fill_memory_is_refused() {
    let place = place();
    let dir = place.path().join("set");
    let mut sweep = Sweep::open(&dir, &request(&place, &["6.12"], &["mix.folio"]), NEVER).unwrap();
    let task = sweep.missing(16).remove(0);
    let long = StringArray::from(vec!["x".repeat(1 << 20)]);
    let rows = DictionaryArray::new(Int32Array::from(vec![0; 1 << 10]), Arc::new(long));
    let batch = RecordBatch::try_from_iter([("cell", Arc::new(rows) as ArrayRef)]).unwrap();
    let compressed = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_page_size_limit(4 << 20)
        .build();
    // Without this, the reader would decode each value only once, as written here.
    let options =
        ArrowWriterOptions::new().with_properties(compressed).with_skip_arrow_metadata(true);
    let mut writer =
        ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    let part = writer.into_inner().unwrap();
    assert!(part.len() < 4096, "{}", part.len());
    let error = sweep.add(&task, TaskResult { part, ..TaskResult::default() }, NEVER).unwrap_err();
    assert!(error.to_string().contains("it has more than"), "{error}");
}

/// Sparse files of zeros.
#[test]
fn files_that_are_longer_than_any_of_ours_are_set_aside_unread() {
    let place = place();
    let dir = place.path().join("set");
    fs::create_dir(&dir).unwrap();
    let part = format!("part-{:032x}.parquet", 1);
    for (name, nr_bytes) in [(part.as_str(), 256 << 20), (MANIFEST, 64 << 20)] {
        let file = fs::File::create(dir.join(name)).unwrap();
        file.set_len(nr_bytes + 1).unwrap();
    }
    let sweep = Sweep::open(&dir, &request(&place, &["6.12"], &["mix.folio"]), NEVER).unwrap();
    let reasons: Vec<_> =
        sweep.set_aside().iter().map(|quarantined| quarantined.why.as_str()).collect();
    assert_eq!(reasons, ["it has more than 268435456 bytes", "it has more than 67108864 bytes"]);
}

#[test]
fn a_worker_refuses_another_trace_and_another_version() {
    let place = place();
    let dir = place.path().join("set");
    let sweep = Sweep::open(&dir, &request(&place, &["6.12"], &["mix.folio"]), NEVER).unwrap();
    let task = sweep.missing(16).remove(0);
    let other = place.path().join("other.folio");
    write_trace(&other, 2_001);
    let error = run(&task, &other).unwrap_err();
    assert!(matches!(error, TaskError::OtherTrace { .. }) && error.is_of_the_trace(), "{error}");
    let mut changed = task.clone();
    changed.cells[0].setting.swap_bytes = 1 << 30;
    let error = run(&changed, Path::new(&task.trace)).unwrap_err();
    assert!(matches!(error, TaskError::OtherVersion { .. }), "{error}");
    changed.cells[0].kernel = 7;
    assert!(matches!(run(&changed, &other).unwrap_err(), TaskError::Incomplete));
    let stopped = task.run(Path::new(&task.trace), &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(stopped.is_stopped(), "{stopped}");
}

#[test]
fn what_is_refused_leaves_no_directory() {
    let place = place();
    let dir = place.path().join("a/b/c");
    let plain = request(&place, &["6.12"], &["mix.folio"]);
    let mut idle = plain.clone();
    idle.cells.annotations = vec!["nowhere=64K".parse().unwrap()];
    assert!(matches!(Sweep::open(&dir, &idle, NEVER), Err(SweepError::IdleAnnotation(_))));
    assert!(!place.path().join("a").exists());
    // Stopped after the directory was created, before anything is written to it.
    let nr_asked = AtomicUsize::new(0);
    let is_stopped = || nr_asked.fetch_add(1, Relaxed) > 0;
    assert!(matches!(Sweep::open(&dir, &plain, &is_stopped), Err(SweepError::Stopped)));
    assert!(!place.path().join("a").exists());
    // Existing content stays, without a lock.
    fs::create_dir_all(&dir).unwrap();
    assert!(matches!(Sweep::open(&dir, &plain, &|| true), Err(SweepError::Stopped)));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    drop(Sweep::open(&dir, &plain, NEVER).unwrap());
    assert!(dir.join(".lock").exists() && dir.join(MANIFEST).exists());
}

#[test]
fn a_directory_that_is_no_data_set_of_ours_is_left_alone() {
    let place = place();
    let dir = place.path().join("set");
    let request = request(&place, &["6.12"], &["mix.folio"]);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("sales.parquet"), "PAR1").unwrap();
    let error = Sweep::open(&dir, &request, NEVER).unwrap_err().to_string();
    assert!(error.contains("sales.parquet is not part of a sweep"), "{error}");
    fs::remove_file(dir.join("sales.parquet")).unwrap();
    let odd = dir.join(OsStr::from_bytes(b"\xff.parquet"));
    fs::write(&odd, "PAR1").unwrap();
    assert!(matches!(Sweep::open(&dir, &request, NEVER), Err(SweepError::Foreign { .. })));
    fs::remove_file(odd).unwrap();
    fs::write(dir.join(MANIFEST), r#"{"schema_version": 2, "other": true}"#).unwrap();
    let error = Sweep::open(&dir, &request, NEVER).unwrap_err().to_string();
    assert!(error.contains("use a newer version"), "{error}");
    fs::write(dir.join(MANIFEST), "{\"schema_version\": 1").unwrap();
    let sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    assert_eq!(sweep.set_aside()[0].file, MANIFEST);
    assert!(dir.join("_manifest.json.broken").exists());
}

#[test]
fn what_a_foreign_manifest_says_stays_on_its_line() {
    let place = place();
    let ended = r#"{"schema_version": 1, "runs": [{"ended": "x\nfolio: fine"}]}"#;
    fs::write(place.path().join(MANIFEST), ended).unwrap();
    let sweep =
        Sweep::open(place.path(), &request(&place, &["6.12"], &["mix.folio"]), NEVER).unwrap();
    let [quarantined] = sweep.set_aside() else { panic!("{:?}", sweep.set_aside()) };
    assert!(quarantined.why.contains("x?folio: fine"), "{}", quarantined.why);
}
