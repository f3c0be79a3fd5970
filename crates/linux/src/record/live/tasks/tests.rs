use largefolio_trace::event::io;

use super::*;
use crate::fault_probe::{LOCKED, STORE};

const MAIN: u32 = 100;

fn rows(events: Vec<(u32, KernelEvent)>) -> Vec<Event> {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut tasks = Tasks::new(&mut book);
    tasks.add_process(MAIN, 0);
    tasks.process_mut(MAIN).unwrap().is_blind = false;
    tasks.process_mut(MAIN).unwrap().since_ns = 10;
    for (time_ns, (tid, event)) in (10..).zip(events) {
        tasks.take(Timed { time_ns, tid, event }).unwrap();
    }
    drop(tasks);
    assert!(sink.iter().all(|event| event.validate().is_ok()));
    sink
}

fn enter(call: Call, arguments: [u64; 6]) -> KernelEvent {
    KernelEvent::Enter { call, arguments }
}

fn exit(result: i64) -> KernelEvent {
    KernelEvent::Exit { result }
}

fn operations(rows: &[Event]) -> Vec<(ThreadId, Op)> {
    rows.iter().map(|row| (row.thread, row.op)).collect()
}

#[test]
fn a_fault_is_one_reference_of_its_kind() {
    let fault = |address, code| (MAIN, KernelEvent::Fault { address, code });
    let rows = rows(vec![
        fault(0x7000_1234, 4),
        fault(0x7000_2000, 6),
        fault(0x7000_3fff, 0x14),
        fault(u64::MAX, 6),
        (MAIN + 1, KernelEvent::Fault { address: 0x1000, code: 4 }),
    ]);
    let rows: Vec<_> = rows.iter().map(|row| (row.op, row.addr, row.len)).collect();
    let expected =
        [(Op::Read, 0x7000_1000, 1), (Op::Write, 0x7000_2000, 1), (Op::Exec, 0x7000_3000, 1)];
    assert_eq!(rows, expected);
}

#[test]
fn a_fault_that_comes_again_without_the_lock_of_its_mapping_is_one() {
    let fault = |tid, address, code| (tid, KernelEvent::Fault { address, code });
    let rows = rows(vec![
        fault(MAIN, 0x7000_1234, LOCKED | STORE),
        fault(MAIN, 0x7000_1234, STORE),
        // Repeated, of another kind, and on another page.
        fault(MAIN, 0x7000_1234, STORE),
        fault(MAIN, 0x7000_2000, LOCKED),
        fault(MAIN, 0x7000_2000, STORE),
        fault(MAIN, 0x7000_3000, LOCKED),
        fault(MAIN, 0x7000_4000, 0),
        fault(MAIN, 0x7000_3000, 0),
    ]);
    let pages: Vec<_> = rows.iter().map(|row| row.addr >> 12 & 0xf).collect();
    assert_eq!(pages, [1, 1, 2, 2, 3, 4, 3]);
}

#[test]
fn a_call_counts_when_it_succeeded() {
    let map = enter(Call::Mmap, [0, 5000, 3, 0x22, u64::MAX, 0]);
    let rows = rows(vec![
        (MAIN, map.clone()),
        (MAIN, exit(-12)),
        (MAIN, map),
        (MAIN, exit(0x7f00_0000)),
        (MAIN, exit(0x7f00_0000)),
        (MAIN, enter(Call::Munmap, [0x7f00_0000, 5000, 0, 0, 0, 0])),
        (MAIN, exit(0)),
    ]);
    assert_eq!(operations(&rows), [(0, Op::Mmap), (0, Op::Munmap)]);
    assert_eq!((rows[0].addr, rows[0].len, rows[1].len), (0x7f00_0000, 8192, 8192));
}

#[test]
fn the_first_brk_says_where_the_heap_is() {
    let brk = |requested| (MAIN, enter(Call::Brk, [requested, 0, 0, 0, 0, 0]));
    let rows = rows(vec![
        brk(0),
        (MAIN, exit(0x5000)),
        brk(0x9000),
        (MAIN, exit(0x9000)),
        brk(0xffff_0000),
        (MAIN, exit(0x9000)),
    ]);
    assert_eq!(operations(&rows), [(0, Op::Brk)], "a refused one changes nothing");
    assert_eq!((rows[0].addr, rows[0].pos), (0x5000, 0x9000));
}

