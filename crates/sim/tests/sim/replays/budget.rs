//! Traces of a few KiB that need hours of work or gigabytes of memory: each ends within the budget,
//! with an error that names the row.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::ops::ControlFlow;

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{
    Budget, CellError, CellSpec, Excess, ReplayError, replay, replay_until,
};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, Execution, FileInfo, Image, Meta, Op, OpenTrace};

const HUGE_LEN: u64 = 1 << 46;
const ADDR: u64 = 0x1000_0000_0000;
const CALL: u64 = 0x7fff_f000;
/// Small enough for the gate; each trace needs a thousand times as much.
const BUDGET: Budget =
    Budget { steps: 1 << 19, steps_per_row: 16, state_bytes: 24 << 20, factor: 1 };

fn spec(kernel: &str, budget: Budget) -> CellSpec {
    let kernel = Kernel::parse(kernel).unwrap();
    let mut spec = CellSpec::new(kernel, Machine::named("cascadelake").unwrap());
    spec.budget = budget;
    spec
}

fn private(addr: u64, len: u64) -> Event {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    Event { addr, len, flags, ..Event::new(0, Op::Mmap) }
}

fn file(size_bytes: u64) -> FileInfo {
    FileInfo { path: "/data".into(), size_bytes, filesystem: "xfs".into(), ..FileInfo::default() }
}

fn times(nr: u64, each: impl FnMut(u64) -> Event) -> Vec<Event> {
    (0..nr).map(each).collect()
}

fn collapses() -> Vec<Event> {
    let mut events = vec![private(ADDR, HUGE_LEN), Event::references(0, Op::Write, ADDR, 1)];
    let collapse = Event { addr: ADDR, len: HUGE_LEN, ..Event::new(0, Op::Collapse) };
    events.extend(times(10_000, |_| collapse));
    events
}

fn preads() -> Vec<Event> {
    let pread = |nr| Event { file: Some(0), pos: nr * CALL, len: CALL, ..Event::new(0, Op::Pread) };
    times(20_000, pread)
}

fn pwrites() -> Vec<Event> {
    let pwrite = |nr: u64| {
        let pos = nr * (1 << 30);
        Event { file: Some(0), pos, len: 1, ..Event::new(0, Op::Pwrite) }
    };
    times(100_000, pwrite)
}

fn forks() -> Vec<Event> {
    let mut events = vec![private(ADDR, 64 << 20)];
    events.extend(times(16_000, |page| Event::references(0, Op::Write, ADDR + (page << 12), 1)));
    events.extend(times(16_000, |nr| Event { aux: nr + 1, ..Event::new(0, Op::Fork) }));
    events
}

fn sparse_map() -> Vec<Event> {
    let mut events = vec![private(ADDR, HUGE_LEN)];
    let page = |nr| Event::references(0, Op::Write, ADDR + (nr << 30), 1);
    events.extend(times(60_000, page));
    events
}

/// Areas split by mprotect, then repeatedly protected as a whole.
fn protections() -> Vec<Event> {
    let mut events = vec![private(ADDR, 1 << 30)];
    let protect = |addr, len, flags| Event { addr, len, flags, ..Event::new(0, Op::Mprotect) };
    events.extend(times(1_000, |nr| protect(ADDR + (nr << 13), 4096, PROT_READ)));
    events.extend(times(100_000, |_| protect(ADDR, 8 << 20, PROT_READ | PROT_WRITE)));
    events.extend(times(1_000, |nr| protect(ADDR + (nr << 13), 4096, PROT_READ)));
    events
}

fn populates() -> Vec<Event> {
    let flags = mmap_flags(PROT_READ, MAP_SHARED);
    let map = Event { file: Some(0), addr: ADDR, len: HUGE_LEN, flags, ..Event::new(0, Op::Mmap) };
    let populate = Event { addr: ADDR, len: HUGE_LEN, aux: 22, ..Event::new(0, Op::Madvise) };
    std::iter::once(map).chain(times(1_000, |_| populate)).collect()
}

fn opens() -> Vec<Event> {
    times(1 << 20, |nr| Event { file: Some(0), pos: nr, ..Event::new(0, Op::Open) })
}

/// Opens, then programs that start and close none of them.
fn execs() -> Vec<Event> {
    let mut events = opens()[..4_000].to_vec();
    events.extend(times(2_000, |_| Event::new(0, Op::Execve)));
    events
}

