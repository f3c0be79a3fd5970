//! `folio predict --sweep`: the data set is always whole, and grows by the missing cells.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::parquet::{Frame, rows};
use crate::support::{Place, text};

const EIGHT: &str = "predict a.folio b.folio --kernel 6.12,7.2 --machine altra --memory 64M,1G";

fn small() -> Place {
    let place = Place::new();
    for (name, seed) in [("a", 1), ("b", 2)] {
        let args = "trace gen zipf --files 2 --file-size 1M --anon-size 1M --runs 4000";
        place.done(&format!("{args} --seed {seed} -o {name}.folio"));
    }
    place
}

/// Four traces in 80 cells: five tasks each, enough to be interrupted midway.
fn long() -> (Place, String) {
    let place = Place::new();
    for name in ["a", "b", "c", "d"] {
        let args = "trace gen zipf --files 2 --file-size 8M --anon-size 8M --runs 30000";
        let seed = name.as_bytes()[0];
        place.done(&format!("{args} --seed {seed} -o {name}.folio"));
    }
    let sizes: Vec<String> = (0..40).map(|nr| format!("{}M", 64 + nr)).collect();
    let traces = "a.folio b.folio c.folio d.folio";
    let args = format!("predict {traces} --kernel 6.12,7.2 --memory {}", sizes.join(","));
    (place, format!("{args} --sweep set"))
}

const NR_LONG: usize = 320;

fn part_names(place: &Place) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(place.path("set")) else { return BTreeSet::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".parquet")).collect()
}

/// Returns every row of the data set by cell; no cell has two rows.
fn cells(place: &Place) -> BTreeMap<String, Frame> {
    let mut cells = BTreeMap::new();
    for name in part_names(place) {
        for row in rows(&place.path("set").join(name)) {
            let cell = row["cell"].as_str().unwrap().to_owned();
            assert!(cells.insert(cell.clone(), row).is_none(), "{cell} has two rows");
        }
    }
    cells
}

fn manifest(place: &Place) -> Value {
    serde_json::from_slice(&fs::read(place.path("set/_manifest.json")).unwrap()).unwrap()
}

fn run_endings(place: &Place) -> Vec<String> {
    let manifest = manifest(place);
    let runs = manifest["runs"].as_array().unwrap().iter();
    runs.map(|run| run["ended"].as_str().unwrap().to_owned()).collect()
}

fn scalars(name: &str, value: &Value, columns: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let below = if name.is_empty() { key.clone() } else { format!("{name}_{key}") };
                scalars(&below.replace("estimate_causes_", "estimate_"), value, columns);
            }
        }
        Value::Array(_) => {}
        scalar => drop(columns.insert(name.to_owned(), scalar.clone())),
    }
}

/// Excludes columns with lists, and values that the table lacks.
fn is_scalar_column(name: &str) -> bool {
    let keyed = ["by_size", "cached_bytes", "anon_sizes", "pmd_refused", "collapse_refused"];
    let further = [
        "pressure_",
        "memory_stat",
        "cleared_bytes",
        "copied_bytes",
        "latency_sizes",
        "asked",
        "unusable_at_start",
        "statistics_processes",
    ];
    let left_out = ["_constants_", "_stand_ins", "difference_ns", "run_change", "detail"];
    !keyed.iter().chain(&further).chain(&left_out).any(|part| name.contains(part))
}

