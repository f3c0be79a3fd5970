//! mremap as a kernel runs it, whatever addresses the recorder's emulator chose.

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{
    MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, MREMAP_DONTUNMAP, MREMAP_FIXED, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, Op};

use super::{ADDR, HUGE, two_huge_pages};

const MAYMOVE: u32 = 1;
/// Where the emulator moved the area.
const NEW: u64 = ADDR + (1 << 30);

fn run(events: &[Event]) -> Outcome {
    let (_dir, path) = two_huge_pages(events);
    let kernel = Kernel::parse("6.18+thp=always").unwrap();
    let spec = CellSpec::new(kernel, Machine::named("cascadelake").unwrap());
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn remap(old_len: u64, new_len: u64, flags: u32) -> Event {
    let flags = MAYMOVE | flags;
    Event { addr: ADDR, len: old_len, pos: NEW, aux: new_len, flags, ..Event::new(0, Op::Mremap) }
}

fn stores(start: u64, len: u64) -> Vec<Event> {
    let store = |page| Event::references(0, Op::Write, start + page * 4096, 1);
    (0..len / 4096).map(store).collect()
}

fn anon_faults(events: &[Event]) -> (u64, u64) {
    let outcome = run(events);
    (outcome.faults.anon, outcome.folios.anon.pmd_bytes / HUGE)
}

#[test]
fn an_area_that_shrinks_or_keeps_its_length_stays() {
    for new_len in [2 * HUGE, HUGE + HUGE / 2, HUGE] {
        let after = [vec![remap(2 * HUGE, new_len, 0)], stores(NEW, new_len)].concat();
        assert_eq!(anon_faults(&after), (2, new_len / HUGE), "{new_len:#x}");
    }
}

/// The area ends at the highest multiple of 2 MiB below the mmap base: the next 1.9 MiB are free.
#[test]
fn an_area_grows_in_place_if_the_space_after_it_is_free() {
    let new_len = 2 * HUGE + HUGE / 2;
    let after = [vec![remap(2 * HUGE, new_len, 0)], stores(NEW, new_len)].concat();
    let (faults, nr_pmds) = anon_faults(&after);
    assert_eq!((faults, nr_pmds), (2 + HUGE / 2 / 4096, 2));
    // It would reach beyond the mmap base, and moves to a place that is not aligned.
    let new_len = 3 * HUGE + 4096;
    let after = [vec![remap(2 * HUGE, new_len, 0)], stores(NEW, new_len)].concat();
    assert!(anon_faults(&after).1 < 2);
}

#[test]
fn a_second_growth_finds_the_place_that_the_first_one_left() {
    let first = remap(2 * HUGE, 3 * HUGE, 0);
    let again = Event { addr: NEW, len: 3 * HUGE, pos: ADDR, aux: 4 * HUGE, ..first };
    let after = [vec![first, again], stores(ADDR, 4 * HUGE)].concat();
    assert_eq!(anon_faults(&after), (4, 4));
}

#[test]
fn only_the_whole_area_grows_in_place() {
    let first = remap(HUGE, HUGE + HUGE / 2, 0);
    let after = [vec![first], stores(NEW, HUGE)].concat();
    let outcome = run(&after);
    assert_eq!(outcome.faults.anon, 2, "the pages moved along");
}

#[test]
fn a_fixed_address_is_in_the_mapping_that_the_program_reserved() {
    let flags = mmap_flags(0, MAP_PRIVATE | MAP_ANONYMOUS);
    let reserve = Event { addr: NEW, len: 8 * HUGE, flags, ..Event::new(0, Op::Mmap) };
    let to = |pos| Event { pos, ..remap(2 * HUGE, 2 * HUGE, MREMAP_FIXED) };
    let after = [vec![reserve, to(NEW + 2 * HUGE)], stores(NEW + 2 * HUGE, 2 * HUGE)].concat();
    assert_eq!(anon_faults(&after), (2, 2), "congruent");
    let odd = NEW + 2 * HUGE + 4096;
    let after = [vec![reserve, to(odd)], stores(odd, 2 * HUGE)].concat();
    assert_eq!(anon_faults(&after), (2, 0), "a PMD entry cannot move there");
}

#[test]
fn an_area_that_is_kept_has_no_pages() {
    let moved = remap(2 * HUGE, 2 * HUGE, MREMAP_DONTUNMAP);
    let after = [vec![moved], stores(NEW, 2 * HUGE), stores(ADDR, 2 * HUGE)].concat();
    assert_eq!(anon_faults(&after), (4, 4));
}

#[test]
fn an_old_size_of_0_maps_shared_memory_again() {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
    let shared = Event { addr: NEW, len: HUGE, flags, ..Event::new(0, Op::Mmap) };
    let second = NEW + (1 << 30);
    let again = Event { addr: NEW, pos: second, ..remap(0, HUGE, 0) };
    let after = [vec![shared], stores(NEW, HUGE), vec![again], stores(second, HUGE)].concat();
    let outcome = run(&after);
    assert_eq!(outcome.statistics.total_exact.pss_shmem_bytes, HUGE, "the same pages");
    assert_eq!(
        outcome.statistics.total_exact.rss_bytes - outcome.folios.text.mapped_bytes,
        4 * HUGE
    );
}

#[test]
fn a_length_is_rounded_up_to_pages() {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let map = Event { addr: NEW, len: 5000, flags, ..Event::new(0, Op::Mmap) };
    let unmap = Event { addr: NEW, len: 5000, ..Event::new(0, Op::Munmap) };
    let after = [vec![map], stores(NEW, 8192), vec![unmap]].concat();
    assert_eq!(run(&after).folios.anon.mapped_bytes, 2 * HUGE);
}
