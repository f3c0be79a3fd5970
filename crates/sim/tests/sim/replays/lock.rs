//! Calls that say how to treat memory: mlock, the switch for THP, advice about fork, and WILLNEED.

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_LOCKED, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::{lock, mmap_flags, thp_disable};
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, HUGE, program};

const NR_PAGES: u64 = 2 * HUGE / 4096;
const BOTH: u32 = PROT_READ | PROT_WRITE;

fn run(kernel: &str, events: &[Event]) -> Outcome {
    let file = |path: &str, size_bytes| FileInfo {
        path: path.into(),
        size_bytes,
        filesystem: "ext4".into(),
        ..FileInfo::default()
    };
    let (_dir, path) = program(vec![file("/bin/p", 0x1000), file("/data", 2 * HUGE)], events);
    let spec = CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named("altra").unwrap());
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn map(nr: u64, prot: u32, flags: u32) -> Event {
    let flags = mmap_flags(prot, MAP_PRIVATE | MAP_ANONYMOUS | flags);
    Event { addr: ADDR + nr * (1 << 30), len: 2 * HUGE, flags, ..Event::new(0, Op::Mmap) }
}

fn of_map(nr: u64, op: Op) -> Event {
    Event { addr: ADDR + nr * (1 << 30), len: 2 * HUGE, ..Event::new(0, op) }
}

fn lock(nr: u64, flags: u32) -> Event {
    Event { flags, ..of_map(nr, Op::Mlock) }
}

fn advise(nr: u64, aux: u64) -> Event {
    Event { aux, ..of_map(nr, Op::Madvise) }
}

fn stores(thread: u32, nr: u64) -> Vec<Event> {
    let start = ADDR + nr * (1 << 30);
    let store = |page| Event::references(thread, Op::Write, start + page * 4096, 1);
    (0..NR_PAGES).map(store).collect()
}

fn anon_bytes(events: &[Event]) -> u64 {
    run("6.18+thp=never", events).folios.anon.mapped_bytes
}

#[test]
fn a_locked_range_is_populated() {
    let all = 2 * HUGE;
    assert_eq!(anon_bytes(&[map(0, BOTH, 0), lock(0, lock::CURRENT)]), all);
    assert_eq!(anon_bytes(&[map(0, BOTH, 0), lock(0, lock::ON_FAULT)]), 0);
    assert_eq!(anon_bytes(&[map(0, BOTH, MAP_LOCKED)]), all);
    // Up to the first page without access.
    let protect = Event { addr: ADDR + HUGE, len: HUGE / 2, ..of_map(0, Op::Mprotect) };
    assert_eq!(anon_bytes(&[map(0, BOTH, 0), protect, lock(0, lock::CURRENT)]), HUGE);
    // Not a multiple of the page size: two pages.
    let odd = Event { addr: ADDR + 4000, len: 200, ..lock(0, lock::CURRENT) };
    assert_eq!(anon_bytes(&[map(0, BOTH, 0), odd]), 2 * 4096);
    // Private memory that becomes writable.
    let writable = Event { flags: BOTH, ..of_map(0, Op::Mprotect) };
    assert_eq!(anon_bytes(&[map(0, 0, MAP_LOCKED)]), 0);
    assert_eq!(anon_bytes(&[map(0, 0, MAP_LOCKED), writable]), all);
}

#[test]
fn all_memory_is_locked_now_or_later() {
    let every = |flags| Event { addr: 0, len: 0, ..lock(0, flags) };
    let both = lock::CURRENT | lock::FUTURE;
    let bytes = |flags| anon_bytes(&[map(0, BOTH, 0), every(flags), map(1, BOTH, 0)]);
    assert_eq!(bytes(lock::CURRENT), 2 * HUGE);
    assert_eq!(bytes(lock::FUTURE), 2 * HUGE);
    assert_eq!(bytes(both), 4 * HUGE);
    assert_eq!(bytes(both | lock::ON_FAULT), 0);
    assert_eq!(anon_bytes(&[every(lock::FUTURE), every(0), map(1, BOTH, 0)]), 0);
}

