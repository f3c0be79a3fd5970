//! Tests that written rows are read back, and that illegal ones are rejected with the right error.

use std::fs;
use std::path::Path;

use super::common::{any_event, meta, read, write};
use largefolio_trace::meta::LayoutEntry;
use largefolio_trace::validate::{MetaFault, RowFault};
use largefolio_trace::{Batch, Event, LayoutKind, Meta, Op, Reader, Run, TraceError, Writer};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_legal_events_come_back(events in proptest::collection::vec(any_event(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.folio");
        write(&path, &events);
        prop_assert_eq!(read(&path).unwrap(), events);
    }
}

fn in_dir(test: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    test(&dir.path().join("t.folio"));
}

fn run(i: u64) -> Event {
    Event::references((i % 3) as u32, Op::ALL[(i % 3) as usize], (i * i % 9973) << 12, 1 + i % 7)
}

#[test]
fn a_trace_of_several_groups_and_batches_comes_back() {
    in_dir(|path| {
        let events: Vec<_> = (0..1_100_000).map(run).collect();
        write(path, &events);
        assert!(read(path).unwrap() == events);
        let meta = Reader::open(path).unwrap().meta().clone();
        assert_eq!(meta.nr_rows, 1_100_000);
        assert_eq!(meta.nr_references, events.iter().map(|event| event.len).sum::<u64>());
        assert_eq!((meta.schema_version, meta.page_bytes), (1, 4096));
        assert!(!meta.tool_version.is_empty());
    });
}

fn run_of(row: &Event) -> Run {
    Run::new(row.op, row.addr, row.len, row.flags).unwrap()
}

/// Groups and pages start in the middle of a pushed slice, and calls come in between.
#[test]
fn runs_are_the_rows_that_they_would_be_as_events() {
    let runs = |nr: u64| (0..nr).map(|i| run_of(&run(i))).collect::<Vec<_>>();
    let call = Event { file: Some(1), pos: 3, ..Event::new(2, Op::Open) };
    let (mut as_runs, mut as_events) = (Vec::new(), Vec::new());
    in_dir(|path| {
        let mut writer = Writer::create(path, meta()).unwrap();
        for (thread, nr) in [(0, 8192), (1, 65_536), (2, 1), (0, 700_001), (3, 0), (1, 40_000)] {
            writer.push_runs(thread, &runs(nr)).unwrap();
            writer.push(call).unwrap();
            as_events.extend(runs(nr).iter().map(|run| run.event(thread)));
            as_events.push(call);
        }
        let summary = writer.finish().unwrap();
        assert_eq!(summary.nr_rows, as_events.len() as u64);
        assert_eq!(summary.nr_references, Reader::open(path).unwrap().meta().nr_references);
        as_runs = read(path).unwrap();
    });
    assert!(as_runs == as_events);
    in_dir(|path| {
        write(path, &as_events);
        assert!(read(path).unwrap() == as_events);
    });
}

#[test]
fn addresses_beyond_a_dictionary_come_back() {
    in_dir(|path| {
        let events: Vec<_> =
            (0..200_000).map(|i| Event::references(0, Op::Read, i << 12, 1)).collect();
        write(path, &events);
        assert!(read(path).unwrap() == events);
    });
}

#[test]
fn an_empty_trace_is_a_trace() {
    in_dir(|path| {
        write(path, &[]);
        assert_eq!(read(path).unwrap(), []);
    });
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let events: Vec<_> = (0..70_000).map(run).collect();
    let bytes = ["a", "b"].map(|name| {
        write(&dir.path().join(name), &events);
        fs::read(dir.path().join(name)).unwrap()
    });
    assert!(bytes[0] == bytes[1]);
}

#[test]
fn a_reader_stays_at_the_end() {
    in_dir(|path| {
        write(path, &[run(1)]);
        let (mut reader, mut batch) = (Reader::open(path).unwrap(), Batch::default());
        assert!(reader.next_batch(&mut batch).unwrap());
        for _ in 0..3 {
            assert!(!reader.next_batch(&mut batch).unwrap());
            assert!(batch.is_empty());
        }
        assert_eq!(reader.nr_read(), 1);
    });
}

#[test]
fn nothing_appears_under_the_name_before_finish() {
    in_dir(|path| {
        let mut writer = Writer::create(path, Meta::default()).unwrap();
        writer.push(run(1)).unwrap();
        assert!(!path.exists());
        drop(writer);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    });
}

#[test]
fn an_unfinished_writer_keeps_the_old_trace() {
    in_dir(|path| {
        write(path, &[run(1)]);
        drop(Writer::create(path, Meta::default()).unwrap());
        assert_eq!(read(path).unwrap(), [run(1)]);
    });
}

#[test]
fn a_writer_refuses_to_replace_what_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let error = Writer::create(dir.path(), Meta::default()).unwrap_err();
    assert!(error.to_string().contains("a directory, not a regular file"), "{error}");
    let mut writer = Writer::create(Path::new("/dev/null"), Meta::default()).unwrap();
    writer.push(run(1)).unwrap();
    assert_eq!(writer.finish().unwrap().nr_rows, 1, "a device is written to, not replaced");
}

