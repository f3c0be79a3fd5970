//! Series 003 end to end: khugepaged collapses the text of a program and of its library, and an
//! open for writing drops the library's huge folios (docs/behaviour J.4, H.2, L.16, L.17).

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::path::PathBuf;

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{MAP_SHARED, O_RDWR, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::generate::{Library, LinkedFor, Workload};
use largefolio_trace::{Event, FileInfo, Op};

const MIB: u64 = 1 << 20;
/// Two megabytes of program and eight of library.
const PROGRAM: u64 = 2 * MIB;
const LIBRARY: u64 = 8 * MIB;
/// The three rules, on a kernel whose ext4 has no large folios. The trace has a thousandth of the
/// calls, so khugepaged sleeps a thousandth of 10 s.
const RULES: [&str; 3] = ["absent", "deny-write", "exec"];

fn library() -> Library {
    Library { nr_calls: 200_000, run_max: 600, ..Library::default() }
}

fn specs() -> Vec<CellSpec> {
    specs_of("6.1")
}

fn specs_of(kernel: &str) -> Vec<CellSpec> {
    let name =
        |rule: &str| format!("{kernel}+thp=always+khugepaged-scan-sleep=10ms+file-collapse={rule}");
    let machine = Machine::named("altra").unwrap();
    let spec = |rule: &&str| CellSpec::new(Kernel::parse(&name(rule)).unwrap(), machine.clone());
    RULES.iter().map(spec).collect()
}

fn run(library: &Library, specs: &[CellSpec]) -> Vec<Outcome> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("library.folio");
    library.write(&path).unwrap();
    replay(&path, specs, &mut |_| {}).unwrap().1
}

fn file_pmd_mapped(outcome: &Outcome) -> u64 {
    outcome.folios.text.pmd_bytes
}

fn itlb_misses(outcome: &Outcome) -> u64 {
    outcome.tlb.instruction.l1_misses
}

#[test]
fn j4_libraries_become_huge_with_the_series_and_itlb_misses_fall() {
    let [absent, before, after] = run(&library(), &specs()).try_into().unwrap();
    assert_eq!(file_pmd_mapped(&absent), 0);
    assert_eq!(file_pmd_mapped(&before), PROGRAM, "the running program alone denies writes");
    assert_eq!(file_pmd_mapped(&after), PROGRAM + LIBRARY);
    // The published change is -73%, with libraries that were partly huge.
    assert!(itlb_misses(&after) * 100 < itlb_misses(&before) * 27);
    assert!(itlb_misses(&before) <= itlb_misses(&absent));
    assert_eq!(after.collapse.thp_collapse_alloc, (PROGRAM + LIBRARY) >> 21);
    assert_eq!(before.collapse.thp_collapse_alloc, PROGRAM >> 21);
    let writers = after.writers;
    assert_eq!((writers.opens, writers.drops), (0, 0));
}

#[test]
fn j4_text_of_five_megabytes_has_4096_kb_under_pmd_entries() {
    let small = Library { text_bytes: 5 * MIB, program_bytes: MIB, ..library() };
    let [_, before, after] = run(&small, &specs()).try_into().unwrap();
    assert_eq!((file_pmd_mapped(&before), file_pmd_mapped(&after)), (0, 4096 << 10));
}

#[test]
fn j4_a_library_linked_for_4k_pages_cannot_be_collapsed() {
    let base = Library { linked_for: LinkedFor::Base, ..library() };
    let [_, before, after] = run(&base, &specs()).try_into().unwrap();
    assert_eq!((file_pmd_mapped(&before), file_pmd_mapped(&after)), (PROGRAM, PROGRAM));
    assert_eq!(itlb_misses(&before), itlb_misses(&after));
}

