//! Memory policies that a program sets, on a machine with two nodes (docs/behaviour R.2).

use largefolio_mm::nodes::LOCAL_DISTANCE;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::{Machine, MachineNode};
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::{SHARES_MEMORY, mempolicy, mmap_flags};
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, program, two_huge_pages};

const PAGE: u64 = 4096;
const NR_PAGES: u64 = 64;
const AREA: u64 = NR_PAGES * PAGE;

/// `MPOL_*`, with the nodes as bits.
const DEFAULT: (u32, u64) = (0, 0);
const PREFERRED_1: (u32, u64) = (1, 2);
const BIND_1: (u32, u64) = (2, 2);
const INTERLEAVE: (u32, u64) = (3, 3);
const WEIGHTED: (u32, u64) = (6, 3);

fn two_nodes() -> Machine {
    let node = |distances: [u8; 2]| MachineNode {
        share: 1,
        distances: distances.to_vec(),
        weight: 1,
        source: "a test".into(),
        assumed: false,
    };
    let nodes = vec![node([LOCAL_DISTANCE, 20]), node([20, LOCAL_DISTANCE])];
    Machine { nodes, ..Machine::named("zen4").unwrap() }
}

fn map(nr: u64) -> Event {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    Event { addr: ADDR + nr * (1 << 30), len: AREA, flags, ..Event::new(0, Op::Mmap) }
}

fn stores(thread: u32, nr: u64) -> impl Iterator<Item = Event> {
    let start = ADDR + nr * (1 << 30);
    (0..NR_PAGES).map(move |page| Event::references(thread, Op::Write, start + page * PAGE, 1))
}

fn set(thread: u32, (flags, aux): (u32, u64)) -> Event {
    Event { flags, aux, ..Event::new(thread, Op::Mempolicy) }
}

fn bind(nr: u64, (flags, aux): (u32, u64)) -> Event {
    Event { addr: ADDR + nr * (1 << 30), len: AREA, ..Event { flags, aux, ..set(0, DEFAULT) } }
}

/// A thread or process with id 1 that thread 0 starts.
fn start(flags: u32) -> Event {
    Event { aux: 1, flags, ..Event::new(0, Op::Fork) }
}

fn outcome_of(spec: CellSpec, events: impl IntoIterator<Item = Event>) -> Outcome {
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
    let events: Vec<Event> = events.into_iter().collect();
    let (_dir, path) = program(vec![file], &events);
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

/// Pages of 4K that are not on the node of the program.
fn far_pages(kernel: &str, events: impl IntoIterator<Item = Event>) -> u64 {
    let spec = CellSpec::new(Kernel::parse(kernel).unwrap(), two_nodes());
    outcome_of(spec, events).nodes.unwrap().other_bytes / PAGE
}

fn far(events: impl IntoIterator<Item = Event>) -> u64 {
    far_pages("6.18+thp=never", events)
}

#[test]
fn a_process_follows_the_policy_that_it_set() {
    assert_eq!(far([map(0)].into_iter().chain(stores(0, 0))), 0);
    for policy in [PREFERRED_1, BIND_1] {
        assert_eq!(far([map(0), set(0, policy)].into_iter().chain(stores(0, 0))), NR_PAGES);
    }
    assert_eq!(far([map(0), set(0, INTERLEAVE)].into_iter().chain(stores(0, 0))), NR_PAGES / 2);
    let back = [map(0), set(0, BIND_1), set(0, DEFAULT)];
    assert_eq!(far(back.into_iter().chain(stores(0, 0))), 0);
}

#[test]
fn refused_policies_change_nothing() {
    // Nodes for the default, no nodes to bind to, nodes that the machine lacks, no such mode.
    for refused in [(0, 2), (2, 0), (2, 4), (4, 1), (99, 2)] {
        let events = [map(0), set(0, BIND_1), set(0, refused)];
        assert_eq!(far(events.into_iter().chain(stores(0, 0))), NR_PAGES, "{refused:?}");
    }
    let weighted = || [map(0), set(0, WEIGHTED)].into_iter().chain(stores(0, 0));
    assert_eq!(far(weighted()), NR_PAGES / 2);
    assert_eq!(far_pages("6.1+thp=never", weighted()), 0, "from 6.9");
}

#[test]
fn a_range_has_a_policy_of_its_own() {
    let other = || stores(0, 0).chain(stores(0, 1));
    assert_eq!(far([map(0), map(1), bind(1, BIND_1)].into_iter().chain(other())), NR_PAGES);
    // A part of the range is not mapped.
    let hole = Event { len: 2 * AREA, ..bind(1, BIND_1) };
    assert_eq!(far([map(0), map(1), hole].into_iter().chain(other())), 0);
    let later = bind(0, (BIND_1.0 | mempolicy::MOVE, BIND_1.1));
    let moved = [map(0)].into_iter().chain(stores(0, 0)).chain([later]);
    assert_eq!(far(moved), NR_PAGES);
    let stay = [map(0)].into_iter().chain(stores(0, 0)).chain([bind(0, BIND_1)]);
    assert_eq!(far(stay), 0);
}

/// Random scripts on 6.18.44 showed it (`folio-lab crosscheck run --feature policy`).
#[test]
fn binding_a_part_of_a_huge_page_splits_its_entry_on_one_node_too() {
    let by_pmd = |events: &[Event]| {
        let (_dir, path) = two_huge_pages(events);
        let kernel = Kernel::parse("6.18+thp=always").unwrap();
        let spec = CellSpec::new(kernel, Machine::named("zen4").unwrap());
        replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0).folios.anon.pmd_bytes
    };
    let part = |policy| [Event { len: 1 << 20, ..bind(0, policy) }];
    assert_eq!(by_pmd(&[]), 4 << 20);
    assert_eq!(by_pmd(&part((INTERLEAVE.0, 1))), 2 << 20);
    assert_eq!(by_pmd(&part(BIND_1)), 4 << 20, "the machine has no such node");
    assert_eq!(by_pmd(&part(DEFAULT)), 4 << 20, "it has the default already");
}