#[test]
fn threads_and_processes_are_born_and_end() {
    let birth = |child, flags| (MAIN, KernelEvent::Birth { child, flags });
    let fault = |tid| (tid, KernelEvent::Fault { address: 0x1000, code: 6 });
    let rows = rows(vec![
        birth(101, CLONE_VM | 0x10000),
        birth(102, 0),
        birth(103, CLONE_VM | CLONE_VFORK),
        birth(101, CLONE_VM),
        fault(101),
        fault(102),
        (101, KernelEvent::Ends),
        (102, KernelEvent::Ends),
        (MAIN, KernelEvent::Ends),
        fault(101),
    ]);
    let forks: Vec<_> = rows.iter().take(3).map(|row| (row.aux, row.flags)).collect();
    assert_eq!(forks, [(1, SHARES_MEMORY), (2, 0), (3, BORROWS_MEMORY)]);
    let rest = &rows[3..];
    let expected = [(1, Op::Write), (2, Op::Write), (1, Op::Exit), (2, Op::Exit), (0, Op::Exit)];
    assert_eq!(operations(rest), expected);
    let kinds: Vec<_> = rest[2..].iter().map(|row| row.flags).collect();
    let (thread, process) = (ExitKind::Thread as u32, ExitKind::Unknown as u32);
    assert_eq!(kinds, [thread, process, process]);
}

#[test]
fn a_program_that_nobody_saw_tells_only_its_end() {
    let rows = rows(vec![
        (MAIN, KernelEvent::Executes { process: MAIN, earlier: MAIN }),
        (MAIN, KernelEvent::Fault { address: 0x1000, code: 4 }),
        (MAIN, KernelEvent::Ends),
    ]);
    assert_eq!(operations(&rows), [(0, Op::Exit)]);
    assert_eq!(rows[0].flags, ExitKind::Execve as u32);
}

#[test]
fn what_was_read_at_the_beginning_is_not_told_twice() {
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut tasks = Tasks::new(&mut book);
    tasks.add_process(MAIN, 0);
    let main = tasks.process_mut(MAIN).unwrap();
    (main.is_blind, main.since_ns) = (false, 50);
    for time_ns in [49, 50] {
        let event = KernelEvent::Fault { address: 0x1000, code: 4 };
        tasks.take(Timed { time_ns, tid: MAIN, event }).unwrap();
    }
    drop(tasks);
    assert_eq!(sink.len(), 1);
}

fn program() -> Mapped {
    Mapped {
        pid: 101,
        addr: 0x40_0000,
        len: 0x1000,
        pos: 0,
        device: 0,
        inode: 1,
        prot: 5,
        path: "/nonexistent/program".into(),
    }
}

/// The other thread ends, and the caller of execve takes its id.
#[test]
fn an_execve_of_a_second_thread_is_of_what_it_maps() {
    let fault = |address| (101, KernelEvent::Fault { address, code: 6 });
    let mut library = program();
    library.path = "/nonexistent/library".into();
    let rows = rows(vec![
        (MAIN, KernelEvent::Birth { child: 101, flags: 0 }),
        (101, KernelEvent::Mapped(Box::new(library))),
        (101, KernelEvent::Birth { child: 102, flags: CLONE_VM }),
        (101, KernelEvent::Ends),
        (101, KernelEvent::Clears),
        (101, KernelEvent::Mapped(Box::new(program()))),
        fault(0x40_0000),
        (101, KernelEvent::Executes { process: 101, earlier: 102 }),
        fault(0x40_1000),
        (101, KernelEvent::Ends),
    ]);
    let expected = [
        (0, Op::Fork),
        (1, Op::Fork),
        (1, Op::Exit),
        (2, Op::Execve),
        (2, Op::Write),
        (2, Op::Write),
        (2, Op::Exit),
    ];
    assert_eq!(operations(&rows), expected);
}

#[test]
fn what_an_execve_touches_comes_after_it() {
    let fault = |address| (101, KernelEvent::Fault { address, code: 6 });
    let rows = rows(vec![
        (MAIN, KernelEvent::Birth { child: 101, flags: CLONE_VM | CLONE_VFORK }),
        fault(0x1000),
        (101, KernelEvent::Clears),
        (101, KernelEvent::Mapped(Box::new(program()))),
        fault(0x40_0000),
        (101, KernelEvent::Executes { process: 101, earlier: 101 }),
        fault(0x40_1000),
    ]);
    let expected = [(0, Op::Fork), (1, Op::Write), (1, Op::Execve), (1, Op::Write), (1, Op::Write)];
    assert_eq!(operations(&rows), expected);
    let addresses: Vec<_> = rows[3..].iter().map(|row| row.addr).collect();
    assert_eq!(addresses, [0x40_0000, 0x40_1000]);
}

