//! Tests which links between loads are legal.

use std::path::Path;

use super::common::{meta, rows_of};
use largefolio_trace::event::LINK_MAX;
use largefolio_trace::validate::RowFault;
use largefolio_trace::{Batch, Event, HardwareCounters, Meta, Op, PlainRun, Reader};
use largefolio_trace::{TraceError, Writer};

fn linked(op: Op, link: u32) -> Event {
    Event { flags: link, ..Event::references(0, op, 0x1000, 1) }
}

fn write(path: &Path, rows: &[Event], footer: Meta) -> Result<(), TraceError> {
    let mut writer = Writer::create(path, footer)?;
    writer.push_rows(rows)?;
    writer.finish().map(|_| ())
}

fn fault_of(result: Result<(), TraceError>) -> (u64, RowFault) {
    match result {
        Err(TraceError::BadRow { row, fault, .. }) => (row, fault),
        other => panic!("not a bad row: {other:?}"),
    }
}

#[test]
fn every_link_of_a_read_or_write_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let rows: Vec<_> =
        (0..=LINK_MAX).flat_map(|link| [linked(Op::Read, link), linked(Op::Write, link)]).collect();
    write(&path, &rows, Meta { links: true, ..meta() }).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert!(reader.meta().links);
    let mut batch = Batch::default();
    assert!(reader.next_batch(&mut batch).unwrap());
    assert_eq!(batch.flags(), (0..32).map(|row| row / 2).collect::<Vec<u32>>());
    assert_eq!(rows_of(Reader::open(&path).unwrap()).unwrap(), rows);
}

#[test]
fn no_other_row_has_a_link_and_none_is_longer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    for (op, link) in [(Op::Exec, 1), (Op::Read, 16), (Op::Write, u32::MAX)] {
        let written = write(&path, &[linked(op, link)], Meta { links: true, ..meta() });
        assert_eq!(fault_of(written), (0, RowFault::BadLink(op, link)));
    }
}

#[test]
fn a_link_in_a_trace_without_links_is_refused_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let rows = [linked(Op::Read, 0), linked(Op::Write, 7), linked(Op::Read, 9)];
    assert_eq!(fault_of(write(&path, &rows, meta())), (1, RowFault::UnknownLink(7)));
    assert!(!path.exists(), "nothing is written");

    let mut batch = Batch::default();
    for row in &rows {
        batch.push(row);
    }
    assert_eq!(batch.validate(&meta()), Err((1, RowFault::UnknownLink(7))));
    assert_eq!(batch.validate(&Meta { links: true, ..meta() }), Ok(()));
}

#[test]
fn only_a_trace_with_links_needs_schema_3() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let run = PlainRun { counters: Some(HardwareCounters::default()), ..PlainRun::default() };
    for (links, runs, version) in
        [(false, vec![], 1), (false, vec![run], 2), (true, vec![], 3), (true, vec![run], 3)]
    {
        write(&path, &[linked(Op::Read, 0)], Meta { links, runs, ..meta() }).unwrap();
        let footer = Reader::open(&path).unwrap().meta().clone();
        assert_eq!((footer.schema_version, footer.links), (version, links));
        let json = serde_json::to_string(&footer).unwrap();
        assert_eq!(json.contains("links"), links, "absent is not recorded: {json}");
    }
}
