//! A trace replayed in several cells in one pass.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::outcome::Strays;
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, ReplayError, replay, replay_until};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::generate::{RetStubs, SweepOrder, Workload, ZipfMix};
use largefolio_trace::{Event, FileInfo, LayoutEntry, LayoutKind, Meta, Op, OpenTrace, Writer};

fn spec(kernel: &str, machine: &str) -> CellSpec {
    CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
}

fn run(path: &Path, specs: &[CellSpec]) -> Vec<Outcome> {
    replay(path, specs, &mut |_| {}).unwrap().1
}

fn zipf(dir: &Path) -> (PathBuf, u64) {
    let path = dir.join("zipf.folio");
    let mix = ZipfMix { nr_runs: 200_000, filesystem: "xfs".into(), ..ZipfMix::default() };
    let summary = mix.write(&path).unwrap();
    (path, summary.nr_references)
}

#[test]
fn every_reference_is_looked_up_in_every_cell() {
    let dir = tempfile::tempdir().unwrap();
    let (path, nr_references) = zipf(dir.path());
    let specs =
        [spec("6.1", "altra"), spec("6.12", "cascadelake"), spec("7.2+page=64K", "grace-64k")];
    for outcome in run(&path, &specs) {
        let tlb = &outcome.tlb;
        let seen = tlb.instruction.references + tlb.data.references;
        let strays = outcome.strays;
        assert_eq!((seen, strays), (nr_references, Strays::default()), "{}", outcome.kernel);
        assert_eq!(tlb.walks(), tlb.l2_misses() + tlb.permission_misses());
        assert!(outcome.reads.bytes >= outcome.reads.used_bytes, "used pages were read");
    }
}

#[test]
fn the_same_trace_and_rules_give_the_same_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = zipf(dir.path());
    let mut fragmented = spec("6.18", "altra");
    fragmented.fragmentation.permille = 900;
    let specs = [fragmented, spec("7.2", "grace-64k")];
    assert_eq!(run(&path, &specs), run(&path, &specs));
}

#[test]
fn a_warm_cache_reads_nothing_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, nr_references) = zipf(dir.path());
    let mut warm = spec("6.18", "altra");
    warm.cache = CacheState::Warm;
    let outcomes = run(&path, &[spec("6.18", "altra"), warm]);
    assert!(outcomes[0].reads.bytes > 0 && outcomes[0].faults.major > 0);
    assert_eq!((outcomes[1].reads.bytes, outcomes[1].faults.major), (0, 0));
    let tlb = &outcomes[1].tlb;
    assert_eq!(tlb.instruction.references + tlb.data.references, nr_references);
}

#[test]
fn another_trace_that_takes_the_place_of_the_first_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let mix = |nr_files| ZipfMix { nr_runs: 2_000, nr_files, ..ZipfMix::default() };
    mix(1).write(&path).unwrap();
    let mut warm = spec("6.18", "altra");
    warm.cache = CacheState::Warm;
    let alone = run(&path, std::slice::from_ref(&warm));
    let other = dir.path().join("other.folio");
    mix(3).write(&other).unwrap();
    let trace = OpenTrace::open(&path).unwrap();
    let digest = trace.digest().unwrap();
    let mut renames = |_| {
        let _ = std::fs::rename(&other, &path);
        ControlFlow::Continue(())
    };
    let disturbed = replay_until(&trace, &[warm.clone()], &mut renames).unwrap().1;
    assert!(!other.exists() && run(&path, &[warm]) != alone, "it is another one");
    assert_eq!((disturbed, trace.digest().unwrap()), (alone, digest));
}

/// B.7.2, J.3.1 on a small file: exec windows on 64K pages.
#[test]
fn ret_stubs_on_64k_pages_follow_the_miss_counter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stubs.folio");
    let stubs = RetStubs {
        nr_pages: 4096,
        stub_bytes: 64 << 10,
        order: SweepOrder::Random,
        nr_calls: 1000,
        ..RetStubs::default()
    };
    stubs.write(&path).unwrap();
    let specs = [spec("6.18", "grace-64k"), spec("7.2", "grace-64k")];
    let outcomes = run(&path, &specs);
    assert!(outcomes[0].reads.gated > 0, "before series 002 random touches trip the gate");
    assert_eq!(outcomes[1].reads.gated, 0, "with it they never do");
}