#[test]
fn every_row_equals_the_prediction_of_its_cell() {
    let place = small();
    let stdout = place.done(&format!("{EIGHT} --swap 64M --sweep set"));
    assert!(
        stdout.starts_with("set: 8 cells done, 0 found, 0 failed; 8 rows in 2 parts"),
        "{stdout}"
    );
    let cells = cells(&place);
    assert_eq!(cells.len(), 8);
    for row in cells.values() {
        let word = |name: &str| row[name].as_str().unwrap().to_owned();
        let (trace, kernel, memory) = (word("trace"), word("kernel"), &row["memory_bytes"]);
        let args = format!("predict {trace} --kernel {kernel} --machine altra --swap 64M");
        let json = place.done(&format!("{args} --memory {memory} --json"));
        let json: Value = serde_json::from_str(&json).unwrap();
        let mut expected = BTreeMap::new();
        scalars("", &json["rows"][0], &mut expected);
        expected.retain(|name, _| is_scalar_column(name));
        assert!(expected.len() > 80, "{}", expected.len());
        for (name, value) in expected {
            assert_eq!(row.get(&name), Some(&value), "{name}");
        }
        assert_eq!(row["trace_digest"], json["trace"]["digest"]);
    }
}

#[test]
fn finished_cells_are_reused_and_new_ones_added() {
    let place = small();
    place.done(&format!("{EIGHT} --sweep set"));
    let before = part_names(&place);
    let stdout = place.done(&format!("{EIGHT} --sweep set"));
    assert!(stdout.starts_with("set: 0 cells done, 8 found, 0 failed"), "{stdout}");
    assert_eq!(part_names(&place), before);
    // The same trace under another name and path.
    fs::create_dir(place.path("moved")).unwrap();
    fs::rename(place.path("a.folio"), place.path("moved/x.folio")).unwrap();
    let more =
        "predict moved/x.folio b.folio --kernel 6.18,6.12,7.2 --machine altra --memory 64M,1G";
    let stdout = place.done(&format!("{more} --sweep set"));
    assert!(stdout.starts_with("set: 4 cells done, 8 found, 0 failed; 12 rows in 4"), "{stdout}");
    assert!(part_names(&place).is_superset(&before));
    assert_eq!(cells(&place).len(), 12);
    assert_eq!(run_endings(&place), ["done", "done", "done"]);
}

#[test]
fn an_edited_kernel_file_is_another_kernel() {
    let place = small();
    let write = |readahead: &str| {
        let text = format!("based-on = \"6.12\"\ndescription = \"x\"\n{readahead}\n");
        fs::write(place.path("mine.toml"), text).unwrap();
    };
    let args = "predict a.folio --kernel mine.toml --sweep set --json";
    write("readahead_bytes = 131072");
    place.done(args);
    write("# another wording changes nothing\nreadahead_bytes = 131072");
    let json: Value = serde_json::from_str(&place.done(args)).unwrap();
    assert_eq!(json["runs"][1]["nr_found"], 1);
    write("readahead_bytes = 1048576");
    let json: Value = serde_json::from_str(&place.done(args)).unwrap();
    assert_eq!(json["runs"][2]["nr_done"], 1);
    let kernels: Vec<_> = cells(&place).values().map(|row| row["kernel"].clone()).collect();
    assert_eq!(kernels, ["mine.toml", "mine.toml"]);
    let key = json["runs"][2]["asked"]["kernels"][0]["text"].as_str().unwrap();
    assert!(json["texts"][key].as_str().unwrap().contains("readahead_bytes = 1048576"), "{json}");
    // Each row names its kernel text.
    let keys =
        cells(&place).into_values().map(|row| row["kernel_text"].as_str().unwrap().to_owned());
    let keys: BTreeSet<String> = keys.collect();
    assert!(keys.len() == 2 && keys.contains(key), "{keys:?}");
    assert!(keys.iter().all(|key| json["texts"][key].is_string()), "{keys:?}");
    let machine = cells(&place).into_values().next().unwrap()["machine_text"].clone();
    assert_eq!(json["runs"][2]["asked"]["machines"][0]["text"], machine);
}

