//! `meminfo` and `smaps` of a program that frees parts of its folios and forks.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::statistics::Statistics;
use largefolio_sim::replay::{CellSpec, SharedMoment, replay};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, HUGE, program, store, two_huge_pages};

const PAGE: u64 = 4096;
const FOLIO_PAGES: u64 = 16;
const MADV_DONTNEED: u64 = 4;

/// 64 folios of 64K: three quarters of each of the first 32 are freed, then the program forks, and
/// the child stores to the last page.
fn statistics() -> [Statistics; 2] {
    let given_back = (0..32).map(|folio| Event {
        addr: ADDR + folio * FOLIO_PAGES * PAGE,
        len: 12 * PAGE,
        aux: MADV_DONTNEED,
        ..Event::new(0, Op::Madvise)
    });
    let fork = Event { aux: 1, ..Event::new(0, Op::Fork) };
    let events: Vec<Event> = given_back.chain([fork, store(1, 1023)]).collect();
    let (_dir, path) = two_huge_pages(&events);
    let spec =
        |kernel| CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named("zen4").unwrap());
    let specs = ["7.2+anon-64K=always", "7.2+anon-64K=always+mapcount=folio"].map(spec);
    let outcomes = replay(&path, &specs, &mut |_| {}).unwrap().1;
    let mut all = outcomes.into_iter().map(|outcome| outcome.statistics);
    std::array::from_fn(|_| all.next().unwrap())
}

/// 32 folios with 4 pages left, 32 whole ones, and the child's copy (docs/behaviour F.5.7, F.5.8).
#[test]
fn with_map_counts_of_pages_statistics_are_exact() {
    let [pages, _] = statistics();
    assert!(!pages.is_inexact());
    assert_eq!(pages.machine.anon_pages_bytes, (32 * 4 + 32 * 16 + 1) * PAGE);
    assert_eq!(pages.total.pss_bytes, 641 * PAGE);
    let uss: Vec<u64> = pages.processes.iter().map(|one| one.kernel.uss_bytes / PAGE).collect();
    assert_eq!(uss, [1, 1], "the last page of each");
}

/// A folio counts whole while any of its pages is mapped (docs/behaviour F.5.2, F.5.5). 8 mappings
/// of 16 pages average 1, 31 average 2. The page that only the parent maps is in a folio that both
/// map.
#[test]
fn without_map_counts_of_pages_the_error_is_told() {
    let [pages, folio] = statistics();
    assert_eq!(folio.machine.anon_pages_bytes, (64 * 16 + 1) * PAGE);
    assert_eq!((folio.machine_exact, folio.total_exact), (pages.machine, pages.total));
    assert_eq!(folio.total.pss_bytes, (256 + 31 * 16 + 1) * PAGE + 31 * PAGE / 2);
    let uss: Vec<u64> = folio.processes.iter().map(|one| one.kernel.uss_bytes / PAGE).collect();
    assert_eq!(uss, [0, 1]);
}

/// `PostgreSQL` unmaps its buffers before it ends. On 6.18.44, a run of it in single-user mode has
/// 2,850 faults fewer with `shmem_enabled=always` (n = 4), as predicted.
#[test]
fn shared_memory_counts_that_a_program_unmaps_before_it_ends() {
    let map = Event {
        addr: ADDR,
        len: 2 * HUGE,
        flags: mmap_flags(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS),
        ..Event::new(0, Op::Mmap)
    };
    let write = |page| Event::references(0, Op::Write, ADDR + page * PAGE, 1);
    let unmap = |first, pages| Event {
        addr: ADDR + first * PAGE,
        len: pages * PAGE,
        ..Event::new(0, Op::Munmap)
    };
    let events = [map, write(0), write(1), write(700), unmap(0, 1), unmap(1, 2 * HUGE / PAGE - 1)];
    let file = FileInfo { path: "/bin/p".into(), size_bytes: PAGE, ..FileInfo::default() };
    let (_dir, path) = program(vec![file], &events);
    let spec =
        |kernel| CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named("zen4").unwrap());
    let [never, always] = ["6.18", "6.18+shmem=always"].map(spec);
    let at_end = CellSpec { shared_memory: SharedMoment::End, ..never.clone() };
    let outcomes = replay(&path, &[never, always, at_end], &mut |_| {}).unwrap().1;
    assert_eq!(outcomes[2].folios.shmem.mapped_bytes, 0);
    for (outcome, bytes, huge_bytes) in
        [(&outcomes[0], 3 * PAGE, 0), (&outcomes[1], 2 * HUGE, 2 * HUGE)]
    {
        let shared = &outcome.folios.shmem;
        assert_eq!((shared.mapped_bytes, shared.pmd_bytes), (bytes, huge_bytes));
        assert_eq!(outcome.memory_stat["shmem"], bytes);
        assert_eq!(outcome.memory_stat["shmem_thp"], huge_bytes);
    }
}

