//! A sweep whose tasks run elsewhere: what it accepts, what it refuses, and what it recognizes
//! again.

mod refused;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use largefolio_results::predict::sweep::local::{self, Callbacks};
use largefolio_results::predict::sweep::manifest::MANIFEST;
use largefolio_results::predict::sweep::{
    Counts, Manifest, NEVER, RunEnding, Sweep, SweepError, SweepRequest, Task, TaskError,
    TaskResult,
};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay;
use largefolio_trace::generate::{Workload, ZipfMix};
use largefolio_trace::validate::REFERENCE_PAGE_BYTES;
use largefolio_trace::{Meta, Writer};
use tempfile::TempDir;

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    write_trace(&place.path().join("mix.folio"), 2_000);
    place
}

fn write_trace(path: &Path, nr_runs: u64) {
    let (file_bytes, anon_bytes) = (1 << 20, 1 << 20);
    let mix = ZipfMix { nr_runs, nr_files: 1, file_bytes, anon_bytes, ..ZipfMix::default() };
    mix.write(path).unwrap();
}

fn request(place: &TempDir, kernels: &[&str], traces: &[&str]) -> SweepRequest {
    let kernels: Vec<_> = kernels.iter().map(|name| Kernel::parse(name).unwrap()).collect();
    let machines = vec![Machine::named("altra").unwrap(), Machine::named("zen4").unwrap()];
    let memory_bytes = vec![64 << 20, 1 << 30];
    SweepRequest {
        command_line: vec!["a test".to_owned()],
        traces: traces.iter().map(|name| place.path().join(name)).collect(),
        copies: BTreeMap::new(),
        cells: replay::ReplayRequest {
            memory_bytes,
            ..replay::ReplayRequest::new(kernels, machines)
        },
    }
}

fn run(task: &Task, trace: &Path) -> Result<TaskResult, TaskError> {
    task.run(trace, &mut |_| ControlFlow::Continue(()))
}

fn here(task: &Task) -> TaskResult {
    run(task, Path::new(&task.trace)).unwrap()
}

fn parts(dir: &Path) -> BTreeSet<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).collect()
}

fn manifest(dir: &Path) -> Manifest {
    serde_json::from_slice(&fs::read(dir.join(MANIFEST)).unwrap()).unwrap()
}

#[test]
fn a_task_travels_as_json_and_needs_nothing_but_the_trace() {
    let place = place();
    let file = place.path().join("mine.toml");
    fs::write(&file, "based-on = \"6.12\"\ndescription = \"mine\"\n").unwrap();
    let name = file.to_str().unwrap();
    let dir = place.path().join("set");
    let mut sweep = Sweep::open(&dir, &request(&place, &[name], &["mix.folio"]), NEVER).unwrap();
    let texts: Vec<String> =
        sweep.missing(3).iter().map(|task| serde_json::to_string(task).unwrap()).collect();
    assert_eq!(texts.len(), 2, "4 cells in tasks of 3");
    fs::remove_file(&file).unwrap();
    let moved = place.path().join("elsewhere.folio");
    fs::rename(place.path().join("mix.folio"), &moved).unwrap();
    for text in &texts {
        let task: Task = serde_json::from_str(text).unwrap();
        sweep.add(&task, run(&task, &moved).unwrap(), NEVER).unwrap();
    }
    assert!(sweep.missing(3).is_empty());
    assert_eq!(
        sweep.finish(RunEnding::Done, NEVER).unwrap().last().unwrap().ended,
        RunEnding::Done
    );
    assert_eq!(parts(&dir).len(), 2);
}

#[test]
fn a_result_that_comes_twice_is_kept_once() {
    let place = place();
    let dir = place.path().join("set");
    let mut sweep = Sweep::open(&dir, &request(&place, &["6.12"], &["mix.folio"]), NEVER).unwrap();
    let whole = sweep.missing(16).remove(0);
    let halves = sweep.missing(2);
    sweep.add(&halves[0], here(&halves[0]), NEVER).unwrap();
    sweep.add(&halves[0], here(&halves[0]), NEVER).unwrap();
    assert_eq!(sweep.counts().nr_done, 2);
    sweep.add(&whole, here(&whole), NEVER).unwrap();
    let expected = Counts { nr_asked: 4, nr_found: 0, nr_done: 4, nr_failed: 0 };
    assert_eq!(sweep.counts(), expected);
    let manifest = sweep.finish(RunEnding::Done, NEVER).unwrap();
    assert_eq!((manifest.nr_cells, manifest.nr_parts), (4, 2));
    let again = Sweep::open(&dir, &request(&place, &["6.12"], &["mix.folio"]), NEVER).unwrap();
    assert!(again.set_aside().is_empty(), "a cell in two parts would be damage");
    assert_eq!(again.counts().nr_found, 4);
}

