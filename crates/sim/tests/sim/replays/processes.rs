//! Many processes on one machine: execve, vfork, exit, and CPUs.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::path::PathBuf;

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{Budget, CellError, CellSpec, Outcome, ReplayError, replay};
use largefolio_trace::event::abi::{
    MAP_ANONYMOUS, MAP_PRIVATE, O_CLOEXEC, O_RDWR, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY, mmap_flags};
use largefolio_trace::{
    Event, Execution, ExitKind, FileInfo, Image, LayoutEntry, LayoutKind, Meta, Op, Writer,
};
use tempfile::TempDir;

const TEXT: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
const PAGE: u64 = 4096;
const NR_PAGES: u64 = 16;

fn layout(file: u32) -> Vec<LayoutEntry> {
    let (len, pos) = (NR_PAGES * PAGE, 0);
    let text =
        LayoutEntry { addr: TEXT, len, prot: 5, file: Some(file), pos, kind: LayoutKind::Program };
    let data = LayoutEntry { addr: DATA, prot: 3, file: None, kind: LayoutKind::Other, ..text };
    vec![text, data]
}

/// A trace of programs 0 to 2; the first process starts as program 0.
fn trace(events: &[Event]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("processes.folio");
    let file = |name: &str| FileInfo {
        path: name.into(),
        size_bytes: NR_PAGES * PAGE,
        filesystem: "xfs".into(),
        ..FileInfo::default()
    };
    let meta = Meta {
        files: ["/bin/make", "/bin/cc1", "/bin/as"].map(file).into(),
        layout: layout(0),
        images: (0..3).map(|file| Image { layout: layout(file), brk: 0 }).collect(),
        execs: (0..3).map(|image| Execution { command: Vec::new(), image }).collect(),
        ..Meta::default()
    };
    let mut writer = Writer::create(&path, meta).unwrap();
    writer.push_rows(events).unwrap();
    writer.finish().unwrap();
    (dir, path)
}

fn spec() -> CellSpec {
    CellSpec::new(Kernel::parse("6.18").unwrap(), Machine::named("cascadelake").unwrap())
}

