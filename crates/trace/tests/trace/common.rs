//! Shared strategies and helpers of the trace tests.

use std::path::Path;

use largefolio_trace::event::LINK_MAX;
use largefolio_trace::meta::{Execution, FileInfo, Image, LayoutEntry, LayoutKind};
use largefolio_trace::validate::CALL_BYTES_MAX;
use largefolio_trace::{Batch, Event, Meta, Op, Reader, TraceError, Writer};
use proptest::prelude::*;

pub(crate) const NR_FILES: u32 = 5;

pub(crate) fn meta() -> Meta {
    let files = (0..NR_FILES).map(|i| FileInfo { path: format!("/f{i}"), ..FileInfo::default() });
    let entry = LayoutEntry {
        addr: 0x40_0000,
        len: 0x1000,
        prot: 5,
        file: Some(1),
        pos: 0,
        kind: LayoutKind::Program,
    };
    Meta { files: files.collect(), layout: vec![entry], page_bytes: 4096, ..Meta::default() }
}

/// Returns [`meta`] with [`NR_EXECS`] executions of one program.
pub(crate) fn meta_with_execs() -> Meta {
    let footer = meta();
    let images = vec![Image { layout: footer.layout.clone(), brk: 0x50_0000 }];
    let exec = |nr: u64| Execution { command: vec!["cc".to_owned(), nr.to_string()], image: 0 };
    Meta { execs: (0..NR_EXECS).map(exec).collect(), images, ..footer }
}

pub(crate) const NR_EXECS: u64 = 3;

pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let numbers = (any::<u32>(), 0..Op::ALL.len(), any::<u64>(), any::<u64>(), any::<u64>());
    let rest = (any::<u64>(), any::<u32>(), proptest::option::of(0..NR_FILES));
    (numbers, rest).prop_map(|((thread, op, addr, len, pos), (aux, flags, file))| {
        legal(Event { thread, op: Op::ALL[op], addr, len, pos, aux, flags, file })
    })
}

/// Makes a row legal and changes as little of it as possible.
fn legal(mut event: Event) -> Event {
    if matches!(event.op, Op::Pread | Op::Pwrite) {
        event.len %= CALL_BYTES_MAX + 1;
    }
    if event.op.is_reference() {
        event.addr &= !4095;
        event.len = (event.len >> 16).max(1);
        event.flags %= if event.op == Op::Exec { 1 } else { LINK_MAX + 1 };
    }
    if event.op == Op::Execve {
        event.aux %= NR_EXECS;
    }
    if event.validate().is_err() {
        event.file = Some(event.file.unwrap_or(0));
        event.addr >>= 1;
        event.pos >>= 1;
        event.len >>= 1;
        event.aux >>= 1;
    }
    event
}

/// Writes a trace. The footer mentions links and executions if any row has them.
pub(crate) fn write(path: &Path, events: &[Event]) {
    let links = events.iter().any(|event| event.op.is_reference() && event.flags > 0);
    let has_execs = events.iter().any(|event| event.op == Op::Execve);
    let footer = if has_execs { meta_with_execs() } else { meta() };
    let mut writer = Writer::create(path, Meta { links, ..footer }).unwrap();
    writer.push_rows(events).unwrap();
    writer.finish().unwrap();
}

pub(crate) fn read(path: &Path) -> Result<Vec<Event>, TraceError> {
    rows_of(Reader::open(path)?)
}

/// Returns all rows and checks each batch.
pub(crate) fn rows_of(mut reader: Reader) -> Result<Vec<Event>, TraceError> {
    let (mut batch, mut events) = (Batch::default(), Vec::new());
    while reader.next_batch(&mut batch)? {
        assert!((1..=65_536).contains(&batch.len()), "a batch has rows, and not too many");
        batch.validate(reader.meta()).unwrap();
        events.extend(batch.events());
    }
    Ok(events)
}
