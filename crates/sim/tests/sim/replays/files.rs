//! Calls on files: each moves as much data, and costs as many faults, as on 6.18.

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, O_RDWR,
    O_TRUNC, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::{io, mmap_flags};
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, program, store};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
/// The file that the calls use, in the trace's table.
const DATA: u32 = 1;

fn spec() -> CellSpec {
    let kernel = Kernel::parse("6.18+readahead=128K+io=1280K").unwrap();
    CellSpec::new(kernel, Machine::named("cascadelake").unwrap())
}

/// A file of `size_bytes` on ext4, without holes.
fn data(size_bytes: u64) -> FileInfo {
    let filesystem = "ext4".into();
    FileInfo { path: "/data".into(), size_bytes, filesystem, ..FileInfo::default() }
}

fn on(filesystem: &str, size_bytes: u64) -> FileInfo {
    FileInfo { filesystem: filesystem.into(), ..data(size_bytes) }
}

/// Replays `events` on `file`. Program and interpreter are on a filesystem of their own.
fn outcome(file: FileInfo, events: &[Event]) -> Outcome {
    outcome_of(spec(), file, events)
}

fn outcome_of(spec: CellSpec, file: FileInfo, events: &[Event]) -> Outcome {
    let own = FileInfo { path: "/bin/p".into(), filesystem: "ext4".into(), ..data(0x1000) };
    let mut all = vec![call(Op::Open, Event { pos: 3, flags: O_RDWR, ..NONE })];
    all.extend(events);
    let (_dir, path) = program(vec![own, file], &all);
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

const NONE: Event = Event::new(0, Op::Open);

fn call(op: Op, event: Event) -> Event {
    Event { op, file: Some(DATA), ..event }
}

fn moved(op: Op, pos: u64, len: u64, flags: u32) -> Event {
    call(op, Event { pos, len, aux: 3, flags, ..NONE })
}

fn read(pos: u64, len: u64) -> Event {
    moved(Op::Pread, pos, len, 0)
}

fn write(pos: u64, len: u64) -> Event {
    moved(Op::Pwrite, pos, len, 0)
}

fn map(len: u64) -> Event {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_SHARED);
    call(Op::Mmap, Event { addr: ADDR, len, flags, ..NONE })
}

fn touches(op: Op, nr_pages: u64) -> impl Iterator<Item = Event> {
    (0..nr_pages).map(move |page| Event::references(0, op, ADDR + page * 4096, 1))
}

/// Bytes read from storage for `events`, without what execve reads.
fn read_bytes(file: FileInfo, events: &[Event]) -> u64 {
    let without = outcome(file.clone(), &[]).reads.bytes;
    outcome(file, events).reads.bytes - without
}

fn cached_bytes(outcome: &Outcome) -> u64 {
    outcome.cached_bytes.values().sum()
}

fn cached(file: FileInfo, events: &[Event]) -> u64 {
    let without = cached_bytes(&outcome(file.clone(), &[]));
    cached_bytes(&outcome(file, events)) - without
}

#[test]
fn an_execve_reads_the_headers_of_its_program() {
    // A window of four pages.
    let long = FileInfo { path: "/bin/p".into(), filesystem: "ext4".into(), ..data(M) };
    let (_dir, path) = program(vec![long.clone()], &[]);
    let of = |path| replay(path, &[spec()], &mut |_| {}).unwrap().1.remove(0);
    let outcome = of(&path);
    assert_eq!((outcome.reads.bytes, outcome.reads.windows), (16 * K, 1));
    let text = Event::references(0, Op::Exec, 0x40_0000, 1);
    let (_dir, path) = program(vec![long.clone()], &[text]);
    assert_eq!(of(&path).faults.major, 0, "the page is cached");
    let far = FileInfo { exec_reads: vec![(512 * K, 800)], ..long };
    let (_dir, path) = program(vec![far], &[]);
    assert_eq!(of(&path).reads.bytes, 20 * K, "headers elsewhere are read too");
}

