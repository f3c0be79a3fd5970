//! Tests executions: the metadata that a trace of several programs needs for each.

use super::common::{NR_EXECS, meta, meta_with_execs, rows_of};
use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY};
use largefolio_trace::meta::{Execution, Image};
use largefolio_trace::validate::{MetaFault, NR_EXECS_MAX, NR_THREADS_MAX, RowFault};
use largefolio_trace::{
    Attached, Batch, Event, Info, Meta, Op, PlainRun, Reader, TraceError, Writer,
};
use std::ops::ControlFlow;
use std::path::Path;

fn execve(exec: u64) -> Event {
    Event { aux: exec, file: Some(1), ..Event::new(0, Op::Execve) }
}

fn write(path: &Path, rows: &[Event], footer: Meta) -> Result<(), TraceError> {
    let mut writer = Writer::create(path, footer)?;
    writer.push_rows(rows)?;
    writer.finish().map(|_| ())
}

fn info_of(path: &Path) -> Result<Info, TraceError> {
    let mut reader = Reader::open(path)?;
    let info = Info::read(path, &mut reader, &mut |_| ControlFlow::Continue(()))?;
    Ok(info.unwrap())
}

#[test]
fn executions_come_back_in_a_trace_of_schema_4() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let rows = [execve(2), execve(0)];
    write(&path, &rows, meta_with_execs()).unwrap();
    let reader = Reader::open(&path).unwrap();
    let footer = reader.meta().clone();
    assert_eq!((footer.schema_version, footer.execs), (4, meta_with_execs().execs));
    assert_eq!(footer.images, meta_with_execs().images);
    assert_eq!(rows_of(reader).unwrap(), rows);
    let faults = Meta { faults_only: true, ..meta() };
    write(&path, &[], faults).unwrap();
    assert_eq!(Reader::open(&path).unwrap().meta().schema_version, 4);
}

#[test]
fn what_was_there_before_a_recording_makes_a_trace_of_schema_6() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let rows = [Event::new(0, Op::Brk), Event::references(0, Op::Write, 0x1000, 1), execve(0)];
    let run = PlainRun { wall_ns: 3_000_000_000, ..PlainRun::default() };
    let footer = |nr_rows, nr_pages| Meta {
        faults_only: true,
        attached: Some(Attached { nr_rows, nr_pages, run }),
        ..meta_with_execs()
    };
    write(&path, &rows, footer(2, 1)).unwrap();
    let info = info_of(&path).unwrap().meta;
    assert_eq!((info.schema_version, info.attached), (6, footer(2, 1).attached));
    assert_eq!((info.nr_rows_before(), info.nr_references_recorded()), (2, 0));
    for (nr_rows, nr_pages) in [(4, 1), (2, 2), (u64::MAX, u64::MAX)] {
        let written = write(&path, &rows, footer(nr_rows, nr_pages));
        let Err(TraceError::BadMeta { fault, .. }) = written else { panic!("{written:?}") };
        assert_eq!(fault, MetaFault::BadAttached(nr_rows, nr_pages));
    }
    let whole = Meta { faults_only: false, ..footer(0, 0) };
    assert!(matches!(write(&path, &rows, whole), Err(TraceError::BadMeta { .. })));
}

#[test]
fn an_execution_that_nobody_described_is_refused_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let written = write(&path, &[execve(0), execve(NR_EXECS)], meta_with_execs());
    let Err(TraceError::BadRow { row: 1, fault, .. }) = written else { panic!("{written:?}") };
    assert_eq!(fault, RowFault::UnknownExec(NR_EXECS, 3));
    let mut batch = Batch::default();
    batch.push(&execve(NR_EXECS - 1));
    assert_eq!(batch.validate(&meta_with_execs()), Ok(()));
    assert_eq!(batch.validate(&meta()), Err((0, RowFault::UnknownExec(NR_EXECS - 1, 0))));
}

#[test]
fn the_tables_of_a_footer_fit_each_other() {
    let footer = meta_with_execs();
    let lost = Meta { images: Vec::new(), ..footer.clone() };
    assert_eq!(lost.validate(), Err(MetaFault::UnknownImage(0, 0)));
    let mut overlapping = footer.clone();
    let twice = [&footer.layout[..], &footer.layout[..]].concat();
    overlapping.images.push(Image { layout: twice, brk: 0 });
    assert_eq!(overlapping.validate(), Err(MetaFault::Unsorted(1)));
    let many = vec![Execution::default(); NR_EXECS_MAX + 1];
    let many = Meta { execs: many, ..footer };
    assert_eq!(many.validate(), Err(MetaFault::TooManyExecs(NR_EXECS_MAX + 1, 1)));
}

#[test]
fn processes_and_programs_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let fork = |flags, child| Event { flags, aux: child, ..Event::new(0, Op::Fork) };
    let rows = [fork(0, 1), fork(SHARES_MEMORY, 2), fork(BORROWS_MEMORY, 3), execve(1)];
    write(&path, &rows, meta_with_execs()).unwrap();
    let info = info_of(&path).unwrap();
    assert_eq!(info.nr_processes, 3);
    assert_eq!(info.programs.into_iter().collect::<Vec<_>>(), [("/f1".to_owned(), 2)]);
}

#[test]
fn long_paths_of_programs_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let mut footer = meta_with_execs();
    // One copy per row would take a terabyte.
    footer.files[1].path = "a".repeat(4 << 20);
    let rows = vec![execve(2); 1 << 18];
    write(&path, &rows, footer).unwrap();
    let programs: Vec<_> = info_of(&path).unwrap().programs.into_iter().collect();
    assert_eq!((programs[0].0.len(), programs[0].1), (4 << 20, (1 << 18) + 1));
}

#[test]
fn threads_are_counted_up_to_the_most_that_a_trace_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let row = |thread| Event { thread, ..Event::new(0, Op::Brk) };
    let nr_max = NR_THREADS_MAX as u32;
    let mut rows: Vec<_> = (0..nr_max).map(|nr| row(u32::MAX - nr)).collect();
    write(&path, &rows, meta()).unwrap();
    assert_eq!(info_of(&path).unwrap().nr_threads, NR_THREADS_MAX);
    rows.push(row(0));
    write(&path, &rows, meta()).unwrap();
    let error = info_of(&path).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 threads"), "{error}");
}