#[test]
fn a_bad_row_is_named_and_not_written() {
    in_dir(|path| {
        let mut writer = Writer::create(path, meta()).unwrap();
        writer.push(run(1)).unwrap();
        let cases = [
            (Event::references(0, Op::Exec, 0x1000, 0), RowFault::EmptyRun),
            (Event::references(0, Op::Exec, 0x1001, 1), RowFault::Unaligned(0x1001)),
            (Event::new(0, Op::Truncate), RowFault::MissingFile(Op::Truncate)),
            (
                Event { file: Some(0), len: 1 << 31, ..Event::new(0, Op::Pwrite) },
                RowFault::TooLong(Op::Pwrite, 1 << 31),
            ),
            (
                Event { addr: u64::MAX, len: 2, ..Event::new(0, Op::Munmap) },
                RowFault::Overflow(u64::MAX, 2),
            ),
            (
                Event { file: Some(u32::MAX), ..Event::new(0, Op::Open) },
                RowFault::UnknownFile(u32::MAX, 1 << 20),
            ),
        ];
        for (event, expected) in cases {
            let TraceError::BadRow { row: 1, fault, .. } = writer.push(event).unwrap_err() else {
                panic!("{event:?} is a bad row 1");
            };
            assert_eq!(fault, expected);
        }
        assert_eq!(writer.finish().unwrap().nr_rows, 1);
        assert_eq!(read(path).unwrap(), [run(1)]);
    });
}

#[test]
fn a_file_must_be_in_the_table_when_the_trace_ends() {
    in_dir(|path| {
        let open = Event { file: Some(7), ..Event::new(0, Op::Open) };
        let mut writer = Writer::create(path, meta()).unwrap();
        writer.push_rows(&[run(1), open]).unwrap();
        let TraceError::BadRow { row, fault, .. } = writer.finish().unwrap_err() else { panic!() };
        assert_eq!((row, fault), (1, RowFault::UnknownFile(7, 5)));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);

        let mut writer = Writer::create(path, meta()).unwrap();
        writer.push(open).unwrap();
        writer.meta_mut().files.resize_with(8, Default::default);
        writer.finish().unwrap();
        assert_eq!(read(path).unwrap(), [open]);
    });
}

#[test]
fn a_bad_layout_is_named() {
    let entry =
        |addr, len, file| LayoutEntry { addr, len, prot: 5, file, pos: 0, kind: LayoutKind::Other };
    let cases = [
        (vec![entry(0x1000, 0x2000, None), entry(0x2000, 1, None)], MetaFault::Unsorted(1)),
        (vec![entry(0x1000, 0, None)], MetaFault::BadRange(0)),
        (vec![entry(u64::MAX, 1, None)], MetaFault::BadRange(0)),
        (vec![entry(0x1000, 1, Some(5))], MetaFault::UnknownFile(0, 5)),
    ];
    for (layout, expected) in cases {
        assert_eq!(Meta { layout, ..meta() }.validate(), Err(expected));
    }
    assert_eq!(Meta { page_bytes: 16384, ..meta() }.validate(), Err(MetaFault::PageBytes(16384)));
    assert_eq!(meta().validate(), Ok(()));
}