/// A program of two segments and a heap, recorded with 4 KiB pages.
fn program(dir: &Path) -> PathBuf {
    let path = dir.join("program.folio");
    let file = FileInfo {
        path: "/bin/p".into(),
        size_bytes: 0x6000,
        filesystem: "ext4".into(),
        ..FileInfo::default()
    };
    let entry = |addr, len, prot, file, pos, kind| LayoutEntry { addr, len, prot, file, pos, kind };
    let base = 0x40_0000_0000;
    let layout = vec![
        entry(base, 0x1000, 1, Some(0), 0, LayoutKind::Program),
        entry(base + 0x1000, 0x3000, 5, Some(0), 0x1000, LayoutKind::Program),
        entry(base + 0x5000, 0x1000, 3, Some(0), 0x4000, LayoutKind::Program),
        entry(base + 0x6000, 0x2000, 3, None, 0, LayoutKind::Program),
        entry(base + 0x80_0000, 0x8_0000, 3, None, 0, LayoutKind::Stack),
    ];
    let brk = base + 0x8000;
    let meta = Meta { files: vec![file], layout, brk, ..Meta::default() };
    let mut writer = Writer::create(&path, meta).unwrap();
    let mut grow = Event::new(0, Op::Brk);
    (grow.addr, grow.pos) = (brk, brk + 0x2_1000);
    let mut map = Event::new(0, Op::Mmap);
    (map.addr, map.len) = (base + 0x100_0000, 0x3000);
    map.flags = mmap_flags(3, 0x22);
    let mut fork = Event::new(0, Op::Fork);
    fork.aux = 1;
    let exec = |page| Event::references(0, Op::Exec, base + page, 10);
    let write = |thread, addr| Event::references(thread, Op::Write, addr, 2);
    let rows = [
        exec(0x1000),
        exec(0x3000),
        write(0, base + 0x5000),
        write(0, base + 0x6000),
        write(0, base + 0x7000),
        grow,
        write(0, brk),
        write(0, brk + 0x2_0000),
        map,
        write(0, base + 0x100_2000),
        write(0, base + 0x87_f000),
        fork,
        write(1, brk),
        write(0, brk),
    ];
    writer.push_rows(&rows).unwrap();
    writer.finish().unwrap();
    path
}

#[test]
fn a_program_recorded_with_4k_pages_runs_on_larger_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = program(dir.path());
    let specs = ["6.12", "6.12+page=16K", "6.12+page=64K"].map(|kernel| spec(kernel, "altra"));
    let outcomes = run(&path, &specs);
    for outcome in &outcomes {
        assert_eq!(outcome.strays, Strays::default(), "{}", outcome.kernel);
        assert_eq!(outcome.tlb.instruction.references, 20);
    }
    let replaced: Vec<bool> = outcomes.iter().map(|outcome| outcome.is_replaced).collect();
    assert_eq!(replaced, [true, true, true]);
    // One page of file data, one of bss and one shared page at 4K. The data segment is copied on
    // write; heap, mapping and stack are anonymous; after fork both processes write the heap.
    assert_eq!(outcomes[0].faults.cow, 2, "file page, and the first write after fork");
    assert_eq!(outcomes[0].faults.wp_reuse, 1, "the second finds itself alone");
}

#[test]
fn a_kernel_that_asks_for_pages_the_machine_lacks_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = program(dir.path());
    let error = replay(&path, &[spec("6.12+page=64K", "cascadelake")], &mut |_| {}).unwrap_err();
    assert!(matches!(error, ReplayError::Cell { .. }));
    assert!(error.to_string().contains("cascadelake"), "{error}");
}

fn anonymous(dir: &Path, rows: &[Event]) -> PathBuf {
    let path = dir.join("anonymous.folio");
    let mut writer = Writer::create(&path, Meta::default()).unwrap();
    writer.push_rows(rows).unwrap();
    writer.finish().unwrap();
    path
}

fn map_at(addr: u64, len: u64, prot: u32, map: u32) -> Event {
    let mut event = Event::new(0, Op::Mmap);
    (event.addr, event.len, event.flags) = (addr, len, mmap_flags(prot, map));
    event
}

#[test]
fn a_mapping_made_of_two_recorded_ones_moves_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = 0x40_0000_0000;
    let mut unmap = Event::new(0, Op::Munmap);
    (unmap.addr, unmap.len) = (at + 0x1000, 0x1000);
    let mut grow = Event::new(0, Op::Mremap);
    (grow.addr, grow.len, grow.pos, grow.aux) = (at, 0x2000, at + 0x10_0000, 0x1_0000);
    let write = |addr| Event::references(0, Op::Write, addr, 3);
    let rows = [
        map_at(at, 0x2000, 3, 0x22),
        unmap,
        map_at(at + 0x1000, 0x1000, 3, 0x32),
        write(at),
        write(at + 0x1000),
        grow,
        write(at + 0x10_0000),
        write(at + 0x10_1000),
        write(at + 0x10_f000),
    ];
    let path = anonymous(dir.path(), &rows);
    let specs = ["6.12", "6.12+page=64K"].map(|kernel| spec(kernel, "altra"));
    for outcome in run(&path, &specs) {
        assert_eq!(outcome.strays, Strays::default(), "{}", outcome.kernel);
    }
    let faults = run(&path, &specs[..1])[0].faults;
    assert_eq!(faults.anon, 3, "two pages moved with their contents, one is new");
}