#[test]
fn a_broken_trace_does_not_stop_the_others() {
    let place = small();
    fs::write(place.path("text.folio"), "no trace").unwrap();
    let bytes = fs::read(place.path("b.folio")).unwrap();
    fs::write(place.path("half.folio"), &bytes[..bytes.len() / 2]).unwrap();
    let args = "predict text.folio a.folio half.folio gone.folio --kernel 6.12,7.2 --sweep set";
    let output = place.run(args);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stdout.starts_with("set: 2 cells done, 0 found, 6 failed"), "{stdout}");
    for part in ["text.folio, 2 cells failed: ", "half.folio", "gone.folio, 2 cells failed: cannot"]
    {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let failed = manifest(&place)["failed"].clone();
    assert_eq!(failed.as_array().unwrap().len(), 3, "{failed}");
    assert_eq!(run_endings(&place), ["incomplete"]);
    fs::copy(place.path("b.folio"), place.path("gone.folio")).unwrap();
    let stdout = place.done("predict a.folio gone.folio --kernel 6.12,7.2 --sweep set");
    assert!(stdout.starts_with("set: 2 cells done, 2 found, 0 failed"), "{stdout}");
    let left = manifest(&place)["failed"].as_array().unwrap().len();
    assert_eq!(left, 2, "cells not requested again are still listed as failed");
    let output = place.run("predict a.folio --kernel 6.12,7.2 --sweep set");
    assert_eq!(text(&output.stderr), "", "what failed before and is not asked for is not told");
}

#[test]
fn a_damaged_manifest_is_kept_without_losing_rows() {
    let place = small();
    place.done(&format!("{EIGHT} --sweep set"));
    let path = |name: &str| place.path("set").join(name);
    for (damage, name) in
        [("first", "_manifest.json.broken"), ("second", "_manifest.json.broken-2")]
    {
        fs::write(path("_manifest.json"), damage).unwrap();
        let output = place.run(&format!("{EIGHT} --sweep set"));
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(stdout.starts_with("set: 0 cells done, 8 found"), "{stdout}");
        assert!(stderr.contains(&format!("renamed to {name}, the rows are complete")), "{stderr}");
        assert_eq!(fs::read_to_string(path(name)).unwrap(), damage);
    }
    assert_eq!(fs::read_to_string(path("_manifest.json.broken")).unwrap(), "first");
}

#[test]
fn reports_a_deleted_manifest() {
    let place = small();
    place.done(&format!("{EIGHT} --sweep set"));
    fs::remove_file(place.path("set/_manifest.json")).unwrap();
    let output = place.run(&format!("{EIGHT} --sweep set"));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("set: parts exist, but there is no _manifest.json: the rows are complete"),
        "{stderr}"
    );
}

#[test]
fn a_refused_sweep_leaves_no_directory() {
    let place = small();
    for args in [
        "--kernel 6.99",
        "--kernel missing.toml",
        "--policy missing.o",
        "--fs nofs",
        "--annotate nowhere=64K",
    ] {
        place.fails(&format!("predict a.folio {args} --sweep n5/a/b"));
        assert!(!place.path("n5").exists(), "{args}");
    }
}

#[test]
fn a_damaged_part_is_reported_and_recomputed() {
    let place = small();
    place.done(&format!("{EIGHT} --sweep set"));
    let before = cells(&place);
    let parts: Vec<PathBuf> =
        part_names(&place).iter().map(|name| place.path("set").join(name)).collect();
    let mut bytes = fs::read(&parts[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&parts[0], bytes).unwrap();
    let half = fs::metadata(&parts[1]).unwrap().len() / 2;
    File::options().write(true).open(&parts[1]).unwrap().set_len(half).unwrap();
    let output = place.run(&format!("{EIGHT} --sweep set"));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.starts_with("set: 8 cells done, 0 found"), "{stdout}");
    for part in &parts {
        let name = part.file_name().unwrap().to_str().unwrap();
        assert!(
            stderr.contains(&format!("set/{name}: it is damaged: its content does not match")),
            "{stderr}"
        );
        assert!(place.path(&format!("set/_{name}.broken")).exists());
    }
    assert_eq!(cells(&place), before, "the same rows again");
}