#[test]
fn locked_pages_cannot_be_discarded() {
    const DONTNEED: u64 = 4;
    const DONTNEED_LOCKED: u64 = 24;
    let locked = [map(0, BOTH, 0), lock(0, lock::CURRENT)];
    let after = |event| anon_bytes(&[locked[0], locked[1], event]);
    assert_eq!(after(advise(0, DONTNEED)), 2 * HUGE);
    assert_eq!(after(advise(0, DONTNEED_LOCKED)), 0);
    assert_eq!(anon_bytes(&[locked[0], locked[1], lock(0, 0), advise(0, DONTNEED)]), 0);
}

#[test]
fn locked_pages_stay_under_a_limit() {
    let mut events = vec![map(0, BOTH, 0), lock(0, lock::CURRENT), map(1, BOTH, 0)];
    events.extend(stores(0, 1));
    events.extend(stores(0, 0));
    let swapped = |events: &[Event]| {
        let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
        let (_dir, path) = program(vec![file], events);
        let kernel = Kernel::parse("6.18+thp=never+lru=lists").unwrap();
        let mut spec = CellSpec::new(kernel, Machine::named("altra").unwrap());
        spec.cgroups = vec!["6M".parse().unwrap()];
        spec.swap_bytes = 1 << 30;
        replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0).faults.swap_in
    };
    assert_eq!(swapped(&events), 0, "the other mapping was swapped out");
    events[1].flags = lock::FUTURE;
    events[1].op = Op::Madvise;
    events.splice(2..2, stores(0, 0));
    assert!(swapped(&events) > 0, "without the lock");
}

#[test]
fn a_process_and_its_children_turn_thp_off() {
    let switch = |aux| Event { aux, ..Event::new(0, Op::ThpDisable) };
    let pmds = |events: &[Event]| run("6.18+thp=always", events).folios.anon.pmd_bytes / HUGE;
    let with = |head: &[Event], tail: Vec<Event>| [head, &tail].concat();
    assert_eq!(pmds(&with(&[map(0, BOTH, 0)], stores(0, 0))), 2);
    let off = switch(thp_disable::ALL);
    assert_eq!(pmds(&with(&[off, map(0, BOTH, 0)], stores(0, 0))), 0);
    assert_eq!(pmds(&with(&[off, map(0, BOTH, 0), advise(0, 14)], stores(0, 0))), 0);
    assert_eq!(pmds(&with(&[off, switch(0), map(0, BOTH, 0)], stores(0, 0))), 2);
    let except = switch(thp_disable::ALL | thp_disable::EXCEPT_ADVISED);
    assert_eq!(pmds(&with(&[except, map(0, BOTH, 0)], stores(0, 0))), 0);
    assert_eq!(pmds(&with(&[except, map(0, BOTH, 0), advise(0, 14)], stores(0, 0))), 2);
    // Before 6.18, the call with the flag fails.
    let all = with(&[except, map(0, BOTH, 0)], stores(0, 0));
    assert_eq!(run("6.17+thp=always", &all).folios.anon.pmd_bytes / HUGE, 2);
    let fork = Event { aux: 1, ..Event::new(0, Op::Fork) };
    let map_of_child = Event { thread: 1, ..map(0, BOTH, 0) };
    assert_eq!(pmds(&with(&[off, fork, map_of_child], stores(1, 0))), 0);
}

