//! `meminfo` and `smaps` of a program that frees parts of its folios and forks.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::statistics::Statistics;
use largefolio_sim::replay::{CellSpec, replay};
use largefolio_trace::{Event, Op};

use super::{ADDR, store, two_huge_pages};

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