/// A confined process cannot follow a link that leads outside.
#[test]
fn a_link_in_place_of_a_part_or_the_manifest_is_renamed() {
    let place = small();
    place.done(&format!("{EIGHT} --sweep set"));
    let before = cells(&place);
    let part = part_names(&place).first().unwrap().clone();
    fs::write(place.path("elsewhere"), "text").unwrap();
    for (name, target) in [
        (part.as_str(), "gone"),
        (part.as_str(), "../elsewhere"),
        ("_manifest.json", "../elsewhere"),
    ] {
        let path = place.path("set").join(name);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(target, &path).unwrap();
        let output = place.run(&format!("{EIGHT} --sweep set"));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{name} -> {target}: {stderr}");
        assert!(stderr.contains(name), "{name} -> {target}: {stderr}");
        assert_eq!(cells(&place), before, "{name} -> {target}");
        assert!(!path.is_symlink(), "{name} -> {target}");
    }
    assert_eq!(fs::read_to_string(place.path("elsewhere")).unwrap(), "text");
}

#[test]
fn a_second_sweep_is_refused_at_once() {
    let place = small();
    fs::create_dir(place.path("set")).unwrap();
    let lock = File::create(place.path("set/.lock")).unwrap();
    lock.lock().unwrap();
    let stderr = place.fails(&format!("{EIGHT} --sweep set"));
    assert!(stderr.contains("another sweep is writing to set"), "{stderr}");
    drop(lock);
    place.done(&format!("{EIGHT} --sweep set"));
}

#[test]
fn reports_unsupported_sweep_requests() {
    let place = small();
    let stderr = place.fails("predict a.folio b.folio --kernel 6.12");
    assert!(stderr.contains("2 traces do not fit in one table; add --sweep DIR"), "{stderr}");
    for other in ["--csv", "--parquet", "-o out", "--report out.html", "--time"] {
        let stderr = place.fails(&format!("{EIGHT} --sweep set {other}"));
        assert!(stderr.contains("cannot be used with"), "{other}: {stderr}");
    }
    let stderr = place.fails("predict a.folio --sweep set --annotate nowhere=64K");
    assert!(stderr.contains("annotation nowhere=64K: no file in any trace matches"), "{stderr}");
    let stderr = place.fails("predict a.folio b.folio --sweep set --cgroup nowhere=24M");
    assert!(stderr.contains("--cgroup nowhere=24M"), "{stderr}");
    let stderr = place.fails("predict a.folio --sweep s3://bucket/set");
    assert!(
        stderr.contains("a directory on this machine") && !place.path("s3:").exists(),
        "{stderr}"
    );
    let stderr = place.fails("predict a.folio --sweep a.folio");
    assert!(stderr.contains("a.folio is a file, but a sweep needs a directory"), "{stderr}");
}

/// A background sweep, killed if a test ends early.
struct RunningSweep(Child);