#[test]
fn a_program_starts_with_the_limit_of_its_starter() {
    let pmds = |kernel: &str, events: &[Event]| run(kernel, events).folios.anon.pmd_bytes / HUGE;
    let with = |head: &[Event], tail: Vec<Event>| [head, &tail].concat();
    let plain = with(&[map(0, BOTH, 0)], stores(0, 0));
    let advised = with(&[map(0, BOTH, 0), advise(0, 14)], stores(0, 0));
    let again = Event::new(0, Op::ThpDisable);
    let enabled = with(&[again, map(0, BOTH, 0)], stores(0, 0));
    let fork = Event { aux: 1, ..Event::new(0, Op::Fork) };
    let child = with(&[fork, Event { thread: 1, ..map(0, BOTH, 0) }], stores(1, 0));
    let always = "6.18+thp=always+program-thp=";
    for (limit, expected) in
        [("inherit", [2, 2, 2, 2]), ("advised", [0, 2, 2, 0]), ("off", [0, 0, 2, 0])]
    {
        let all =
            [&plain, &advised, &enabled, &child].map(|it| pmds(&format!("{always}{limit}"), it));
        assert_eq!(all, expected, "{limit}");
    }
    assert!(Kernel::parse("6.17+program-thp=off").is_ok());
    let refused = Kernel::parse("6.17+program-thp=advised").unwrap_err().to_string();
    assert!(refused.contains("before Linux 6.18"), "{refused}");
}

#[test]
fn fork_leaves_out_or_wipes_what_the_program_says() {
    const DONTFORK: u64 = 10;
    const DOFORK: u64 = 11;
    const WIPEONFORK: u64 = 18;
    const KEEPONFORK: u64 = 19;
    let copies = |advice: &[u64]| {
        let mut events = vec![map(0, BOTH, 0)];
        events.extend(stores(0, 0));
        events.extend(advice.iter().map(|&aux| advise(0, aux)));
        events.push(Event { aux: 1, ..Event::new(0, Op::Fork) });
        events.extend(stores(1, 0));
        let faults = run("6.18+thp=never", &events).faults;
        (faults.cow, faults.anon)
    };
    assert_eq!(copies(&[]), (NR_PAGES, NR_PAGES));
    assert_eq!(copies(&[DONTFORK]), (0, NR_PAGES));
    assert_eq!(copies(&[DONTFORK, DOFORK]), (NR_PAGES, NR_PAGES));
    assert_eq!(copies(&[WIPEONFORK]), (0, 2 * NR_PAGES));
    assert_eq!(copies(&[WIPEONFORK, KEEPONFORK]), (NR_PAGES, NR_PAGES));
}

#[test]
fn willneed_reads_a_mapped_file() {
    const WILLNEED: u64 = 3;
    let flags = mmap_flags(PROT_READ, MAP_PRIVATE);
    let map = Event { flags, file: Some(1), ..of_map(0, Op::Mmap) };
    let advice = Event { addr: ADDR + HUGE, len: HUGE, ..advise(0, WILLNEED) };
    let bytes = |events: &[Event]| run("6.18+readahead=4M", events).reads.bytes;
    let of_execve = bytes(&[]);
    assert_eq!(bytes(&[map]), of_execve);
    assert_eq!(bytes(&[map, advice]), of_execve + HUGE);
}

#[test]
fn an_address_that_the_program_rounded_stays_rounded() {
    let reserved = Event { addr: ADDR + 0x3000, ..map(0, 0, 0) };
    let reserved = Event { len: 8 * HUGE, ..reserved };
    let rounded = ADDR + HUGE;
    let protect = Event { addr: rounded, len: 2 * HUGE, flags: BOTH, ..of_map(0, Op::Mprotect) };
    let pages = 0..NR_PAGES;
    let store = |page| Event::references(0, Op::Write, rounded + page * 4096, 1);
    let events = [vec![reserved, protect], pages.map(store).collect()].concat();
    assert_eq!(run("6.18+thp=always", &events).folios.anon.pmd_bytes, 2 * HUGE);
    // An allocator that cuts off both ends.
    let mapped = Event { addr: ADDR + 0x3000, len: 4 * HUGE, ..map(0, BOTH, 0) };
    let head = Event { len: rounded - mapped.addr, ..Event { op: Op::Munmap, ..mapped } };
    let events = [vec![mapped, head], (0..NR_PAGES).map(store).collect()].concat();
    assert_eq!(run("6.1+thp=always", &events).folios.anon.pmd_bytes, 2 * HUGE);
}
