//! A repeated census reads what changed.

use super::*;
use crate::census::watch::Watch;

const MIB: u64 = 1 << 20;

/// Writes `stat` with these faults and resident pages.
fn set_state(dir: &Path, pid: u32, nr_faults: u64, nr_pages: u64) {
    let rest = format!("S 1 7 7 0 -1 0 {nr_faults} 0 0 0 5 6 7 8 20 0 1 0 9 4096 {nr_pages} 0");
    std::fs::write(dir.join(format!("{pid}/stat")), format!("{pid} (p) {rest}")).unwrap();
}

fn set_collapses(dir: &Path, nr: u64) {
    std::fs::write(dir.join("vmstat"), format!("thp_collapse_alloc {nr}\nthp_split_page 0\n"))
        .unwrap();
}

/// A machine with states, a watch that has read it, and the first census.
fn watched() -> (tempfile::TempDir, MemSystem, Watch, Census) {
    let (dir, system) = edited("6.18", |dir| {
        set_collapses(dir, 0);
        for pid in [100, 200] {
            set_state(dir, pid, 10, 20);
        }
    });
    let mut watch = Watch::default();
    let census = watch.take(&system, &[100, 200]).unwrap();
    let copy = census.clone();
    watch.give_back(census);
    (dir, system, watch, copy)
}

/// Removes all memory from a process.
fn empty(dir: &Path, pid: u32) {
    std::fs::write(dir.join(format!("{pid}/pagemap")), "scan\n").unwrap();
}

fn mapped(census: &Census, pid: u32) -> u64 {
    let process = census.processes.iter().find(|process| process.pid == pid).unwrap();
    process.tally.all().mapped_bytes()
}

#[test]
fn unchanged_processes_are_not_read_and_totals_stay() {
    let (dir, system, mut watch, first) = watched();
    assert_eq!(first.totals, take(&system, &[100, 200]).unwrap().totals);
    // Nothing says that the memory is gone.
    empty(dir.path(), 100);
    empty(dir.path(), 200);
    let again = watch.take(&system, &[100, 200]).unwrap();
    assert_eq!(again.totals, first.totals);
    for pid in [100, 200] {
        assert_eq!(mapped(&again, pid), mapped(&first, pid));
    }
}

#[test]
fn pages_shared_with_a_process_that_changed_count_once() {
    let (dir, system, mut watch, first) = watched();
    set_state(dir.path(), 200, 11, 20);
    let again = watch.take(&system, &[100, 200]).unwrap();
    assert_eq!(again.totals, first.totals);
}

#[test]
fn a_fault_another_size_or_another_start_is_a_change() {
    for (nr_faults, nr_pages) in [(11, 20), (10, 19)] {
        let (dir, system, mut watch, first) = watched();
        empty(dir.path(), 100);
        empty(dir.path(), 200);
        set_state(dir.path(), 100, nr_faults, nr_pages);
        let again = watch.take(&system, &[100, 200]).unwrap();
        assert_eq!((mapped(&again, 100), mapped(&again, 200)), (0, mapped(&first, 200)));
    }
}

#[test]
fn a_process_that_ended_is_forgotten() {
    let (_dir, system, mut watch, _) = watched();
    let again = watch.take(&system, &[200]).unwrap();
    assert_eq!(again.processes.len(), 1);
    assert_eq!(again.totals, take(&system, &[200]).unwrap().totals);
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the fixture has a PMD entry of 2M")]
fn after_a_collapse_processes_with_memory_for_one_are_read() {
    let (dir, system, mut watch, first) = watched();
    assert!(mapped(&first, 100) > 2 * MIB);
    empty(dir.path(), 100);
    set_collapses(dir.path(), 1);
    assert_eq!(mapped(&watch.take(&system, &[100, 200]).unwrap(), 100), 0);
}

#[test]
fn every_process_is_read_again_some_time() {
    let (dir, system, mut watch, _) = watched();
    empty(dir.path(), 100);
    let nr = (1..20).find(|_| {
        let census = watch.take(&system, &[100, 200]).unwrap();
        let is_read = mapped(&census, 100) == 0;
        watch.give_back(census);
        is_read
    });
    assert!(nr.is_some_and(|nr| nr <= 16), "{nr:?}");
}