impl RunningSweep {
    fn start(place: &Place, args: &str) -> Self {
        let mut command = place.command(args);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until the data set has `nr` parts; false if the sweep ended first.
    fn has_parts(&mut self, place: &Place, nr: usize) -> bool {
        while part_names(place).len() < nr {
            if self.0.try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.0.try_wait().unwrap().is_none()
    }

    fn end(mut self) -> Output {
        let mut output = Output { status: self.0.wait().unwrap(), stdout: vec![], stderr: vec![] };
        let mut streams = (self.0.stdout.take().unwrap(), self.0.stderr.take().unwrap());
        std::io::Read::read_to_end(&mut streams.0, &mut output.stdout).unwrap();
        std::io::Read::read_to_end(&mut streams.1, &mut output.stderr).unwrap();
        output
    }
}

impl Drop for RunningSweep {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_sweep_continues() {
    let (place, args) = long();
    let mut nr_killed = 0;
    let mut known = BTreeMap::new();
    for nr_parts in [0, 1, 2, 6, 11] {
        let mut running = RunningSweep::start(&place, &args);
        if running.has_parts(&place, nr_parts) {
            running.0.kill().unwrap();
            nr_killed += 1;
        }
        running.0.wait().unwrap();
        let now = cells(&place);
        assert!(known.iter().all(|(cell, row)| now.get(cell) == Some(row)), "rows are kept");
        known = now;
    }
    assert!(nr_killed >= 3, "the sweep is too short to be killed: {nr_killed}");
    let stdout = place.done(&args);
    assert!(stdout.contains(" 0 failed; 320 rows"), "{stdout}");
    assert_eq!(cells(&place).len(), NR_LONG);
    let ended = run_endings(&place);
    assert_eq!(ended.last().unwrap(), "done");
    assert!(ended.contains(&"died".to_owned()), "{ended:?}");
    let names = fs::read_dir(place.path("set")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_left_over = |name: &str| name.contains(".writing") || name.contains("broken");
    assert!(names.all(|name| !is_left_over(&name)));
}

#[test]
fn ctrl_c_keeps_finished_cells_and_reports_it() {
    let (place, args) = long();
    let mut running = RunningSweep::start(&place, &args);
    assert!(running.has_parts(&place, 1), "the sweep is too short to be interrupted");
    let kill = ["-INT".to_owned(), running.0.id().to_string()];
    assert!(Command::new("kill").args(kill).status().unwrap().success());
    let output = running.end();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{stdout} {stderr}");
    assert!(stdout.contains("cells left; the same command continues from there"), "{stdout}");
    assert_eq!(run_endings(&place), ["interrupted"]);
    let nr_done = cells(&place).len();
    assert!((1..NR_LONG).contains(&nr_done), "{nr_done}");
    let stdout = place.done(&args);
    assert!(
        stdout.contains(&format!("{} cells done, {nr_done} found", NR_LONG - nr_done)),
        "{stdout}"
    );
}

/// Digesting many traces takes as long as digesting a large one.
#[test]
fn ctrl_c_works_while_the_sweep_opens() {
    let place = small();
    let traces = " a.folio b.folio".repeat(20_000);
    let running =
        RunningSweep::start(&place, &format!("predict{traces} --kernel 6.12 --sweep new/set"));
    while !place.path("new/set/.lock").exists() {
        thread::sleep(Duration::from_millis(1));
    }
    let kill = ["-INT".to_owned(), running.0.id().to_string()];
    assert!(Command::new("kill").args(kill).status().unwrap().success());
    let output = running.end();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("the sweep was stopped; to continue, run the same"), "{stderr}");
    assert!(!place.path("new").exists(), "nothing was written");
}

#[test]
fn a_full_disk_ends_the_sweep_with_results_and_advice() {
    let (place, args) = long();
    fs::create_dir(place.path("set")).unwrap();
    let folio = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
    let script = format!(
        "mount -t tmpfs -o size=384k tmpfs set || exit 77\n\
         {folio} {args}; echo code $?\n\
         cp -r set full\n\
         mount -o remount,size=64m set\n\
         {folio} {args}; echo code $?\n\
         cp -r set whole\n"
    );
    let Some(output) = place.on_a_small_disk(&script) else { return };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.starts_with("code 2\n"), "{stdout} {stderr}");
    assert!(
        stderr.contains("No space left on device") && stderr.contains("of 320 cells are done"),
        "{stderr}"
    );
    assert!(stderr.contains("the same command continues from there"), "{stderr}");
    assert!(stdout.ends_with("code 0\n") && stdout.contains("320 rows"), "{stdout}");
    fs::rename(place.path("full"), place.path("full-set")).unwrap();
    fs::remove_dir_all(place.path("set")).unwrap();
    fs::rename(place.path("full-set"), place.path("set")).unwrap();
    let nr_kept = cells(&place).len();
    assert!((1..NR_LONG).contains(&nr_kept), "{nr_kept}");
    assert!(
        stdout.contains(&format!("{} cells done, {nr_kept} found", NR_LONG - nr_kept)),
        "{stdout}"
    );
    fs::remove_dir_all(place.path("set")).unwrap();
    fs::rename(place.path("whole"), place.path("set")).unwrap();
    assert_eq!(cells(&place).len(), NR_LONG);
}
