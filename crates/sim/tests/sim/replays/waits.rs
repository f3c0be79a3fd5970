//! Waiting for reads, and the counts in the time estimate, in whole replays.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::path::{Path, PathBuf};

use largefolio_sim::cost::{Cause, Timing, Walks};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::{Machine, Quantity, Unit};
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, replay};
use largefolio_trace::generate::{RetStubs, SweepOrder, Workload, ZipfMix};

fn spec(kernel: &str, machine: &str) -> CellSpec {
    CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
}

fn run(path: &Path, spec: CellSpec) -> Outcome {
    replay(path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

/// A cascadelake machine with a device of this latency and rate.
fn with_device(kernel: &str, latency_ns: f64, gb_per_s: f64) -> CellSpec {
    let mut spec = spec(kernel, "cascadelake");
    let quantity = |value, unit| {
        Some(Quantity { value, unit, source: "test".to_owned(), assumed: false, range: None })
    };
    spec.machine.costs.storage_latency = quantity(latency_ns, Unit::Ns);
    spec.machine.costs.storage_rate = quantity(gb_per_s, Unit::GbPerS);
    spec
}

fn zipf(dir: &Path) -> PathBuf {
    let path = dir.join("zipf.folio");
    let mix = ZipfMix { nr_runs: 100_000, filesystem: "xfs".into(), ..ZipfMix::default() };
    mix.write(&path).unwrap();
    path
}

fn sweep(dir: &Path) -> PathBuf {
    let path = dir.join("sweep.folio");
    let stubs = RetStubs {
        nr_pages: 4096,
        stub_bytes: 4096,
        order: SweepOrder::Sequential,
        nr_calls: 0,
        ..RetStubs::default()
    };
    stubs.write(&path).unwrap();
    path
}

fn waited_ns(outcome: &Outcome) -> u64 {
    outcome.estimate.causes[&Cause::Read].ns.unwrap()
}

#[test]
fn every_byte_read_is_in_one_read_and_every_entry_set_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    for path in [zipf(dir.path()), sweep(dir.path())] {
        for (kernel, machine) in [("6.12", "altra"), ("7.2", "zen4"), ("7.2+page=64K", "grace-64k")]
        {
            let outcome = run(&path, spec(kernel, machine));
            let waits = &outcome.waits;
            assert_eq!(waits.sync_bytes + waits.async_bytes, outcome.reads.bytes, "{kernel}");
            assert!(waits.sync_requests > 0 && waits.sync_requests <= outcome.faults.total);
            let entries = &outcome.entries;
            assert_eq!(
                entries.set_by_faults + entries.set_by_fork,
                entries.ptes_cleared + entries.pmds_cleared,
                "{kernel}"
            );
            assert!(entries.batches_cleared <= entries.ptes_cleared);
            let zeroed = outcome.zeroed_pages * outcome.page_bytes;
            assert_eq!(outcome.cleared_bytes.values().sum::<u64>(), zeroed, "{kernel}");
            let tlb = &outcome.tlb;
            assert_eq!(tlb.walk_refs_pte, tlb.walks_pte);
            assert!(tlb.walk_references() >= tlb.walks());
        }
    }
}

#[test]
fn a_device_without_delay_is_waited_for_in_no_queue() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = run(&sweep(dir.path()), with_device("6.12", 1e-6, 1e9));
    let waits = &outcome.waits;
    assert!(waits.async_requests > 0, "the marker starts reads");
    // A transfer is rounded up to a nanosecond.
    assert!(waits.queue_ns.unwrap() + waits.late_ns.unwrap() <= waits.async_requests);
}

#[test]
fn a_slow_device_is_waited_for_until_it_has_moved_what_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = sweep(dir.path());
    let (slow, slower) = (with_device("6.12", 1e3, 0.1), with_device("6.12", 1e3, 0.05));
    let timing = Timing::new(&slow.machine.costs).unwrap();
    let [slow, slower] = [slow, slower].map(|spec| run(&path, spec));
    assert_eq!(slow.waits.sync_bytes, slower.waits.sync_bytes, "waiting decides nothing");
    assert_eq!(slow.faults, slower.faults);
    // The sweep uses every byte in order, so it cannot end before the device has moved them, and
    // waits whenever it does not compute. Some readahead may remain unused.
    let moved = timing.of_bytes(slow.reads.used_bytes);
    let references = slow.tlb.instruction.references + slow.tlb.data.references;
    assert!(waited_ns(&slow) + timing.of_references(references) >= moved);
    assert!(slow.waits.late_waits.unwrap() > 0);
    // Half the rate takes twice the time, except for overlapping computation.
    let ratio = waited_ns(&slower) / (waited_ns(&slow) / 100);
    assert!((195..=205).contains(&ratio), "{ratio}");
}

#[test]
fn reads_ahead_hide_behind_a_program_that_computes() {
    let dir = tempfile::tempdir().unwrap();
    let path = sweep(dir.path());
    let mut lazy = with_device("6.12", 100e3, 1.0);
    // A millisecond between two references: all readahead arrives in time.
    lazy.machine.costs.reference = Some(Quantity {
        value: 1e6,
        unit: Unit::Ns,
        source: "test".to_owned(),
        assumed: true,
        range: None,
    });
    let busy = run(&path, with_device("6.12", 100e3, 1.0));
    let lazy = run(&path, lazy);
    assert!(busy.waits.late_ns.unwrap() > 0);
    assert_eq!((lazy.waits.late_waits, lazy.waits.late_ns), (Some(0), Some(0)));
    assert_eq!(lazy.waits.queue_ns, Some(0));
}

#[test]
fn nobody_waits_with_a_warm_cache_and_nothing_is_known_without_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let path = zipf(dir.path());
    let mut warm = spec("6.18", "cascadelake");
    warm.cache = CacheState::Warm;
    let outcome = run(&path, warm);
    assert_eq!((outcome.waits.sync_requests, outcome.waits.async_requests), (0, 0));
    assert_eq!(waited_ns(&outcome), 0);

    let mut unknown = spec("6.18", "cascadelake");
    unknown.machine.costs.storage_rate = None;
    let outcome = run(&path, unknown);
    assert!(outcome.waits.sync_requests > 0);
    assert_eq!((outcome.waits.queue_ns, outcome.waits.late_waits), (None, None));
    assert_eq!(outcome.estimate.causes[&Cause::Read].ns, None);
    assert!(outcome.estimate.not_known.contains("costs.storage_rate"));
}

#[test]
fn larger_folios_of_text_cost_fewer_faults_and_walks() {
    let dir = tempfile::tempdir().unwrap();
    let path = sweep(dir.path());
    let [base, large] = ["6.12", "6.12+exec-block=64K"].map(|kernel| {
        let mut spec = spec(kernel, "altra");
        (spec.filesystem, spec.walks) = (Some("xfs".to_owned()), Walks::Native);
        run(&path, spec)
    });
    let ns = |outcome: &Outcome, cause| outcome.estimate.causes[&cause].ns.unwrap();
    assert!(ns(&large, Cause::Walk) < ns(&base, Cause::Walk));
    assert_eq!(ns(&base, Cause::Fault), base.faults.total * 900);
}