/// A page that always stays mapped, and areas that khugepaged scans at each wakeup; it wakes in
/// every row.
fn wakings() -> Vec<Event> {
    let mut events = vec![private(ADDR, 4 << 20)];
    let advised = Event { addr: ADDR, len: 4 << 20, aux: 14, ..Event::new(0, Op::Madvise) };
    events.extend([advised, Event::references(0, Op::Write, ADDR, 1)]);
    // Neighbours with the same protection would merge into one area.
    let area = |nr: u64| {
        let prot = if nr.is_multiple_of(2) { PROT_READ } else { PROT_READ | PROT_WRITE };
        let flags = mmap_flags(prot, MAP_PRIVATE | MAP_ANONYMOUS);
        Event { flags, ..private(2 * ADDR + (nr << 13), 4096) }
    };
    events.extend(times(1_500, area));
    events.extend(times(4_000, |_| Event::references(0, Op::Read, ADDR, 20_000_000_000)));
    events
}

fn refused(events: &[Event], spec: &CellSpec) -> Option<(u64, Excess, String)> {
    let images = vec![Image { layout: Vec::new(), brk: 0 }];
    let execs = vec![Execution { command: Vec::new(), image: 0 }];
    let files = vec![file(u64::MAX >> 1)];
    let (_dir, path) = super::program_of(Meta { files, images, execs, ..Meta::default() }, events);
    let Err(error) = replay(&path, std::slice::from_ref(spec), &mut |_| {}) else { return None };
    let text = error.to_string();
    let ReplayError::Cell { source: CellError::OverBudget(over), .. } = error else {
        panic!("another error: {text}")
    };
    Some((over.row.unwrap(), over.excess, text))
}

#[test]
fn a_trace_that_asks_for_too_much_ends_at_a_row_with_a_remedy() {
    let all: [(&str, Vec<Event>, Op); 8] = [
        ("preads", preads(), Op::Pread),
        ("pwrites", pwrites(), Op::Pwrite),
        ("forks", forks(), Op::Fork),
        ("sparse map", sparse_map(), Op::Write),
        ("populates", populates(), Op::Madvise),
        ("opens", opens(), Op::Open),
        ("execs", execs(), Op::Execve),
        ("wakings", wakings(), Op::Read),
    ];
    for (name, events, op) in all {
        let spec = spec("6.12", BUDGET);
        let (row, excess, text) = refused(&events, &spec).unwrap_or_else(|| panic!("{name}"));
        println!("{name}: {} rows: {text}", events.len());
        assert_eq!(events[usize::try_from(row).unwrap()].op, op, "{name}");
        assert!(row > 0 && text.contains(&format!("row {row} of the trace")), "{name}: {text}");
        assert!(text.contains("--max-work 4"), "{name}: {text}");
        match excess {
            // A fork copies everything before the check.
            Excess::Steps { taken, allowed, .. } => {
                assert!(taken < 2 * allowed, "{name}: {excess:?}");
            }
            Excess::State { held, allowed } => assert!(held < 2 * allowed, "{name}: {excess:?}"),
        }
        assert_eq!(refused(&events, &spec), Some((row, excess, text)), "{name}: the same again");
    }
}

#[test]
fn one_call_takes_little_more_than_is_allowed() {
    let call = |op| Event { file: Some(0), len: CALL, ..Event::new(0, op) };
    let small = Budget { steps: 1 << 11, ..BUDGET };
    for kernel in ["6.1+lru=generations", "6.12", "7.2"] {
        for op in [Op::Pread, Op::Pwrite] {
            let spec = CellSpec { ram_bytes: 32 << 20, ..spec(kernel, small) };
            let (row, excess, text) = refused(&[call(op)], &spec).expect(kernel);
            let Excess::Steps { taken, allowed, .. } = excess else { panic!("{kernel}: {text}") };
            // Reclaim scans all 8,192 pages a few times.
            assert!(row == 0 && taken < 64 * allowed, "{kernel} {op:?}: {excess:?}");
        }
    }
}

#[test]
fn areas_that_are_cut_and_joined_cost_what_they_are() {
    let events = protections();
    let small = Budget { steps: 1 << 12, steps_per_row: 4, ..BUDGET };
    assert!(refused(&events, &spec("6.12", small)).is_some());
}

#[test]
fn who_trusts_a_trace_allows_more() {
    let events = forks()[..16_100].to_vec();
    let tight = Budget { steps: 1 << 10, steps_per_row: 1, ..BUDGET };
    assert!(refused(&events, &spec("6.12", tight)).is_some());
    assert_eq!(refused(&events, &spec("6.12", Budget::default())), None);
}

/// Collapsing ranges without pages is free: 10,000 times half an address space.
#[test]
fn a_collapse_of_nothing_costs_nothing() {
    for kernel in ["6.18", "7.2"] {
        assert_eq!(refused(&collapses(), &spec(kernel, BUDGET)), None, "{kernel}");
    }
}

/// Advice takes one step per page table with pages, and none for an empty range.
#[test]
fn advice_on_nothing_costs_nothing() {
    for advice in [20, 21] {
        let mut events = vec![private(ADDR, HUGE_LEN), Event::references(0, Op::Write, ADDR, 1)];
        let advise = Event { addr: ADDR, len: HUGE_LEN, aux: advice, ..Event::new(0, Op::Madvise) };
        events.extend(times(2_000, |_| advise));
        assert_eq!(refused(&events, &spec("6.18", BUDGET)), None, "MADV number {advice}");
    }
}

