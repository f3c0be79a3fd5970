use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY};
use largefolio_trace::validate::NR_PROCESSES_MAX;

use super::*;
use crate::record::outcome::RecordEnd;
use crate::record::qemu::wire::{NEW_PROCESS, Row};

pub(in crate::record::qemu) fn message(
    kind: Kind,
    (pid, tid): (u32, u32),
    rows: &[u64],
    body: &[u8],
) -> Vec<u8> {
    let nr_rows = u32::try_from(rows.len()).expect("few");
    let nr_body = u32::try_from(body.len()).expect("few");
    let mut bytes =
        Header { kind, pid, tid, nr_rows, nr_body, seq: 0, sent_ns: 0 }.encode().to_vec();
    bytes.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
    bytes.extend_from_slice(body);
    bytes
}

pub(in crate::record::qemu) fn row(addr: u64, op: u32, count: u64) -> u64 {
    Row { op, addr, count, link: 0 }.encode()
}

pub(in crate::record::qemu) fn event(op: Op, event: WireEvent) -> [u8; wire::EVENT_BYTES] {
    WireEvent { op: op as u32, ..event }.encode()
}

/// Builds the message that `parent` forked the process `pid`.
fn announced(pid: u64, parent: u32) -> Vec<u8> {
    let fork = WireEvent { aux: pid, flags: NEW_PROCESS, ..WireEvent::default() };
    message(Kind::Event, (parent, parent), &[], &event(Op::Fork, fork))
}

/// Feeds `messages` to a ledger with 10 as its first process.
fn events_of(messages: &[Vec<u8>]) -> (Vec<Event>, Vec<String>) {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
    ledger.start(10);
    for bytes in messages {
        ledger.receive(10, bytes).expect("a vector takes everything");
    }
    ledger.end_all(RecordEnd::Code(0)).expect("a vector takes everything");
    let warnings = book.take_warnings();
    (sink, warnings)
}

#[test]
fn rows_come_before_the_event_of_their_message() {
    let munmap = event(Op::Munmap, WireEvent { addr: 0x5000, len: 4096, ..WireEvent::default() });
    let (events, warnings) =
        events_of(&[message(Kind::Event, (10, 10), &[row(0x5000, 2, 7)], &munmap)]);
    let rows: Vec<_> = events.iter().map(|event| (event.op, event.addr, event.len)).collect();
    assert_eq!(rows, [(Op::Write, 0x5000, 7), (Op::Munmap, 0x5000, 4096), (Op::Exit, 0, 0)]);
    assert!(warnings.is_empty());
}