#[test]
fn a_write_that_comes_in_parts_is_one_call() {
    use std::os::unix::fs::MetadataExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    let metadata = file.path().metadata().unwrap();
    let (device, inode) = (metadata.dev(), metadata.ino());
    let mut sink = Vec::new();
    let mut book = Book::new(&mut sink);
    let mut tasks = Tasks::new(&mut book);
    tasks.add_process(MAIN, 0);
    tasks.process_mut(MAIN).unwrap().is_blind = false;
    let path = file.path().to_path_buf();
    let (pid, addr, len, pos, prot) = (MAIN, 0, 4096, 0, 1);
    tasks.inodes.note(&Mapped { pid, addr, len, pos, device, inode, prot, path });
    let device = u64::from(libc::major(device)) << 20 | u64::from(libc::minor(device));
    let moved = |pos, len| FileRange { inode, device, pos, len };
    let goes = |is_write| KernelEvent::DirectGoes { inode, is_write };
    for (time_ns, event) in (10..).zip([
        KernelEvent::FileWrite(moved(0, 100_000)),
        KernelEvent::FileWrite(moved(65_536, 34_464)),
        KernelEvent::FileWrite(moved(0, 100_000)),
        KernelEvent::DirectBegins(moved(0, 4096)),
        goes(false),
        goes(false),
        // At the end of the file: no step follows.
        KernelEvent::DirectBegins(moved(100_000, 4096)),
        KernelEvent::DirectBegins(moved(0, 4096)),
        goes(true),
        KernelEvent::Synced { inode, device },
        KernelEvent::Allocates { range: moved(0, 8192), mode: 3 },
        enter(Call::Msync, [0x7000_0000, 4096, 4, 0, 0, 0]),
        KernelEvent::Synced { inode, device },
        exit(0),
    ]) {
        tasks.take(Timed { time_ns, tid: MAIN, event }).unwrap();
    }
    drop(tasks);
    let rows: Vec<_> = sink.iter().map(|row| (row.op, row.len, row.flags)).collect();
    let expected = [
        (Op::Pwrite, 100_000, 0),
        (Op::Pwrite, 100_000, 0),
        (Op::Pread, 4096, io::DIRECT),
        (Op::Pwrite, 4096, io::DIRECT),
        (Op::Sync, u64::MAX, 0),
        (Op::Fallocate, 8192, 0),
        (Op::Sync, 4096, 0),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn calls_that_lock_and_store_memory_are_rows() {
    let calls = [
        (Call::Mlock, [0x7000_0000, 8000, 0]),
        (Call::Mlock, [0x7000_0000, 0, 0]),
        (Call::Mlock2, [0x7000_0000, 4096, 1]),
        (Call::Munlock, [0x7000_0000, 4096, 0]),
        (Call::Mlockall, [3, 0, 0]),
        (Call::Munlockall, [0, 0, 0]),
        (Call::Msync, [0x7000_0000, 4096, 4]),
        (Call::Msync, [0x7000_0000, 4096, 1]),
        (Call::SyncAll, [0, 0, 0]),
        (Call::Prctl, [41, 1, 2]),
        (Call::Prctl, [41, 0, 0]),
        (Call::Prctl, [15, 1, 0]),
    ];
    let events = calls.into_iter().flat_map(|(call, [first, second, third])| {
        [(MAIN, enter(call, [first, second, third, 0, 0, 0])), (MAIN, exit(0))]
    });
    let rows: Vec<_> = rows(events.collect())
        .iter()
        .map(|row| (row.op, row.addr, row.len, row.flags, row.aux))
        .collect();
    let expected = [
        (Op::Mlock, 0x7000_0000, 8192, lock::CURRENT, 0),
        (Op::Mlock, 0x7000_0000, 4096, lock::ON_FAULT, 0),
        (Op::Mlock, 0x7000_0000, 4096, 0, 0),
        (Op::Mlock, 0, 0, lock::CURRENT | lock::FUTURE, 0),
        (Op::Mlock, 0, 0, 0, 0),
        (Op::Sync, 0x7000_0000, 4096, 0, 0),
        (Op::Sync, 0, 0, 0, 0),
        (Op::ThpDisable, 0, 0, 0, thp_disable::ALL | thp_disable::EXCEPT_ADVISED),
        (Op::ThpDisable, 0, 0, 0, 0),
    ];
    assert_eq!(rows, expected);
}