/// What Linux 6.18.44 showed for the same program: the parent's pages in pagemap (bit 56) and
/// kpagecount, `mapmax` of `numa_maps`, and `memory.stat` of its cgroup, before the child's exit.
#[test]
fn what_pagemap_kpagecount_and_memory_stat_show_is_predicted() {
    const HUGEPAGE: u64 = 14;
    const COLLAPSE: u64 = 25;
    const PRIVATE: u32 = MAP_PRIVATE | MAP_ANONYMOUS;
    let at = |nr: u64| ADDR + nr * (1 << 30);
    let map = |nr, len, flags| Event {
        addr: at(nr),
        len,
        flags: mmap_flags(PROT_READ | PROT_WRITE, flags),
        ..Event::new(0, Op::Mmap)
    };
    let advise = |nr, len, aux| Event { addr: at(nr), len, aux, ..Event::new(0, Op::Madvise) };
    let write = |thread, nr, page| Event::references(thread, Op::Write, at(nr) + page * PAGE, 1);
    let fill = |nr, bytes: u64| (0..bytes / PAGE).map(move |page| write(0, nr, page));
    let mut events = vec![map(0, 4 * HUGE, PRIVATE), advise(0, 4 * HUGE, HUGEPAGE)];
    events.extend(fill(0, 4 * HUGE));
    events.push(map(1, HUGE, PRIVATE));
    events.extend(fill(1, HUGE));
    events.push(Event { file: Some(1), ..map(2, 2 * HUGE, MAP_SHARED) });
    events.extend(fill(2, 2 * HUGE));
    events.extend([advise(2, HUGE, COLLAPSE), write(0, 2, 0)]);
    events.push(Event { aux: 1, ..Event::new(0, Op::Fork) });
    events.extend([write(1, 1, 0), write(1, 0, 0), Event::new(1, Op::Exit)]);
    let program_file = FileInfo { path: "/bin/p".into(), size_bytes: PAGE, ..FileInfo::default() };
    let (path, filesystem) = ("[memfd:x]".into(), "tmpfs".into());
    let memory = FileInfo { path, filesystem, size_bytes: 2 * HUGE, ..FileInfo::default() };
    let (_dir, path) = program(vec![program_file, memory], &events);
    let kernel = Kernel::parse("6.18+thp=madvise").unwrap();
    let spec = CellSpec::new(kernel, Machine::named("zen4").unwrap());
    let outcome = replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0);
    let parent = outcome.statistics.processes[0].kernel;
    // The first page of a PMD entry decides for all of them: the child copied that one.
    assert_eq!(parent.exclusive_bytes, HUGE + PAGE + 2 * HUGE);
    assert_eq!(parent.mapped_once_bytes, PAGE + PAGE + 2 * HUGE);
    assert_eq!(parent.mapmax, 2);
    let stat = |name| outcome.memory_stat[name];
    let amounts = ["anon", "anon_thp", "shmem", "shmem_thp", "file_thp"].map(stat);
    assert_eq!(amounts, [5 * HUGE + 2 * PAGE, 4 * HUGE, 2 * HUGE, HUGE, 0]);
    assert_eq!((stat("thp_fault_alloc"), stat("pgfault")), (4, outcome.faults.total));
    assert_eq!(outcome.statistics.machine.shmem_huge_pages_bytes, HUGE);
}