#[test]
fn a_thread_waits_for_the_fork_that_announces_it() {
    let fork = WireEvent { aux: 11, flags: SHARES_MEMORY, ..WireEvent::default() };
    let (events, _) = events_of(&[
        message(Kind::Rows, (10, 11), &[row(0x1000, 1, 1)], &[]),
        message(Kind::Rows, (10, 11), &[row(0x2000, 1, 1)], &[]),
        message(Kind::Event, (10, 10), &[row(0x3000, 0, 5)], &event(Op::Fork, fork)),
    ]);
    let rows: Vec<_> = events.iter().map(|event| (event.thread, event.op, event.addr)).collect();
    let expected = [
        (0, Op::Exec, 0x3000),
        (0, Op::Fork, 0),
        (1, Op::Read, 0x1000),
        (1, Op::Read, 0x2000),
        (0, Op::Exit, 0),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn an_announced_child_that_never_spoke_is_a_warning() {
    let (events, warnings) = events_of(&[announced(12, 10)]);
    assert_eq!(events.iter().filter(|event| event.op == Op::Exit).count(), 2);
    assert!(warnings[0].contains("could not be recorded"), "{warnings:?}");
}

/// With an invalid base, the plugin cannot read loaded values.
#[test]
fn a_recording_has_links_if_its_guest_base_is_one() {
    for (base, has_links) in [(0, true), (1 << 32, true), (1, false), (u64::MAX, false)] {
        let (mut sink, body) = (Vec::new(), u64::to_le_bytes(base));
        let mut book = Book::new(&mut sink);
        let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
        ledger.start(10);
        ledger.receive(10, &message(Kind::Layout, (10, 10), &[], &body)).expect("a vector");
        assert_eq!(book.has_links, has_links, "{base:#x}");
    }
}

#[test]
fn an_event_no_trace_can_hold_is_left_out() {
    let odd = WireEvent { addr: u64::MAX, len: u64::MAX, ..WireEvent::default() };
    let (events, warnings) =
        events_of(&[message(Kind::Event, (10, 10), &[], &event(Op::Munmap, odd))]);
    assert_eq!(events.len(), 1, "only the exit");
    assert!(warnings[0].starts_with("1 system calls"), "{warnings:?}");
}

/// Whatever bytes a program sends, nothing panics and the trace can be read. The fuzzer does more.
#[test]
fn hostile_messages_spoil_only_the_trace() {
    let place = tempfile::tempdir().expect("a directory");
    let mut rng = largefolio_trace::generate::Rng::new(1);
    for _ in 0..300 {
        let data: Vec<u8> = (0..rng.below(600)).map(|_| rng.next().to_le_bytes()[0]).collect();
        fuzzed::recorded_from(&data, &place.path().join("t.folio")).expect("a whole trace");
    }
}

/// The borrower was killed, or can no longer reach the socket.
#[test]
fn a_borrower_that_left_and_stays_silent_does_not_keep_its_lender() {
    let fork = WireEvent { aux: 12, flags: NEW_PROCESS | BORROWS_MEMORY, ..WireEvent::default() };
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
    ledger.start(10);
    ledger
        .receive(10, &message(Kind::Event, (10, 10), &[], &event(Op::Fork, fork)))
        .expect("a vector");
    ledger.connected(12, 0);
    assert_eq!(ledger.borrower_of(10), Some(12));
    ledger.receive(12, &message(Kind::Leaving, (12, 12), &[], &[])).expect("a vector");
    ledger.closed(12).expect("a vector");
    assert!(ledger.is_lending(10), "it has left for a moment");
    ledger.processes.get_mut(&12).expect("a process").silent_since -= SILENCE_MAX;
    assert!(!ledger.is_lending(10));
}

#[test]
fn a_child_that_was_adopted_is_not_announced_again() {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
    ledger.start(10);
    assert!(ledger.adopt(12, 10).expect("a vector"));
    ledger.connected(12, 0);
    ledger.receive(10, &announced(12, 10)).expect("a vector");
    assert_eq!(ledger.book.nr_processes, 2);
    ledger.receive(12, &message(Kind::Ending, (12, 12), &[], &[0; 8])).expect("a vector");
    ledger.closed(12).expect("a vector");
    ledger.receive(10, &announced(12, 10)).expect("a vector");
    assert_eq!(ledger.book.nr_processes, 3, "the number is another's now");
    ledger.end_all(RecordEnd::Code(0)).expect("a vector");
    let nr = |op| sink.iter().filter(|event: &&Event| event.op == op).count();
    assert_eq!((nr(Op::Fork), nr(Op::Exit)), (2, 3));
}

/// A server may start more children than fit in a trace.
#[test]
fn what_a_trace_has_no_room_for_is_left_out_and_told() {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
    ledger.start(10);
    for pid in 11..11 + NR_PROCESSES_MAX as u64 {
        ledger.receive(10, &announced(pid, 10)).expect("a vector");
    }
    assert!(ledger.is_full());
    assert!(!ledger.adopt(9, 10).expect("a vector"), "no process begins later");
    ledger
        .receive(10, &message(Kind::Rows, (10, 10), &[row(0x1000, 2, 1)], &[]))
        .expect("a vector");
    ledger.end_all(RecordEnd::Code(0)).expect("a vector");
    let warnings = book.take_warnings();
    assert!(warnings.iter().any(|text| text.starts_with("A trace has at most")), "{warnings:?}");
    let nr = |op| sink.iter().filter(|event: &&Event| event.op == op).count();
    assert_eq!((nr(Op::Fork), nr(Op::Write)), (NR_PROCESSES_MAX - 1, 1));
}

/// Any number can start, as long as they end.
#[test]
fn a_process_that_ended_takes_no_room() {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
    ledger.start(10);
    for pid in 0..2 * NR_PROCESSES_MAX as u64 {
        ledger.receive(10, &announced(11 + pid, 10)).expect("a vector");
        ledger.connected(11 + u32::try_from(pid).expect("few"), 0);
        ledger.closed(11 + u32::try_from(pid).expect("few")).expect("a vector");
        assert_eq!(ledger.processes.len(), 1);
    }
    assert!(!ledger.is_full());
}

#[test]
fn nobody_is_adopted_when_all_have_ended() {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
    ledger.start(10);
    ledger.end_all(RecordEnd::Code(0)).expect("a vector");
    assert!(!ledger.adopt(12, 10).expect("a vector"));
    assert_eq!((ledger.book.nr_processes, ledger.is_announced(12)), (1, false));
}

#[test]
fn nobody_announces_itself_or_the_first_process() {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
    ledger.start(10);
    ledger.receive(10, &announced(10, 10)).expect("a vector");
    ledger.receive(10, &announced(12, 10)).expect("a vector");
    ledger.receive(12, &announced(10, 12)).expect("a vector");
    assert_eq!(ledger.book.nr_processes, 2);
}

#[test]
fn a_code_that_no_program_announced_is_the_emulators() {
    for (messages, ended, expected) in [
        (vec![], RecordEnd::Code(127), "exit 127 of QEMU"),
        (vec![], RecordEnd::Code(0), "exit 0"),
        (vec![], RecordEnd::Signal(6), "signal 6"),
        (
            vec![message(Kind::Ending, (10, 10), &[], &127_u64.to_le_bytes())],
            RecordEnd::Code(127),
            "exit 127",
        ),
    ] {
        let mut sink = Vec::new();
        let mut book = Book::new(&mut sink);
        let mut ledger = Ledger::new(&mut book, "/nonexistent".into(), "/nonexistent".into());
        ledger.start(10);
        for bytes in &messages {
            ledger.receive(10, bytes).expect("a vector");
        }
        ledger.end_all(ended).expect("a vector");
        assert_eq!(ledger.ended_text(ended), expected);
    }
}