fn run(events: &[Event], spec: CellSpec) -> Outcome {
    let (_dir, path) = trace(events);
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn store(thread: u32, page: u64) -> Event {
    Event::references(thread, Op::Write, DATA + page * PAGE, 1)
}

fn stores(thread: u32) -> Vec<Event> {
    (0..NR_PAGES).map(|page| store(thread, page)).collect()
}

fn fetches(thread: u32) -> Vec<Event> {
    (0..NR_PAGES).map(|page| Event::references(thread, Op::Exec, TEXT + page * PAGE, 1)).collect()
}

fn fork(thread: u32, child: u32, flags: u32) -> Event {
    Event { aux: child.into(), flags, ..Event::new(thread, Op::Fork) }
}

fn execve(thread: u32, program: u64) -> Event {
    Event { aux: program, ..Event::new(thread, Op::Execve) }
}

fn exit(thread: u32) -> Event {
    Event { flags: ExitKind::Process as u32, ..Event::new(thread, Op::Exit) }
}

#[test]
fn an_execve_counts_and_frees_what_was_mapped_and_maps_the_next_program() {
    let other = 0x7000_0000_0000;
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let map = Event { addr: other, len: PAGE, flags, ..Event::new(0, Op::Mmap) };
    let touch = Event::references(0, Op::Write, other, 1);
    let mut events = stores(0);
    events.extend([map, touch, execve(0, 1), touch]);
    events.extend(stores(0));
    events.extend(fetches(0));
    let outcome = run(&events, spec());
    assert_eq!(outcome.strays.unmapped, 1, "the mapping is gone");
    assert_eq!(outcome.folios.anon.mapped_bytes, (2 * NR_PAGES + 1) * PAGE, "of both programs");
    assert_eq!(outcome.folios.text.mapped_bytes, NR_PAGES * PAGE, "the second ran");
    let most = outcome.statistics.machine_exact.anon_pages_bytes;
    assert_eq!(most, NR_PAGES * PAGE, "not of both at a time");
}

#[test]
fn a_vforked_child_uses_its_parents_memory_until_it_executes_a_program() {
    let with = |flags| {
        let mut events = stores(0);
        events.push(fork(0, 1, flags));
        events.extend(stores(1));
        events.push(execve(1, 1));
        events.extend(stores(1));
        events.push(exit(1));
        events.extend(stores(0));
        run(&events, spec())
    };
    let (lent, copied) = (with(BORROWS_MEMORY), with(0));
    assert_eq!((lent.faults.cow, lent.faults.wp_reuse), (0, 0));
    assert_eq!((copied.faults.cow, copied.faults.wp_reuse), (NR_PAGES, NR_PAGES));
    assert_eq!(lent.faults.anon, 2 * NR_PAGES);
    assert_eq!(lent.folios.anon.mapped_bytes, 2 * NR_PAGES * PAGE, "each space counts once");
    assert_eq!(lent.entries.set_by_fork, 0);
}

#[test]
fn memory_that_was_lent_stays_when_the_lender_goes_first() {
    let mut events = stores(0);
    events.extend([fork(0, 1, BORROWS_MEMORY), exit(0)]);
    events.extend(stores(1));
    let outcome = run(&events, spec());
    assert_eq!((outcome.strays.unmapped, outcome.faults.anon), (0, NR_PAGES));
    assert_eq!(outcome.folios.anon.mapped_bytes, NR_PAGES * PAGE);
}

#[test]
fn an_execve_ends_the_other_threads() {
    let mut events = vec![fork(0, 1, SHARES_MEMORY), store(1, 0), store(0, 1), execve(1, 1)];
    events.extend([store(0, 2), fork(0, 2, 0), store(1, 2)]);
    let outcome = run(&events, spec());
    assert_eq!(outcome.strays.unmapped, 1, "the thread that was ended does nothing");
    assert_eq!(outcome.faults.anon, 3);
}

#[test]
fn an_execve_closes_what_was_opened_so() {
    let refused = |flags: u32| {
        let open = Event { file: Some(2), pos: 7, flags, ..Event::new(0, Op::Open) };
        let events = [open, execve(0, 1), fork(0, 1, 0), execve(1, 2)];
        run(&events, spec()).writers.open_for_write
    };
    assert_eq!(refused(O_RDWR | O_CLOEXEC), 0);
    assert_eq!(refused(O_RDWR), 1);
}

#[test]
fn processes_share_the_page_cache_and_free_what_they_end_with() {
    let mut events = Vec::new();
    for child in 1..=3 {
        events.extend([fork(0, child, BORROWS_MEMORY), execve(child, 1)]);
        events.extend(fetches(child));
        events.extend(stores(child));
        events.push(exit(child));
    }
    let outcome = run(&events, spec());
    let of_first = run(&[], spec()).reads.bytes;
    assert_eq!(outcome.reads.bytes, of_first + NR_PAGES * PAGE, "the program is read once");
    assert_eq!(outcome.folios.text.mapped_bytes, 3 * NR_PAGES * PAGE, "and mapped by each");
    let most = outcome.statistics.machine_exact.anon_pages_bytes;
    assert_eq!(most, NR_PAGES * PAGE, "one at a time");
}

/// A process that forks `nr` times and waits; each child executes a program and exits.
fn children(nr: u32) -> Vec<Event> {
    let open = |thread| Event { file: Some(2), pos: 3, ..Event::new(thread, Op::Open) };
    (1..=nr)
        .flat_map(|child| {
            let begins = [fork(0, child, BORROWS_MEMORY), open(child), execve(child, 1)];
            let ends = [store(child, 0), fork(child, nr + child, SHARES_MEMORY), exit(child)];
            begins.into_iter().chain(ends)
        })
        .collect()
}

#[test]
fn what_is_kept_does_not_grow_with_processes_that_ended() {
    let mut spec = spec();
    spec.budget = Budget { state_bytes: 4 << 20, ..Budget::default() };
    let outcome = run(&children(20_000), spec);
    assert_eq!(outcome.faults.anon, 20_000);
}

#[test]
fn ten_thousand_processes_live_at_a_time_and_a_fork_bomb_is_told() {
    let bomb = |nr: u32| -> Vec<Event> {
        let forks = (1..=nr).map(|child| fork(child / 2, child, 0));
        forks.chain((0..nr).step_by(100).map(|thread| store(thread, 0))).collect()
    };
    let outcome = run(&bomb(10_000), spec());
    assert_eq!(outcome.strays.unmapped, 0);
    let (_dir, path) = trace(&bomb(40_000));
    let error = replay(&path, &[spec()], &mut |_| {}).unwrap_err();
    let ReplayError::Cell { source: CellError::TooManyProcesses, .. } = &error else {
        panic!("another error: {error}")
    };
    assert!(error.to_string().contains("than the limit of 16384"));
}

#[test]
fn a_program_that_executes_itself_without_end_is_replayed_or_refused() {
    let events: Vec<Event> =
        (0..20_000).flat_map(|nr| [execve(0, nr % 3), store(0, nr % NR_PAGES)]).collect();
    let outcome = run(&events, spec());
    assert_eq!((outcome.faults.anon, outcome.strays.unmapped), (20_000, 0));
}

/// Two processes that alternate, each on the same recorded pages.
fn turns(nr: u64) -> Vec<Event> {
    let mut events = vec![fork(0, 1, 0)];
    for _ in 0..nr {
        events.extend(stores(0).into_iter().chain(stores(1)));
    }
    events
}

fn data_misses(nr_cpus: u32, nr_spaces: u32) -> u64 {
    let mut spec = spec();
    spec.nr_cpus = Some(nr_cpus);
    spec.machine.tlb.address_spaces.nr = nr_spaces;
    let outcome = run(&turns(10), spec);
    assert_eq!(outcome.nr_cpus, nr_cpus);
    outcome.tlb.data.l2_misses
}

#[test]
fn a_switch_of_address_spaces_flushes_what_the_cpu_has_no_tag_for() {
    let each_once = 2 * NR_PAGES;
    assert_eq!(data_misses(2, 1), each_once, "each has its CPU");
    assert_eq!(data_misses(1, 2), each_once, "the CPU keeps both");
    assert_eq!(data_misses(1, 1), 10 * each_once, "every switch flushes");
}

#[test]
fn the_next_thread_finds_what_the_last_one_left_in_the_tlb() {
    let threads = |nr_cpus| {
        let mut events = Vec::new();
        for child in 1..=8 {
            events.push(fork(0, child, SHARES_MEMORY));
            events.extend(stores(child));
            events.push(Event::new(child, Op::Exit));
        }
        let mut spec = spec();
        spec.nr_cpus = Some(nr_cpus);
        run(&events, spec).tlb.data.l2_misses
    };
    assert_eq!((threads(1), threads(8)), (NR_PAGES, NR_PAGES), "one runs at a time");
}