#[test]
fn only_data_in_storage_is_read() {
    assert_eq!(read_bytes(data(M), &[read(0, M)]), M);
    assert_eq!(read_bytes(data(0), &[write(0, M), read(0, M)]), 0, "the write supplied it");
    assert_eq!(read_bytes(data(M), &[write(0, M)]), 0);
    assert_eq!(read_bytes(data(M), &[write(100, 10_000)]), 8 * K, "both ends are read");
    assert_eq!(read_bytes(data(100), &[write(100, 10_000)]), 4 * K, "nothing follows the end");
    let hole = |pos, len| FileInfo { holes: vec![(pos, len)], ..data(M) };
    assert_eq!(read_bytes(hole(0, M), &[read(0, M)]), 0);
    assert_eq!(read_bytes(hole(256 * K, 512 * K), &[read(0, M)]), 512 * K);
    assert_eq!(cached(hole(0, M), &[read(0, M)]), M, "zeroes are cached");
    let grown = call(Op::Truncate, Event { len: M, ..NONE });
    assert_eq!(read_bytes(data(100), &[grown, read(0, M)]), 4 * K);
    let punched = fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 512 * K);
    assert_eq!(read_bytes(data(M), &[punched, read(0, M)]), 512 * K);
    let allocated = fallocate(0, 0, 2 * M);
    assert_eq!(read_bytes(data(M), &[allocated, read(M, M)]), 0);
}

fn fallocate(mode: u64, pos: u64, len: u64) -> Event {
    call(Op::Fallocate, Event { aux: mode, pos, len, ..NONE })
}

#[test]
fn stores_fault_again_after_their_pages_are_written_back() {
    let stores = |between: &[Event]| {
        let mut events = vec![map(M)];
        events.extend(touches(Op::Write, 256));
        events.extend(between);
        events.extend(touches(Op::Write, 256));
        outcome(data(M), &events).faults.total - outcome(data(M), &[]).faults.total
    };
    let nr = stores(&[]);
    let all = Event { len: u64::MAX, ..NONE };
    assert_eq!(stores(&[call(Op::Sync, all)]), nr + 256, "fsync");
    assert_eq!(stores(&[Event::new(0, Op::Sync)]), nr + 256, "sync");
    let half = Event { len: M / 2, ..NONE };
    assert_eq!(stores(&[call(Op::Sync, half)]), nr + 128, "sync_file_range");
    let memory = Event { addr: ADDR + M / 2, len: M / 2, ..Event::new(0, Op::Sync) };
    assert_eq!(stores(&[memory]), nr + 128, "msync");
    assert_eq!(stores(&[moved(Op::Pwrite, 0, 4096, io::SYNC)]), nr + 1, "O_SYNC");
    let punched = fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, M / 2);
    assert!(stores(&[punched]) > nr, "punched");
}

#[test]
fn memory_files_are_memory() {
    let memfd = FileInfo { path: "[memfd:x]".into(), ..on("tmpfs", M) };
    let mut stores = vec![map(M)];
    stores.extend(touches(Op::Write, 128));
    let of = |events: &[Event]| outcome(memfd.clone(), events);
    let (with, without) = (of(&stores), of(&[]));
    assert_eq!(with.faults.major, without.faults.major);
    assert_eq!(with.reads.bytes, without.reads.bytes);
    assert_eq!(cached(memfd.clone(), &stores), 512 * K);
    assert_eq!(cached(memfd.clone(), &[read(0, M)]), 0, "an absent page is read as zeroes");
    stores.insert(0, write(0, M));
    assert_eq!(cached(memfd.clone(), &stores), M, "one copy");
    assert_eq!(cached(memfd.clone(), &[fallocate(0, 0, M)]), M, "allocated at once");
    let there = outcome(on("tmpfs", M), &[]);
    assert_eq!(cached_bytes(&there) - cached_bytes(&without), M, "its data was in memory before");
    let sync = call(Op::Sync, Event { len: u64::MAX, ..NONE });
    let mut twice = stores.clone();
    twice.push(sync);
    twice.extend(touches(Op::Write, 128));
    assert_eq!(of(&twice).faults.total, of(&stores).faults.total, "nothing is written back");
}