#[test]
fn access_given_to_a_part_of_a_larger_page_is_given_to_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let at = 0x40_0000_0000;
    let mut rows = vec![map_at(at, 0x2_0000, 0, 0x22)];
    for page in 0..32 {
        let mut allow = Event::new(0, Op::Mprotect);
        (allow.addr, allow.len, allow.flags) = (at + page * 0x1000, 0x1000, 1);
        rows.push(allow);
        rows.push(Event::references(0, Op::Read, at + page * 0x1000, 1));
    }
    let path = anonymous(dir.path(), &rows);
    let specs = ["6.12", "6.12+page=16K", "6.12+page=64K"].map(|kernel| spec(kernel, "altra"));
    for outcome in run(&path, &specs) {
        assert_eq!(outcome.strays, Strays::default(), "{}", outcome.kernel);
    }
}

#[test]
fn a_fixed_mapping_replaces_all_that_was_recorded_there() {
    let dir = tempfile::tempdir().unwrap();
    let at = 0x40_0000_0000;
    let read = |addr| Event::references(0, Op::Read, addr, 1);
    let rows = [
        map_at(at, 0x1000, 1, 0x22),
        map_at(at + 0x1000, 0x1000, 0, 0x22),
        map_at(at + 0x2000, 0x1000, 1, 0x22),
        map_at(at, 0x3000, 3, 0x32),
        read(at),
        read(at + 0x1000),
        read(at + 0x2000),
    ];
    let outcome = &run(&anonymous(dir.path(), &rows), &[spec("6.12", "altra")])[0];
    assert_eq!((outcome.strays, outcome.faults.zero_page), (Strays::default(), 3));
}

#[test]
fn anonymous_folios_of_every_size_are_counted_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let at = 0x40_0000_0000;
    let len = 4 << 20;
    let mut rows = vec![map_at(at, len, 3, 0x22)];
    rows.extend((0..len >> 12).map(|page| Event::references(0, Op::Write, at + (page << 12), 1)));
    // Unmapping the last page leaves its folio partially mapped.
    let mut unmap = Event::new(0, Op::Munmap);
    (unmap.addr, unmap.len) = (at + len - 0x1000, 0x1000);
    rows.push(unmap);
    let path = anonymous(dir.path(), &rows);
    let kernels = ["6.18", "6.18+anon-64K=always", "6.18+thp=always", "6.1+anon-2M=never"];
    let specs: Vec<_> = kernels[..3].iter().map(|kernel| spec(kernel, "altra")).collect();
    let outcomes = run(&path, &specs);
    let (page, mapped) = (4096, len - 4096);
    let row = |nr: usize, size| outcomes[nr].folios.anon.by_size.get(&size).copied();
    let aligned = |nr, size| row(nr, size).map_or(0, |row| row.aligned_bytes);
    let totals = outcomes.iter().map(|outcome| outcome.folios.anon.mapped_bytes);
    assert!(totals.into_iter().all(|total| total == mapped));
    assert_eq!(aligned(0, page), mapped);
    assert_eq!(aligned(1, 64 << 10), mapped + page - (64 << 10));
    assert_eq!(outcomes[1].folios.anon.partial_bytes, (64 << 10) - page);
    let partial = BTreeMap::from([(64 << 10, (64 << 10) - page)]);
    assert_eq!(outcomes[1].folios.anon.partial_by_size, partial);
    let in_large = outcomes[..3].iter().map(|one| one.folios.anon.in_folios_from(64 << 10));
    assert_eq!(in_large.collect::<Vec<_>>(), [0, mapped, mapped]);
    assert!(outcomes[1].folios.anon.contpte_bytes >= mapped + page - (64 << 10));
    assert_eq!(aligned(2, 2 << 20), 2 << 20);
    assert_eq!(outcomes[2].folios.anon.pmd_bytes, 2 << 20);
    let sizes = outcomes.iter().map(|outcome| outcome.anon_sizes.clone()).collect::<Vec<_>>();
    assert_eq!(sizes[0].len(), 0);
    assert_eq!(
        (sizes[1][&(64 << 10)].anon_fault_alloc, sizes[2][&(2 << 20)].anon_fault_alloc),
        (64, 2)
    );
    assert_eq!(sizes[2][&(2 << 20)].split_deferred, 1);
    let faults: Vec<_> = outcomes.iter().map(|outcome| outcome.faults.anon).collect();
    assert_eq!(faults, [1024, 64, 2]);
    assert!(Kernel::parse(kernels[3]).is_err(), "6.1 has no control of one size");
}

#[test]
fn a_replay_ends_where_it_is_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = zipf(dir.path());
    let mut nr_heard = 0;
    let trace = OpenTrace::open(&path).unwrap();
    let error = replay_until(&trace, &[spec("7.2", "altra")], &mut |_| {
        nr_heard += 1;
        if nr_heard == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(error, Err(ReplayError::Stopped)), "{error:?}");
    assert_eq!(nr_heard, 2);
}
