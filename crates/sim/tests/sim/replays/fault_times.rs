//! How long page faults take, and what the slowest consist of.

use largefolio_sim::cost::Cause;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::detail::AreaKind;
use largefolio_sim::replay::fault_times::{FaultTimes, LongFault};
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, HUGE, program};

const MIB: u64 = 1 << 20;

fn spec(kernel: &str, machine: &str) -> CellSpec {
    let machine = Machine::named(machine).unwrap();
    CellSpec { has_fault_times: true, ..CellSpec::new(Kernel::parse(kernel).unwrap(), machine) }
}

fn file(path: &str, size_bytes: u64) -> FileInfo {
    let (path, filesystem) = (path.into(), "ext4".into());
    FileInfo { path, size_bytes, filesystem, ..FileInfo::default() }
}

/// Stores to each page of new private memory, in order.
fn stores(nr_pages: u64) -> Vec<Event> {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let map = Event { addr: ADDR, len: nr_pages * 4096, flags, ..Event::new(0, Op::Mmap) };
    let store = |nr: u64| Event::references(0, Op::Write, ADDR + nr * 4096, 1);
    std::iter::once(map).chain((0..nr_pages).map(store)).collect()
}

/// Loads from each page of a mapped file, in order.
fn loads(nr_pages: u64) -> Vec<Event> {
    let flags = mmap_flags(PROT_READ, MAP_PRIVATE);
    let len = nr_pages * 4096;
    let map = Event { addr: ADDR, len, flags, file: Some(1), ..Event::new(0, Op::Mmap) };
    let load = |nr: u64| Event::references(0, Op::Read, ADDR + nr * 4096, 1);
    std::iter::once(map).chain((0..nr_pages).map(load)).collect()
}

fn outcome(spec: CellSpec, files: Vec<FileInfo>, events: &[Event]) -> Outcome {
    let (_dir, path) = program(files, events);
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn of(spec: CellSpec, files: Vec<FileInfo>, events: &[Event]) -> FaultTimes {
    outcome(spec, files, events).fault_times.unwrap()
}

/// Returns the percentage of a fault's time that `part` took.
fn share(fault: &LongFault, part: &str) -> u64 {
    100 * fault.parts[part] / fault.parts.values().sum::<u64>()
}

fn binary() -> Vec<FileInfo> {
    vec![file("/bin/p", 0x1000)]
}

#[test]
fn the_times_of_all_faults_add_up_to_the_estimate_of_the_run() {
    for kernel in ["6.18+thp=never", "6.18+thp=always", "6.18+thp=never+anon-64K=always"] {
        let outcome = outcome(spec(kernel, "cascadelake"), binary(), &stores(2_048));
        let times = outcome.fault_times.as_ref().unwrap();
        assert_eq!((times.faults, times.without_time), (outcome.faults.total, 0), "{kernel}");
        assert_eq!(times.histogram.values().sum::<u64>(), times.faults, "{kernel}");
        for (cause, part) in [(Cause::Fault, "fault"), (Cause::Map, "map"), (Cause::Clear, "clear")]
        {
            let exact = outcome.estimate.causes[&cause].ns.unwrap();
            // The estimate rounds once, the sum once per fault.
            assert!(
                times.parts[part].abs_diff(exact) <= times.faults,
                "{kernel}: {part} {times:?}"
            );
        }
    }
}

#[test]
fn the_longest_fault_clears_a_pmd_folio() {
    let times = of(spec("6.18+thp=always", "cascadelake"), binary(), &stores(1_024));
    let longest = &times.longest[0];
    assert_eq!((longest.faults, longest.kind, longest.address), (2, AreaKind::Private, ADDR));
    assert!(share(longest, "clear") > 90, "{longest:?}");
    assert_eq!((longest.ns, times.p999_ns), (times.max_ns, times.max_ns));
    assert_eq!(times.slowest, longest.parts, "of few faults, one is the slowest hundredth");
    assert!(times.max_ns.low < times.max_ns.mid && times.max_ns.mid < times.max_ns.high);
    let small = of(spec("6.18+thp=never", "cascadelake"), binary(), &stores(1_024));
    assert!(small.p99_ns.mid * 50.0 < times.max_ns.mid, "{small:?}");
}

#[test]
fn a_fault_waits_for_its_reads_and_for_memory() {
    let files = || vec![file("/bin/p", 0x1000), file("/data", 8 * MIB)];
    let free = of(spec("6.18", "zen4"), files(), &loads(2_048));
    let longest = &free.longest[0];
    assert_eq!((longest.kind, longest.path.as_str()), (AreaKind::File, "/data"));
    assert!(share(longest, "read") > 90, "{longest:?}");
    assert!(!free.parts.contains_key("reclaim") && free.stand_ins.is_empty(), "{free:?}");
    let limited = CellSpec { cgroups: vec!["2M".parse().unwrap()], ..spec("6.18", "zen4") };
    let limited = of(limited, files(), &loads(2_048));
    assert!(limited.parts["reclaim"] > 0, "{limited:?}");
    let names: Vec<&str> = limited.stand_ins.iter().map(String::as_str).collect();
    assert_eq!(names, ["costs.reclaim_folio", "costs.reclaim_page", "costs.reclaim_scan"]);
}

#[test]
fn direct_compaction_is_part_of_the_fault_that_needs_it() {
    let aged = |kernel| CellSpec { ram_bytes: 192 * MIB, aged_rounds: 3, ..spec(kernel, "zen5") };
    let nr_pages = 24 * HUGE / 4096;
    let eager = outcome(aged("6.18+thp=always+defrag=always"), binary(), &stores(nr_pages));
    let times = eager.fault_times.unwrap();
    assert!(eager.pressure["compact_stall"] > 0, "{:?}", eager.pressure);
    assert!(times.parts["compaction"] > 0, "{times:?}");
    let never = of(aged("6.18+thp=always+defrag=never"), binary(), &stores(nr_pages));
    assert!(!never.parts.contains_key("compaction"), "{never:?}");
}