/// Q.1.3: `hugepages-2048kB/shmem_enabled` decides if the file has no name when it is mapped.
#[test]
fn a_tmpfs_file_without_a_name_is_mapped_like_a_memfd() {
    let faults = |kernel: &str, events: &[Event]| {
        let kernel = Kernel::parse(kernel).unwrap();
        let spec = CellSpec::new(kernel, Machine::named("cascadelake").unwrap());
        outcome_of(spec, on("tmpfs", 4 * M), events).faults.total
    };
    let truncate = |len| call(Op::Truncate, Event { len, ..NONE });
    let start = [truncate(0), truncate(4 * M)];
    let unlink = call(Op::Unlink, NONE);
    let nr_faults = |between: &[Event], after: &[Event]| {
        let mut events = [&start, between, &[map(4 * M)], after].concat();
        events.extend(touches(Op::Write, 1024));
        let kernel = "6.18+tmpfs-huge=always+shmem-2M=advise";
        faults(kernel, &events) - faults(kernel, &start)
    };
    assert_eq!(nr_faults(&[], &[]), 2);
    assert_eq!(nr_faults(&[], &[unlink]), 2, "its area was mapped before");
    assert_eq!(nr_faults(&[unlink], &[]), 1024);
}

#[test]
fn direct_calls_leave_the_page_cache_out() {
    let direct = |op, pos, len| moved(op, pos, len, io::DIRECT);
    assert_eq!(read_bytes(data(M), &[direct(Op::Pread, 0, M)]), M);
    assert_eq!(cached(data(M), &[direct(Op::Pread, 0, M)]), 0);
    assert_eq!(cached(data(0), &[direct(Op::Pwrite, 0, M)]), 0);
    let over = [read(0, M), direct(Op::Pwrite, 0, M / 2), read(0, M)];
    assert_eq!(read_bytes(data(M), &over), M + M / 2, "a write drops its range");
}

/// The device must not read a page that the other process then owns.
#[test]
fn a_direct_write_copies_data_that_a_child_shares() {
    let nr_pages = 16;
    let faults = |data: u64| {
        let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        let len = nr_pages * 4 * K;
        let mut events = vec![Event { addr: ADDR, len, flags, ..Event::new(0, Op::Mmap) }];
        events.extend((0..nr_pages).map(|page| store(0, page)));
        events.push(Event { aux: 1, ..Event::new(0, Op::Fork) });
        events.push(Event { addr: data, ..moved(Op::Pwrite, 0, len, io::DIRECT) });
        outcome(on("ext4", M), &events).faults.total
    };
    assert_eq!(faults(ADDR), faults(0) + nr_pages);
}

#[test]
fn a_pipe_brings_16_pages_at_a_time() {
    let sizes = |events: &[Event]| {
        let mut sizes = outcome(on("xfs", 0), events).cached_bytes;
        let without = outcome(on("xfs", 0), &[]).cached_bytes;
        sizes.retain(|size, bytes| *size > 4096 && without.get(size) != Some(bytes));
        sizes
    };
    assert_eq!(sizes(&[write(0, M)]), [(M, M)].into());
    assert_eq!(sizes(&[moved(Op::Pwrite, 0, M, io::PIPE)]), [(64 * K, M)].into());
    assert_eq!(sizes(&[moved(Op::Pwrite, 0, M, io::COPY)]), [].into(), "blocks are shared");
    let odd = Event { addr: 100, ..moved(Op::Pwrite, 0, M, io::COPY) };
    assert!(!sizes(&[odd]).is_empty(), "only whole blocks can be shared");
}

#[test]
fn a_file_without_a_name_goes_with_its_last_user() {
    let unlink = call(Op::Unlink, NONE);
    let close = Event { pos: 3, ..Event::new(0, Op::Close) };
    assert_eq!(cached(data(0), &[write(0, M), unlink]), M, "still open");
    assert_eq!(cached(data(0), &[write(0, M), close]), M, "it has its name");
    assert_eq!(cached(data(0), &[write(0, M), unlink, close]), 0);
    assert_eq!(cached(data(0), &[write(0, M), close, unlink]), 0);
    let again = call(Op::Open, Event { pos: 4, aux: 4, ..NONE });
    assert_eq!(cached(data(0), &[write(0, M), again, unlink, close]), M, "a duplicate is open");
    let unmap = Event { addr: ADDR, len: M, ..Event::new(0, Op::Munmap) };
    let mapped = [write(0, M), map(M), unlink, close];
    assert_eq!(cached(data(0), &mapped), M, "still mapped");
    assert_eq!(cached(data(0), &[&mapped[..], &[unmap]].concat()), 0);
    let emptied = call(Op::Open, Event { pos: 4, flags: O_TRUNC, ..NONE });
    assert_eq!(cached(data(M), &[read(0, M), emptied]), 0);
}