#[test]
fn l16_an_open_for_write_refaults_the_library_in_base_pages() {
    let opened = Library { opened_at: Some(50), ..library() };
    let [_, before, after] = run(&opened, &specs()).try_into().unwrap();
    // The program cannot be opened for writing, so it keeps its huge folios.
    assert_eq!(file_pmd_mapped(&after), PROGRAM);
    let writers = after.writers;
    // The text, and half a read-around window of neighbours on either side.
    assert_eq!((writers.opens, writers.drops), (1, 1));
    assert_eq!(writers.dropped_bytes, LIBRARY + (128 << 10));
    assert_eq!((before.writers.opens, before.writers.drops), (1, 0));
    let [_, _, undisturbed] = run(&library(), &specs()).try_into().unwrap();
    assert!(after.faults.major > undisturbed.faults.major, "the text is read again");
    assert!(after.reads.bytes > undisturbed.reads.bytes);
    assert!(itlb_misses(&after) > itlb_misses(&undisturbed));
    assert!(itlb_misses(&after) < itlb_misses(&before));
}

#[test]
fn h3_collapse_goes_on_when_the_writer_has_closed() {
    let closed = Library { opened_at: Some(40), closed_at: Some(60), ..library() };
    let [_, _, after] = run(&closed, &specs()).try_into().unwrap();
    assert_eq!(file_pmd_mapped(&after), PROGRAM + LIBRARY);
    assert_eq!(after.writers.drops, 1);
    assert_eq!(after.collapse.thp_collapse_alloc, (PROGRAM + 2 * LIBRARY) >> 21);
}

#[test]
fn l17_a_filesystem_with_large_folios_keeps_them() {
    let opened = Library { opened_at: Some(50), filesystem: "xfs".to_owned(), ..library() };
    let [_, _, after] = run(&opened, &specs_of("6.12")).try_into().unwrap();
    assert_eq!(file_pmd_mapped(&after), PROGRAM + LIBRARY);
    assert_eq!((after.writers.opens, after.writers.drops), (1, 0));
    // 6.1 does not collapse a range that already has large folios (H.4.1).
    let [_, _, after] = run(&opened, &specs()).try_into().unwrap();
    assert_eq!((file_pmd_mapped(&after), after.writers.drops), (0, 0));
}

#[test]
fn khugepaged_does_nothing_when_references_take_no_time() {
    let mut specs = specs();
    for spec in &mut specs {
        spec.ns_per_reference = 0;
    }
    for outcome in run(&library(), &specs) {
        assert_eq!((file_pmd_mapped(&outcome), outcome.collapse.thp_collapse_alloc), (0, 0));
    }
}

fn program(events: &[Event]) -> (tempfile::TempDir, PathBuf) {
    let file = |path: &str| FileInfo {
        path: path.into(),
        size_bytes: 0x1_0000,
        filesystem: "ext4".into(),
        ..FileInfo::default()
    };
    super::program(vec![file("/bin/p"), file("/data")], events)
}

fn writers_of(events: &[Event]) -> (u64, u64, u64) {
    let (_dir, path) = program(events);
    let outcome = replay(&path, &specs()[..1], &mut |_| {}).unwrap().1.remove(0);
    (outcome.writers.opens, outcome.writers.text_busy, outcome.writers.open_for_write)
}

fn open(file: u32, descriptor: u64, flags: u32) -> Event {
    Event { pos: descriptor, flags, file: Some(file), ..Event::new(0, Op::Open) }
}

#[test]
fn what_writes_a_file_is_counted_once() {
    let read = open(1, 3, 0);
    assert_eq!(writers_of(&[read]), (0, 0, 0));
    assert_eq!(writers_of(&[open(1, 3, O_RDWR)]), (1, 0, 0));
    let write = Event { len: 10, aux: 3, file: Some(1), ..Event::new(0, Op::Pwrite) };
    assert_eq!(writers_of(&[read, write, write]), (1, 0, 0));
    assert_eq!(writers_of(&[open(1, 3, O_RDWR), write]), (1, 0, 0));
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_SHARED);
    let addr = 0x7000_0000_0000;
    let map = Event { addr, len: 0x1000, flags, file: Some(1), ..Event::new(0, Op::Mmap) };
    assert_eq!(writers_of(&[read, map]), (1, 0, 0));
}

#[test]
fn the_program_of_the_trace_is_not_opened_for_write() {
    assert_eq!(writers_of(&[open(0, 3, O_RDWR)]), (0, 1, 0));
}
