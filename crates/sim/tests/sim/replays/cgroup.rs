//! Cgroups with a limit: a larger file, larger private memory, and which processes belong to it.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use largefolio_sim::fit::{Fit, fit};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::cgroup::CgroupOutcome;
use largefolio_sim::replay::{CellSpec, Cgroup, Outcome, replay};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Op, OpenTrace};
use tempfile::TempDir;

use super::{ADDR, program, store, two_huge_pages};

const MIB: u64 = 1 << 20;

fn spec(kernel: &str, cgroups: &[&str]) -> CellSpec {
    let machine = Machine::named("cascadelake").unwrap();
    let mut spec = CellSpec::new(Kernel::parse(kernel).unwrap(), machine);
    spec.cgroups = cgroups.iter().map(|text| text.parse().unwrap()).collect();
    spec
}

/// `/bin/p` reads 4 MiB of a file twice.
fn reading(kernel: &str, cgroups: &[&str]) -> Outcome {
    let file = |path: &str, size_bytes| FileInfo {
        path: path.into(),
        size_bytes,
        filesystem: "ext4".into(),
        ..FileInfo::default()
    };
    let read =
        |pos: u64| Event { file: Some(1), pos, len: 65536, aux: 3, ..Event::new(0, Op::Pread) };
    let events: Vec<Event> = (0..128).map(|nr| read(nr % 64 * 65536)).collect();
    let (_dir, path) = program(vec![file("/bin/p", 0x1000), file("/data", 4 * MIB)], &events);
    replay(&path, &[spec(kernel, cgroups)], &mut |_| {}).unwrap().1.remove(0)
}

#[test]
fn a_file_larger_than_the_limit_is_read_again() {
    for kernel in ["6.1", "6.12", "6.18", "7.2", "7.2+lru=lists", "6.1+lru=generations"] {
        let free = reading(kernel, &[]);
        let outcome = reading(kernel, &["1M"]);
        let [group] = outcome.cgroups.as_slice() else { panic!("{kernel}") };
        assert!(group.peak_bytes <= MIB && group.usage_bytes > MIB / 2, "{kernel}: {group:?}");
        assert!(group.evicted_bytes > 5 * MIB, "{kernel}: {group:?}");
        assert!(group.refaulted_bytes > MIB && group.nr_limit_hits > 10, "{kernel}: {group:?}");
        assert!(outcome.reads.bytes > free.reads.bytes + 2 * MIB, "{kernel}");
        assert!(free.cgroups.is_empty(), "{kernel}");
    }
}

/// Dirty pages are written back during the call, even if reclaim does not wake the flusher (P.6.1,
/// P.6.3).
#[test]
fn one_call_writes_more_than_there_is_memory() {
    let file = FileInfo { path: "/bin/p".into(), filesystem: "xfs".into(), ..FileInfo::default() };
    let write = Event { file: Some(0), len: 128 * MIB, ..Event::new(0, Op::Pwrite) };
    let (_dir, path) = program(vec![FileInfo { size_bytes: 0x1000, ..file }], &[write]);
    for kernel in ["6.1", "6.1+lru=generations", "6.12", "6.18", "7.2", "7.2+lru=lists"] {
        for cgroups in [&[][..], &["4M"]] {
            let spec = CellSpec { ram_bytes: 64 * MIB, ..spec(kernel, cgroups) };
            if let Err(error) = replay(&path, &[spec], &mut |_| {}) {
                panic!("{kernel} {cgroups:?}: {error}");
            }
        }
    }
}

#[test]
fn a_limit_with_room_changes_nothing() {
    let (free, outcome) = (reading("7.2", &[]), reading("7.2", &["64M"]));
    let [group] = outcome.cgroups.as_slice() else { panic!() };
    assert_eq!((group.evicted_bytes, group.nr_limit_hits), (0, 0));
    assert_eq!((outcome.reads, outcome.faults), (free.reads, free.faults));
}