/// A zero-length write does not extend a file, so reads of it use no more than its length.
#[test]
fn a_write_of_nothing_leaves_a_file_as_it_was() {
    let call = |op, pos, len| Event { file: Some(0), pos, len, ..Event::new(0, op) };
    let events = [call(Op::Pwrite, 1 << 40, 0), call(Op::Pread, 0, CALL), call(Op::Pwrite, 0, 1)];
    let (_dir, path) = super::program(vec![file(1 << 20)], &events);
    let (_, outcomes) = replay(&path, &[spec("6.18", BUDGET)], &mut |_| {}).unwrap();
    assert_eq!(outcomes[0].reads.used_bytes, 1 << 20);
}

#[test]
fn blocks_without_pages_are_refused_one_by_one_all_the_same() {
    let events = collapses()[..3].to_vec();
    let (_dir, path) = super::program(vec![file(4096)], &events);
    let spec = spec("7.2", Budget::default());
    let (_, outcomes) = replay(&path, std::slice::from_ref(&spec), &mut |_| {}).unwrap();
    let collapse = &outcomes[0].collapse;
    let refused: u64 = collapse.refused.values().sum();
    assert_eq!(refused, (HUGE_LEN >> 21) - 1, "{collapse:?}");
}

#[test]
fn an_unannounced_thread_is_an_error() {
    let row = Event::references(7, Op::Read, 0x40_0000, 1);
    let (_dir, path) = super::program(vec![file(4096)], &[row]);
    let error = replay(&path, &[spec("6.12", BUDGET)], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("thread 7 is not the first one, and no fork"), "{error}");
    let close = Event { pos: 3, ..Event::new(7, Op::Close) };
    let (_dir, path) = super::program(vec![file(4096)], &[close]);
    assert!(replay(&path, &[spec("6.12", BUDGET)], &mut |_| {}).is_err());
    let fork = Event { aux: 7, flags: 1, ..Event::new(0, Op::Fork) };
    let (_dir, path) = super::program(vec![file(4096)], &[fork, row, close]);
    assert!(replay(&path, &[spec("6.12", BUDGET)], &mut |_| {}).is_ok());
}

/// A study or an option can request it, so ageing is charged before it begins.
#[test]
fn ageing_of_too_much_memory_never_begins() {
    let (_dir, path) = super::program(vec![file(4096)], &[]);
    let message = |gib: u64, rounds| {
        let budget = Budget::default();
        let spec = CellSpec { ram_bytes: gib << 30, aged_rounds: rounds, ..spec("6.16", budget) };
        let error = replay(&path, &[spec], &mut |_| {}).unwrap_err();
        let is_ageing = matches!(&error, ReplayError::Cell { source: CellError::Ageing(_), .. });
        assert!(is_ageing, "{error}");
        error.to_string()
    };
    let steps = "ageing 1T of memory for 100 rounds takes up to 3355443200 steps, but 67108864 are \
                 allowed; use less memory or fewer rounds, or allow more with `--max-work 50`";
    assert!(message(1024, 100).contains(steps), "{}", message(1024, 100));
    assert!(
        message(256, 1).contains(" MiB of state, but only 1024 MiB are allowed"),
        "{}",
        message(256, 1)
    );
}

#[test]
fn ageing_ends_when_somebody_says_so() {
    let (_dir, path) = super::program(vec![file(4096)], &[]);
    let trace = OpenTrace::open(&path).unwrap();
    let aged = CellSpec { ram_bytes: 1 << 30, aged_rounds: 2, ..spec("6.16", Budget::default()) };
    let mut nr_heard = 0;
    let stopped = replay_until(&trace, &[aged], &mut |nr_rows| {
        assert_eq!(nr_rows, 0);
        nr_heard += 1;
        ControlFlow::Break(())
    });
    assert!(matches!(stopped, Err(ReplayError::Stopped)) && nr_heard == 1, "{stopped:?}");
}

#[test]
fn recorded_programs_take_a_small_part_of_the_budget() {
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces");
    for name in ["perf", "python3"] {
        let path = std::path::Path::new(traces).join(format!("{name}.folio"));
        let full = Budget::default();
        let part = |of| of / 100;
        let (steps, state_bytes) = (part(full.steps), part(full.state_bytes) * 8);
        let spec = spec("7.2", Budget { steps, steps_per_row: 0, state_bytes, factor: 1 });
        if let Err(error) = replay(&path, std::slice::from_ref(&spec), &mut |_| {}) {
            panic!("{name}: {error}");
        }
    }
}
