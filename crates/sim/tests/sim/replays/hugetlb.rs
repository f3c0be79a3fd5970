//! `MAP_HUGETLB` in a trace: with a pool that is large enough, one that is too small, and none.

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Hugetlb, Outcome, replay};
use largefolio_trace::event::ExitKind;
use largefolio_trace::event::abi::{
    MAP_ANONYMOUS, MAP_HUGETLB, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, HUGE, program, store};

/// Four private huge pages: three are stored to, a child stores to the first, and both exit.
fn outcome(pools: &str) -> Outcome {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
    let page = |thread, nr: u64| store(thread, nr * (HUGE / 4096) + 7);
    let events = [
        Event { addr: ADDR, len: 4 * HUGE, flags, ..Event::new(0, Op::Mmap) },
        page(0, 0),
        page(0, 1),
        page(0, 2),
        Event { aux: 1, ..Event::new(0, Op::Fork) },
        page(1, 0),
        page(0, 0),
        Event { flags: ExitKind::Process as u32, ..Event::new(1, Op::Exit) },
        page(0, 1),
    ];
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
    let (_dir, path) = program(vec![file], &events);
    let kernel = Kernel::parse(&format!("7.2{pools}")).unwrap();
    let spec = CellSpec::new(kernel, Machine::named("cascadelake").unwrap());
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn of(pools: &str) -> Hugetlb {
    outcome(pools).hugetlb.unwrap()
}

#[test]
fn a_pool_serves_the_mapping_and_the_copy() {
    let counts = of("+hugepages.2048=8");
    let expected =
        Hugetlb { faults: 3, allocated: 3, forked: 3, copied: 1, reused: 2, ..Hugetlb::default() };
    assert_eq!(counts, expected);
}

#[test]
fn a_child_finds_no_page_that_is_not_promised() {
    let counts = of("+hugepages.2048=4");
    assert_eq!((counts.allocated, counts.copied, counts.sigbus), (3, 0, 1), "{counts:?}");
}

#[test]
fn without_the_pages_it_is_ordinary_memory_and_counted() {
    for (pools, expected) in [
        ("+hugepages.2048=3", Hugetlb { maps_refused: 1, ..Hugetlb::default() }),
        ("", Hugetlb { maps_without_pool: 1, ..Hugetlb::default() }),
    ] {
        let counts = outcome(pools);
        assert_eq!(counts.hugetlb, Some(expected), "{pools}");
        assert!(counts.faults.total > 3, "{:?}", counts.faults);
    }
}
