//! Cgroups with a limit: a larger file, larger private memory, and which processes belong to it.

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::cgroup::CgroupOutcome;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::{Event, FileInfo, Op};

use super::{program, two_huge_pages};

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