/// Creates a data set of one-cell parts, one fewer than a merge takes, and its request.
fn many_parts(place: &TempDir, dir: &Path, nr: u64) -> (SweepRequest, Sweep) {
    let mut request = request(place, &["6.12"], &["mix.folio"]);
    request.cells.machines.truncate(1);
    request.cells.memory_bytes = vec![8 << 20];
    // A seed makes a separate cell only if memory is fragmented.
    request.cells.fragmentation.permille = 10;
    request.cells.seeds = (1..=nr).collect();
    let sweep = Sweep::open(dir, &request, NEVER).unwrap();
    (request, sweep)
}

/// Counts the cells in a directory, and checks that none is duplicated or damaged.
fn nr_whole(dir: &Path, request: &SweepRequest) -> usize {
    let again = Sweep::open(dir, request, NEVER).unwrap();
    assert!(again.set_aside().is_empty(), "{:?}", again.set_aside());
    again.counts().nr_found
}

#[test]
fn many_small_parts_become_one_and_whatever_ends_that_loses_nothing() {
    const NR: usize = 256;
    let place = place();
    let dir = place.path().join("set");
    let (request, mut sweep) = many_parts(&place, &dir, NR as u64 + 3);
    let tasks = sweep.missing(1);
    for task in &tasks[..NR - 1] {
        sweep.add(task, here(task), NEVER).unwrap();
    }
    let before: Vec<(PathBuf, Vec<u8>)> =
        parts(&dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert_eq!(before.len(), NR - 1);
    for task in &tasks[NR - 1..] {
        sweep.add(task, here(task), NEVER).unwrap();
    }
    let finished = sweep.finish(RunEnding::Done, NEVER).unwrap();
    assert_eq!(
        (finished.nr_cells, finished.nr_parts),
        (NR + 3, 4),
        "one of {NR}, and three after it"
    );
    assert_eq!(nr_whole(&dir, &request), NR + 3);
    let bytes_of = |path: &PathBuf| fs::read(path).unwrap();
    let merged = parts(&dir).into_iter().max_by_key(|path| bytes_of(path).len()).unwrap();
    let bytes = bytes_of(&merged);
    let name = merged.file_name().unwrap().to_str().unwrap().to_owned();
    let merging = dir.join(format!("_{name}.merging"));

    // Killed before the first part was removed, in between, after the last, and with half a file.
    for (nr_left, is_damaged) in [(NR - 1, false), (100, false), (0, false), (NR - 1, true)] {
        for path in parts(&dir) {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in &before[..nr_left] {
            fs::write(path, bytes).unwrap();
        }
        fs::write(&merging, if is_damaged { &bytes[..bytes.len() / 2] } else { &bytes }).unwrap();
        if is_damaged {
            let again = Sweep::open(&dir, &request, NEVER).unwrap();
            assert_eq!((again.set_aside().len(), again.counts().nr_found), (1, NR - 1));
            continue;
        }
        assert_eq!(nr_whole(&dir, &request), NR, "{nr_left} parts were left");
        assert_eq!(parts(&dir), BTreeSet::from([merged.clone()]));
        assert!(!merging.exists());
    }
}

#[test]
fn who_is_stopped_while_parts_are_merged_leaves_them_to_the_next() {
    const NR: usize = 256;
    largefolio_testkit::only_in_test_all!("stops a merge at each of its steps");
    let place = place();
    let dir = place.path().join("set");
    let (request, mut sweep) = many_parts(&place, &dir, NR as u64);
    for task in &sweep.missing(1) {
        sweep.add(task, here(task), &|| true).unwrap();
    }
    assert_eq!(parts(&dir).len(), NR);
    let finished = sweep.finish(RunEnding::Done, &|| true).unwrap();
    assert_eq!((finished.last().unwrap().ended, finished.nr_parts), (RunEnding::Interrupted, NR));
    // Stopped between any two steps of a start.
    for nr in [0, 1, 2, NR / 2, NR] {
        let nr_asked = AtomicUsize::new(0);
        let is_stopped = || nr_asked.fetch_add(1, Relaxed) == nr;
        assert!(matches!(Sweep::open(&dir, &request, &is_stopped), Err(SweepError::Stopped)));
    }
    let again = Sweep::open(&dir, &request, NEVER).unwrap();
    assert_eq!((again.counts().nr_found, again.set_aside()), (NR, [].as_slice()));
    let finished = again.finish(RunEnding::Done, NEVER).unwrap();
    assert_eq!((finished.last().unwrap().ended, finished.nr_parts), (RunEnding::Done, 1));
}

#[test]
fn a_task_that_failed_elsewhere_is_recorded_and_may_still_come() {
    let place = place();
    let dir = place.path().join("set");
    let request = request(&place, &["6.12"], &["mix.folio", "missing.folio"]);
    let mut sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    assert_eq!(sweep.counts().nr_failed, 4, "a trace that is not there");
    let tasks = sweep.missing(2);
    assert_eq!(tasks.len(), 2);
    sweep.fail(&tasks[0], "the worker was lost");
    sweep.fail(&tasks[1], "the worker was lost");
    assert_eq!(sweep.counts().nr_failed, 8);
    sweep.add(&tasks[1], here(&tasks[1]), NEVER).unwrap();
    assert_eq!(sweep.counts().nr_failed, 6);
    let finished = sweep.finish(RunEnding::Done, NEVER).unwrap();
    assert_eq!(finished.last().unwrap().ended, RunEnding::Incomplete);
    let failed: Vec<_> =
        finished.failed.iter().map(|failure| (failure.nr_cells, failure.cells.len())).collect();
    assert_eq!(failed, [(4, 0), (2, 2)]);
    assert!(finished.failed[0].error.contains("missing.folio"), "{:?}", finished.failed);
    assert_eq!(finished.failed[1].error, "the worker was lost");
    assert_eq!(manifest(&dir), finished);
    fs::copy(place.path().join("mix.folio"), place.path().join("missing.folio")).unwrap();
    let mut again = Sweep::open(&dir, &request, NEVER).unwrap();
    let missing = again.missing(16);
    assert_eq!(missing.len(), 1, "the same bytes under two names are one trace");
    again.add(&missing[0], here(&missing[0]), NEVER).unwrap();
    let finished = again.finish(RunEnding::Done, NEVER).unwrap();
    assert_eq!((finished.failed.len(), finished.last().unwrap().ended), (0, RunEnding::Done));
}

#[test]
fn what_failed_stays_in_the_manifest_until_it_is_asked_for_again() {
    let place = place();
    let dir = place.path().join("set");
    let (request, mut sweep) = many_parts(&place, &dir, 120);
    let all = sweep.missing(1);
    for task in &all {
        sweep.fail(task, "the worker was lost");
    }
    let finished = sweep.finish(RunEnding::Done, NEVER).unwrap();
    let numbers = |finished: &Manifest| -> Vec<_> {
        let failed = finished.failed.iter();
        failed.map(|failure| (failure.nr_cells, failure.cells.len(), failure.more.len())).collect()
    };
    assert_eq!(numbers(&finished), [(120, 100, 20)]);
    // Twenty are requested again, including some not named in full: ten succeed, and ten fail
    // again.
    let ids: BTreeSet<_> =
        finished.failed[0].more.iter().chain([&finished.failed[0].cells[0].id]).collect();
    let seed = |task: &Task| task.cells[0].setting.seed;
    let again = all.iter().filter(|task| ids.contains(&task.cells[0].id)).take(20);
    let mut some = request.clone();
    some.cells.seeds = again.map(seed).collect();
    let mut sweep = Sweep::open(&dir, &some, NEVER).unwrap();
    let tasks = sweep.missing(1);
    assert_eq!(tasks.len(), 20);
    assert_eq!(manifest(&dir).failed.iter().map(|one| one.nr_cells).sum::<usize>(), 100);
    tasks[..10].iter().for_each(|task| sweep.add(task, here(task), NEVER).unwrap());
    tasks[10..].iter().for_each(|task| sweep.fail(task, "the disk was lost"));
    let finished = sweep.finish(RunEnding::Done, NEVER).unwrap();
    let nrs: Vec<_> = finished.failed.iter().map(|failure| failure.nr_cells).collect();
    assert_eq!(nrs, [100, 10], "{:?}", numbers(&finished));
    let mut sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    assert_eq!(manifest(&dir).failed, []);
    let tasks = sweep.missing(16);
    assert_eq!(tasks.iter().map(|task| task.cells.len()).sum::<usize>(), 110);
    for task in &tasks {
        sweep.add(task, here(task), NEVER).unwrap();
    }
    assert_eq!(sweep.finish(RunEnding::Done, NEVER).unwrap().failed, []);
}

#[test]
fn a_cell_that_fails_alone_leaves_the_others() {
    let place = place();
    let dir = place.path().join("set");
    let mut request = request(&place, &["6.12"], &["mix.folio"]);
    request.cells.memory_bytes = vec![64 << 20, 16 << 10];
    let mut sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    let task = sweep.missing(16).remove(0);
    let result = here(&task);
    assert_eq!(result.failed.len(), 2, "{:?}", result.failed);
    sweep.add(&task, result, NEVER).unwrap();
    let finished = sweep.finish(RunEnding::Done, NEVER).unwrap();
    assert_eq!(finished.last().unwrap().ended, RunEnding::Incomplete);
    let cells: Vec<_> = finished.failed.iter().flat_map(|failure| &failure.cells).collect();
    assert!(cells.iter().all(|cell| cell.memory_bytes == 16 << 10), "{cells:?}");
    assert_eq!((cells.len(), finished.nr_cells), (2, 2));
}

#[test]
fn a_trace_whose_rows_are_too_large_leaves_the_others() {
    let place = place();
    let footer = Meta {
        command: vec!["a".repeat(9 << 20)],
        page_bytes: REFERENCE_PAGE_BYTES,
        ..Meta::default()
    };
    Writer::create(&place.path().join("large.folio"), footer).unwrap().finish().unwrap();
    let dir = place.path().join("set");
    let request = request(&place, &["6.12"], &["large.folio", "mix.folio"]);
    let mut sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    let callbacks = Callbacks { progress: &mut |_| {}, is_stopped: &|| false };
    assert_eq!(local::run(&mut sweep, callbacks).unwrap(), RunEnding::Done);
    let expected = Counts { nr_asked: 8, nr_found: 0, nr_done: 4, nr_failed: 4 };
    assert_eq!(sweep.counts(), expected);
    let failures = sweep.failures();
    assert!(failures[0].trace.ends_with("large.folio"), "{failures:?}");
    assert!(failures[0].error.contains("was refused"), "{}", failures[0].error);
}

#[test]
fn one_sweep_writes_at_a_time_and_a_killed_one_is_told() {
    let place = place();
    let dir = place.path().join("set");
    let request = request(&place, &["6.12"], &["mix.folio"]);
    let first = Sweep::open(&dir, &request, NEVER).unwrap();
    assert!(matches!(Sweep::open(&dir, &request, NEVER), Err(SweepError::Busy { .. })));
    drop(first);
    fs::write(dir.join(".folio-x.tmp"), "half of a part").unwrap();
    let second = Sweep::open(&dir, &request, NEVER).unwrap();
    assert!(!dir.join(".folio-x.tmp").exists());
    let ended: Vec<_> = second.finish(RunEnding::Interrupted, NEVER).unwrap().runs;
    let ended: Vec<_> = ended.iter().map(|run| run.ended).collect();
    assert_eq!(ended, [RunEnding::Died, RunEnding::Interrupted]);
}

#[test]
fn a_manifest_that_is_gone_is_told_where_there_are_parts() {
    let place = place();
    let dir = place.path().join("set");
    let request = request(&place, &["6.12"], &["mix.folio"]);
    let mut sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    assert_eq!(sweep.note(), None);
    let task = sweep.missing(16).remove(0);
    sweep.add(&task, here(&task), NEVER).unwrap();
    sweep.finish(RunEnding::Done, NEVER).unwrap();
    assert_eq!(Sweep::open(&dir, &request, NEVER).unwrap().note(), None);
    fs::remove_file(dir.join(MANIFEST)).unwrap();
    let note = Sweep::open(&dir, &request, NEVER).unwrap().note().unwrap();
    assert!(
        note.starts_with("parts exist, but there is no _manifest.json: the rows are complete"),
        "{note}"
    );
}

#[test]
fn no_cell_is_planned_twice_and_no_task_needs_more_memory_than_there_is() {
    let place = place();
    fs::copy(place.path().join("mix.folio"), place.path().join("copy.folio")).unwrap();
    let traces = ["mix.folio", "mix.folio", "copy.folio"];
    let mut request = request(&place, &["6.12", "6.12"], &traces);
    let dir = place.path().join("set");
    let sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    assert_eq!(sweep.counts().nr_asked, 4);
    assert_eq!(sweep.missing(1).len(), 4);
    drop(sweep);
    request.cells.memory_bytes = vec![1 << 42, 1 << 41, 1 << 30, 2 << 30];
    let sweep = Sweep::open(&dir, &request, NEVER).unwrap();
    let sizes: Vec<_> = sweep.missing(16).iter().map(|task| task.cells.len()).collect();
    assert_eq!(sizes, [1, 1, 2, 1, 1, 2], "terabytes alone, gigabytes together; two machines");
}
