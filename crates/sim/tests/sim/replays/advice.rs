//! Advice in a trace: both events of `MADV_COLLAPSE`, and `MADV_PAGEOUT`, with their results.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::collections::BTreeMap;

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{
    MAP_ANONYMOUS, MAP_LOCKED, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, Op};

use super::{ADDR, HUGE, two_huge_pages};

const MADV_NOHUGEPAGE: u64 = 15;
const MADV_COLLAPSE: u64 = 25;

fn run(kernel: &str, events: &[Event]) -> Outcome {
    let (_dir, path) = two_huge_pages(events);
    let spec = CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named("altra").unwrap());
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn range(op: Op) -> Event {
    Event { addr: ADDR, len: 2 * HUGE, ..Event::new(0, op) }
}

#[test]
fn both_events_collapse_the_range() {
    let without = run("6.18+thp=never", &[]);
    assert_eq!((without.collapse.collapsed, without.folios.anon.pmd_bytes), (0, 0));
    let advised = Event { aux: MADV_COLLAPSE, ..range(Op::Madvise) };
    for event in [range(Op::Collapse), advised] {
        let outcome = run("6.18+thp=never", &[event]);
        assert_eq!(outcome.folios.anon.pmd_bytes, 2 * HUGE, "whatever the setting says");
        let collapse = outcome.collapse;
        assert_eq!((collapse.collapsed, collapse.thp_collapse_alloc), (2, 2));
        assert_eq!(collapse.refused, BTreeMap::new());
    }
}

#[test]
fn what_was_refused_is_told_by_name() {
    let advice = |aux| Event { aux, ..range(Op::Madvise) };
    let outcome = run("6.18", &[advice(MADV_NOHUGEPAGE), range(Op::Collapse)]);
    assert_eq!(outcome.collapse.refused, BTreeMap::from([("vma_check", 1)]));
    let protect = Event { flags: PROT_READ, ..range(Op::Mprotect) };
    let outcome = run("6.12", &[protect, range(Op::Collapse)]);
    assert!(outcome.collapse.refused.contains_key("page_ro"), "{:?}", outcome.collapse);
    assert_eq!(run("6.18", &[protect, range(Op::Collapse)]).collapse.collapsed, 2);
}

#[test]
fn pages_that_a_program_does_not_need_go_to_swap_space() {
    const MADV_PAGEOUT: u64 = 21;
    let (_dir, path) = two_huge_pages(&[Event { aux: MADV_PAGEOUT, ..range(Op::Madvise) }]);
    for kernel in ["6.1", "7.2"] {
        let kernel = Kernel::parse(kernel).unwrap();
        let spec = CellSpec::new(kernel, Machine::named("altra").unwrap());
        let spec = CellSpec { swap_bytes: 64 << 20, ..spec };
        let outcome = replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0);
        assert_eq!(outcome.folios.anon.pmd_bytes, 0);
        assert_eq!(outcome.pressure["pswpout"] * 4096, 2 * HUGE);
    }
}

#[test]
fn a_mapping_is_populated_where_it_asks_for_it() {
    const MADV_POPULATE_WRITE: u64 = 23;
    let bytes = |prot, flags, events: &[Event]| {
        let beside = Event {
            addr: ADDR + 8 * HUGE,
            flags: mmap_flags(prot, flags | MAP_ANONYMOUS),
            ..range(Op::Mmap)
        };
        let events: Vec<Event> = [beside].into_iter().chain(events.iter().copied()).collect();
        let folios = run("6.18+thp=never", &events).folios;
        (folios.anon.mapped_bytes + folios.shmem.mapped_bytes) - 2 * HUGE
    };
    let both = PROT_READ | PROT_WRITE;
    assert_eq!(bytes(both, MAP_PRIVATE, &[]), 0);
    for flag in [MAP_POPULATE, MAP_LOCKED] {
        for sharing in [MAP_PRIVATE, MAP_SHARED] {
            assert_eq!(bytes(both, sharing | flag, &[]), 2 * HUGE, "{sharing} {flag:x}");
        }
        assert_eq!(bytes(0, MAP_PRIVATE | flag, &[]), 0, "no access is allowed");
    }
    let advice = Event { addr: ADDR + 8 * HUGE, aux: MADV_POPULATE_WRITE, ..range(Op::Madvise) };
    assert_eq!(bytes(both, MAP_PRIVATE, &[advice]), 2 * HUGE);
    assert_eq!(bytes(PROT_READ, MAP_PRIVATE, &[advice]), 0, "a store is not allowed");
}
