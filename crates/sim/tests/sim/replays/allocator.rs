//! Programs replayed as if their allocator asked for huge pages.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{Allocator, CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{
    MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_STACK, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Op};

use super::{HUGE, program};

const HEAP: u64 = 0x50_0000;
const ARENA: u64 = 0x7000_0400_0000;
const CHUNK: u64 = 0x7100_0000_0000;
const RW: u32 = PROT_READ | PROT_WRITE;

fn outcome(allocator: Option<Allocator>, kernel: &str, events: &[Event]) -> Outcome {
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
    let (_dir, path) = program(vec![file], events);
    let kernel = Kernel::parse(kernel).unwrap();
    let spec = CellSpec { allocator, ..CellSpec::new(kernel, Machine::named("zen4").unwrap()) };
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn huge(allocator: Option<Allocator>, events: &[Event]) -> u64 {
    outcome(allocator, "6.18+thp=madvise", events).folios.anon.pmd_bytes
}

fn store(addr: u64) -> Event {
    Event::references(0, Op::Write, addr, 1)
}

fn map(addr: u64, len: u64, prot: u32, flags: u32) -> Event {
    let flags = mmap_flags(prot, MAP_PRIVATE | MAP_ANONYMOUS | flags);
    Event { addr, len, flags, ..Event::new(0, Op::Mmap) }
}

/// A heap that grows to 5 MiB in small steps, each stored to.
fn heap() -> Vec<Event> {
    let step = 128 << 10;
    let grow = |nr: u64| Event {
        addr: HEAP + nr * step,
        pos: HEAP + (nr + 1) * step,
        ..Event::new(0, Op::Brk)
    };
    (0..40).flat_map(|nr| [grow(nr), store(HEAP + nr * step)]).collect()
}

/// An arena of glibc's malloc: a reservation of 64 MiB of which 132 KiB are used.
fn arena() -> Vec<Event> {
    let used = Event { addr: ARENA, len: 132 << 10, flags: RW, ..Event::new(0, Op::Mprotect) };
    let reserved = map(ARENA, 64 << 20, 0, MAP_NORESERVE);
    vec![reserved, used, store(ARENA + 4096), store(ARENA + (100 << 10))]
}

#[test]
fn malloc_takes_a_huge_page_for_each_arena_and_whole_ones_for_the_heap() {
    let malloc = Some(Allocator::Malloc);
    assert_eq!((huge(None, &arena()), huge(malloc, &arena())), (0, HUGE));
    // The heap starts in the middle of a block: each block is whole only after its first touches.
    assert_eq!(huge(None, &heap()), 0);
    assert!((HUGE..=2 * HUGE).contains(&huge(malloc, &heap())));
    // `never` refuses, and under `always` nothing is left to ask for.
    let of = |kernel| outcome(malloc, kernel, &arena()).folios.anon.pmd_bytes;
    assert_eq!(["6.18+thp=never", "6.18+thp=always"].map(of), [0, HUGE]);
}

#[test]
fn large_chunks_are_advised_and_stacks_and_small_ones_are_not() {
    let chunk = |len, flags| vec![map(CHUNK, len, RW, flags), store(CHUNK), store(CHUNK + len / 2)];
    for allocator in [Allocator::Malloc, Allocator::Mappings] {
        let of = |len, flags| huge(Some(allocator), &chunk(len, flags));
        assert!(of(8 << 20, 0) >= HUGE, "{allocator:?}");
        assert_eq!((of(1 << 20, 0), of(8 << 20, MAP_STACK)), (0, 0), "{allocator:?}");
    }
    assert_eq!(huge(Some(Allocator::Mappings), &heap()), 0);
    assert_eq!(huge(None, &chunk(8 << 20, 0)), 0);
}

#[test]
fn a_heap_that_shrinks_and_one_that_meets_a_mapping_still_replay() {
    let mut events = heap();
    let top = HEAP + (5 << 20);
    let brk = |old: u64, new: u64| Event { addr: old, pos: new, ..Event::new(0, Op::Brk) };
    events.extend([brk(top, HEAP + 4096), store(HEAP), brk(HEAP + 4096, top), store(top - 4096)]);
    let outcome_of =
        |events: &[Event]| outcome(Some(Allocator::Malloc), "6.18+thp=madvise", events);
    assert_eq!(outcome_of(&events).strays.unmapped, 0);
    // Something else is mapped where the rounded heap would end.
    let mut near = vec![map(HEAP + (1 << 20), 4096, RW, 0x10), store(HEAP + (1 << 20))];
    near.extend([brk(HEAP, HEAP + 4096), store(HEAP)]);
    assert_eq!(outcome_of(&near).strays.unmapped, 0);
}