#[test]
fn threads_have_policies_of_their_own_and_new_ones_inherit() {
    let two = || [map(0), map(1), start(SHARES_MEMORY)].into_iter();
    let both = || stores(0, 0).zip(stores(1, 1)).flat_map(|(a, b)| [a, b]);
    assert_eq!(far(two().chain([set(1, BIND_1)]).chain(both())), NR_PAGES, "the second only");
    assert_eq!(far(two().chain([set(0, BIND_1)]).chain(both())), NR_PAGES, "the first only");
    let inherited = [map(0), map(1), set(0, BIND_1), start(SHARES_MEMORY)].into_iter();
    assert_eq!(far(inherited.chain(both())), 2 * NR_PAGES);
    let child = [map(0), set(0, BIND_1), start(0), set(0, DEFAULT)].into_iter();
    assert_eq!(far(child.chain(stores(1, 0))), NR_PAGES, "a child process");
}

/// R.6: the program moves to node 1 in the middle, and a pass of balancing follows.
#[test]
fn balancing_takes_pages_to_the_node_that_the_program_moved_to() {
    let loads = |nr: u64| stores(0, nr).map(|event| Event { op: Op::Read, ..event });
    let events = || [map(0)].into_iter().chain(stores(0, 0)).chain(loads(0)).chain(loads(0));
    let nodes = |kernel: &str, numa: &str| {
        let mut spec = CellSpec::new(Kernel::parse(kernel).unwrap(), two_nodes());
        spec.numa = Some(numa.parse().unwrap());
        outcome_of(spec, events()).nodes.unwrap()
    };
    let stayed = nodes("6.18+anon-64K=always", "node=0,node=1@40%");
    assert_eq!((stayed.hint_faults, stayed.mapped_other_bytes), (0, AREA));
    let moved = nodes("6.18+anon-64K=always", "node=0,node=1@40%,balance=50%");
    assert_eq!((moved.hint_faults, moved.hint_moved_bytes), (AREA / (64 << 10), AREA));
    assert_eq!((moved.mapped_local_bytes, moved.mapped_other_bytes), (AREA, 0));
    let by_page = nodes("6.18+thp=never", "node=0,node=1@40%,balance=50%");
    assert_eq!((by_page.hint_faults, by_page.hint_moved_bytes), (NR_PAGES, AREA));
    // The program has a policy, so balancing leaves it alone.
    let bound = nodes("6.18+thp=never", "bind=0,node=1@40%,balance=50%");
    assert_eq!((bound.hint_faults, bound.mapped_other_bytes), (0, AREA));
}