#[test]
fn a_program_is_in_the_group_that_names_it() {
    let outcome = reading("7.2", &["1M", "p=2M", "q=1M"]);
    let peaks: Vec<u64> = outcome.cgroups.iter().map(|group| group.peak_bytes / MIB).collect();
    assert_eq!(peaks[0], 0);
    assert!(outcome.cgroups[1].evicted_bytes > MIB && peaks[2] == 0, "{:?}", outcome.cgroups);
    let empty = CgroupOutcome { name: "q=1M".into(), limit_bytes: MIB, ..CgroupOutcome::default() };
    assert_eq!(outcome.cgroups[2], empty);
}

#[test]
fn private_memory_above_the_limit_ends_with_a_sentence_or_is_swapped() {
    let (_dir, path) = two_huge_pages(&[]);
    let message = replay(&path, &[spec("7.2", &["1M"])], &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("the control group is at its limit"), "{message}");
    let with_swap = CellSpec { swap_bytes: 64 * MIB, ..spec("7.2", &["1M"]) };
    let outcome = replay(&path, &[with_swap], &mut |_| {}).unwrap().1.remove(0);
    assert!(outcome.pressure["pswpout"] > 500, "{:?}", outcome.pressure);
    assert!(outcome.cgroups[0].peak_bytes <= MIB);
}

/// A page in every 64 KiB of 32 MiB is stored to: 512 pages, or 16 folios of 2M.
fn sparse() -> (TempDir, PathBuf) {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let mut events = vec![Event { addr: ADDR, len: 32 << 20, flags, ..Event::new(0, Op::Mmap) }];
    events.extend((0..512).map(|nr| store(0, 16 * nr)));
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
    program(vec![file], &events)
}

fn fits(kernels: &[&str]) -> Vec<Fit> {
    let (_dir, path) = sparse();
    let spec = |kernel: &&str| {
        CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named("zen4").unwrap())
    };
    let specs: Vec<CellSpec> = kernels.iter().map(spec).collect();
    let trace = OpenTrace::open(&path).unwrap();
    fit(&trace, &specs, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn the_smallest_limit_is_what_the_folios_take() {
    let [base, huge] = fits(&["6.18+thp=never", "6.18+thp=always"]).try_into().unwrap();
    let without_kernel = |bytes: u64, fit: &Fit| bytes - fit.kernel_bytes;
    // Text and a precision of 64 KiB come on top.
    let [small, large] = [&base, &huge].map(|fit| without_kernel(fit.least_bytes, fit));
    assert!((2 << 20..(2 << 20) + (256 << 10)).contains(&small), "{base:?}");
    // The first touches take folios until the limit leaves no room for one.
    assert!(large > 8 * small && huge.peak_bytes > 32 << 20, "{huge:?}");
    for fit in [&base, &huge] {
        assert!(fit.least_bytes <= fit.calm_bytes.unwrap(), "{fit:?}");
        assert!(fit.calm_bytes.unwrap() <= fit.peak_bytes, "{fit:?}");
        // T1
        let above = fit.limits.iter().filter(|limit| limit.limit_bytes >= fit.least_bytes);
        assert!(above.into_iter().all(|limit| limit.fits), "{fit:?}");
        let fails = fit.limits.iter().filter(|limit| !limit.fits).map(|limit| limit.limit_bytes);
        // Nothing below the private memory was tried.
        let below = fails.max().unwrap_or((2 << 20) + fit.kernel_bytes);
        let precision = (fit.least_bytes / 256).max(64 << 10);
        assert!(below < fit.least_bytes && fit.least_bytes - below <= precision, "{fit:?}");
    }
    // A page table for each 2M of the mapping, with base pages or deposited.
    assert_eq!(base.kernel_bytes, huge.kernel_bytes);
}

#[test]
fn a_limit_just_below_the_smallest_kills_the_program() {
    let (_dir, path) = sparse();
    let kernel = "6.18+thp=never";
    let found = fits(&[kernel]).remove(0);
    let run = |bytes: u64| {
        let kernel = Kernel::parse(kernel).unwrap();
        let cgroups = vec![Cgroup::for_all(bytes - found.kernel_bytes)];
        let spec = CellSpec { cgroups, ..CellSpec::new(kernel, Machine::named("zen4").unwrap()) };
        replay(&path, &[spec], &mut |_| {})
    };
    assert!(run(found.least_bytes).is_ok());
    let error = run(found.least_bytes - (128 << 10)).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
}
