//! This process plays the child of a recorded one. The test itself feeds that parent's messages to
//! the ledger.

use std::path::Path;

use largefolio_trace::{Event, Op};
use rustix::net::SocketAddrUnix;
use tempfile::TempDir;

use super::*;
use crate::record::book::Book;
use crate::record::qemu::connection::{listen, packet_socket};
use crate::record::qemu::ledger::tests::{event, message, row};
use crate::record::qemu::wire::{NEW_PROCESS, WireEvent};

const PARENT: u32 = 1;

/// Runs a session with [`PARENT`] connected; `play` gets the socket's path.
fn session(play: impl FnOnce(&mut Session<'_, '_, '_>, &Path)) -> (Vec<Event>, Vec<String>) {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("s");
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut ledger = Ledger::new(&mut book, directory.path().into(), "/nonexistent".into());
    ledger.start(PARENT);
    ledger.connected(PARENT, 0);
    let mut session = Session::new(&mut ledger, listen(&path).expect("a socket"), PARENT);
    play(&mut session, &path);
    let warnings = book.take_warnings();
    (sink, warnings)
}

fn silent(path: &Path) -> OwnedFd {
    let fd = packet_socket().expect("a socket");
    let address = SocketAddrUnix::new(path).expect("a short path");
    rustix::net::connect(&fd, &address).expect("a listener");
    fd
}

fn connect(path: &Path, reason: Reason, generation: u32) -> OwnedFd {
    let fd = silent(path);
    let hello = Hello { reason, parent: PARENT, generation };
    send(&fd, Kind::Hello, &[], &hello.encode());
    fd
}

fn send(fd: &OwnedFd, kind: Kind, rows: &[u64], body: &[u8]) {
    let pid = std::process::id();
    let bytes = message(kind, (pid, pid), rows, body);
    let sent = rustix::net::send(fd, &bytes, rustix::net::SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
}

fn turn(session: &mut Session<'_, '_, '_>) {
    for _ in 0..4 {
        session.accept().expect("connections");
        session.read_all(u64::MAX).expect("a vector takes everything");
    }
}

fn announce(session: &mut Session<'_, '_, '_>) {
    let aux = std::process::id().into();
    let fork = WireEvent { aux, flags: NEW_PROCESS, ..WireEvent::default() };
    let bytes = message(Kind::Event, (PARENT, PARENT), &[], &event(Op::Fork, fork));
    session.ledger.receive(PARENT, &bytes).expect("a vector takes everything");
}

/// It closes all descriptors, including ours, and executes a program before the ledger reads its
/// parent's fork message.
#[test]
fn connections_of_a_process_are_read_one_after_the_other() {
    let (events, warnings) = session(|session, path| {
        let first = connect(path, Reason::Fork, 0);
        send(&first, Kind::Rows, &[row(0x1000, 2, 1)], &[]);
        send(&first, Kind::Leaving, &[], &[]);
        drop(first);
        let second = connect(path, Reason::Again, 0);
        send(&second, Kind::Execve, &[row(0x2000, 2, 1)], b"/program\0program\0");
        turn(session);
        drop(second);
        let third = connect(path, Reason::Execve, 1);
        send(&third, Kind::Rows, &[row(0x3000, 2, 1)], &[]);
        turn(session);
        assert_eq!(
            session.ledger.reachability(std::process::id()),
            Reachability::Over,
            "no process announced it"
        );
        announce(session);
        turn(session);
        assert_eq!(session.ledger.reachability(std::process::id()), Reachability::Speaks);
        assert!(session.may_read(session.connections.len() - 1));
    });
    let rows: Vec<_> = events.iter().map(|event| (event.op, event.addr)).collect();
    let write = |addr| (Op::Write, addr);
    assert_eq!(rows, [(Op::Fork, 0), write(0x1000), write(0x2000), write(0x3000)]);
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// Its waiting time is over, or its exit is in the trace.
#[test]
fn a_program_of_a_process_that_ended_is_not_kept_waiting() {
    let (_, warnings) = session(|session, path| {
        let program = connect(path, Reason::Execve, 1);
        turn(session);
        assert!(session.connections.is_empty());
        let sent = rustix::net::send(&program, b"rows", rustix::net::SendFlags::NOSIGNAL);
        assert_eq!(sent, Err(Errno::PIPE));
    });
    assert!(warnings[0].contains("already ended"), "{warnings:?}");
}

#[test]
fn a_standstill_is_told_once_with_its_reason() {
    let own = std::process::id();
    let (_, warnings) = session(|session, path| {
        let child = connect(path, Reason::Fork, 0);
        turn(session);
        session.last_message -= STANDSTILL;
        session.check_standstill();
        assert_eq!(session.progress().standstill, None, "there is nothing to read");
        send(&child, Kind::Rows, &[row(0x1000, 2, 1)], &[]);
        session.check_standstill();
        session.check_standstill();
        let awaited = Awaited::Announcement(PARENT);
        let expected = Standstill { pid: own, awaited, silent: STANDSTILL };
        assert_eq!(session.progress().standstill, Some(expected));
        announce(session);
        turn(session);
        session.check_standstill();
        assert_eq!(session.progress().standstill, None);
    });
    let text = format!(
        "The recording waited 10 s: process {own} is read only when its parent {PARENT} has \
         reported the fork."
    );
    assert_eq!(warnings, [text]);
}

/// The parent can no longer reach the socket.
#[test]
fn a_child_of_a_silent_parent_is_adopted() {
    let own = std::process::id();
    let (events, _) = session(|session, path| {
        let leaving = message(Kind::Leaving, (PARENT, PARENT), &[], &[]);
        session.ledger.receive(PARENT, &leaving).expect("a vector takes everything");
        let child = connect(path, Reason::Fork, 0);
        send(&child, Kind::Rows, &[row(0x1000, 2, 1)], &[]);
        turn(session);
        assert_eq!(
            session.ledger.reachability(own),
            Reachability::Over,
            "its parent may still come back"
        );
        session.connections[0].accepted -= SILENCE_MAX;
        turn(session);
        announce(session);
        assert_eq!(session.ledger.book.nr_processes, 2);
    });
    let rows: Vec<_> = events.iter().map(|event| (event.op, event.addr)).collect();
    assert_eq!(rows, [(Op::Fork, 0), (Op::Write, 0x1000)]);
}

/// Other users see the socket in QEMU's arguments.
#[test]
fn who_was_not_started_by_the_recorded_program_is_not_read() {
    for reason in [Reason::Start, Reason::Again, Reason::Execve] {
        let (events, warnings) = session(|session, path| {
            let stranger = connect(path, reason, 0);
            send(&stranger, Kind::Rows, &[row(0x6000, 2, 1)], &[]);
            turn(session);
            assert!(session.connections.is_empty(), "{reason:?}");
            assert_eq!(session.ledger.reachability(std::process::id()), Reachability::Over);
        });
        assert!(events.is_empty(), "{reason:?}: {events:?}");
        assert!(warnings[0].contains("no recorded process had started"), "{warnings:?}");
    }
}

#[test]
fn a_process_speaks_for_itself_alone() {
    let (events, warnings) = session(|session, path| {
        announce(session);
        let child = connect(path, Reason::Fork, 0);
        turn(session);
        let of_parent = message(Kind::Rows, (PARENT, PARENT), &[row(0x6000, 2, 1)], &[]);
        rustix::net::send(&child, &of_parent, rustix::net::SendFlags::empty()).expect("a socket");
        send(&child, Kind::Rows, &[row(0x1000, 2, 1)], &[]);
        turn(session);
    });
    let rows: Vec<_> = events.iter().map(|event| (event.thread, event.op)).collect();
    assert_eq!(rows, [(0, Op::Fork), (1, Op::Write)]);
    assert!(warnings[0].contains("could not be read"), "{warnings:?}");
}

#[test]
fn strangers_do_not_take_the_descriptors_of_those_that_are_recorded() {
    let (_, _) = session(|session, path| {
        announce(session);
        let _child = connect(path, Reason::Fork, 0);
        turn(session);
        let strangers: Vec<OwnedFd> = (0..3).map(|_| silent(path)).collect();
        session.accept().expect("connections");
        for connection in &mut session.connections {
            connection.is_ours = false;
        }
        session.limit_strangers(2);
        assert_eq!(session.connections.len(), 3, "the child, and the last two of {strangers:?}");
        assert_eq!(session.connections[0].pid, Some(std::process::id()));
        session.connections[1].accepted -= 2 * SILENCE_MAX;
        session.limit_strangers(2);
        assert_eq!(session.connections.len(), 2, "one has said nothing for too long");
    });
}

/// The loop ends when no connection is left, so it must count all waiting ones.
#[test]
fn all_that_wait_are_accepted_at_once() {
    let (_, _) = session(|session, path| {
        let waiting: Vec<OwnedFd> = (0..300).map(|_| silent(path)).collect();
        session.accept().expect("connections");
        assert_eq!(session.connections.len(), waiting.len());
    });
}
