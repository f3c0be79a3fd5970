//! `folio maps --stalls`: waits that a test causes, signals, users.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::limits::MemoryGroup;
use crate::schemas;
use crate::support::{Place, text};

/// Where tracefs is mounted, if anywhere; folio does not need that.
const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// A hanging test fails instead.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cat that reads a file of 256 MiB again and again in a control group of 32 MiB.
struct Reader(Child);

impl Reader {
    fn start(place: &Place, group: &MemoryGroup) -> Self {
        let file = fs::File::create(place.path("large")).unwrap();
        file.set_len(256 << 20).unwrap();
        let path = place.path("large").display().to_string();
        let script = format!("{}; exec cat $(yes {path} | head -10000) >/dev/null", group.joins());
        let reader = Self(Command::new("sh").args(["-c", &script]).spawn().unwrap());
        let comm = format!("/proc/{}/comm", reader.0.id());
        wait_until(|| fs::read_to_string(&comm).is_ok_and(|name| name == "cat\n"));
        reader
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether tracing is possible here; says why not.
fn can_trace(place: &Place) -> bool {
    let output = place.run("maps --stalls --for 1s");
    let stderr = text(&output.stderr);
    if output.status.code() == Some(0) {
        return true;
    }
    let is_known = ["needs root", "PID namespace", "has no tracefs", "reports neither"]
        .iter()
        .any(|why| stderr.contains(why));
    assert!(is_known, "{stderr}");
    largefolio_testkit::skipped!("{stderr}");
    false
}

#[test]
fn reclaim_at_a_limit_is_seen_and_belongs_to_its_process() {
    let place = Place::new();
    let Some(group) = MemoryGroup::new("reclaim_is_seen", 32 << 20) else { return };
    if !can_trace(&place) {
        return;
    }
    let reader = Reader::start(&place, &group);
    let args = "maps --name cat --stalls --for 2s --json";
    let json = place.done(args);
    schemas::check(args, json.as_bytes());
    let json: Value = serde_json::from_str(&json).unwrap();
    let is_reclaim = |waits: &&Value| waits["kind"] == "group_reclaim" && waits["order"] == 0;
    let processes = json["processes"].as_array().unwrap();
    let waits: Vec<&Value> =
        processes.iter().filter_map(|one| one["waits"].as_array()).flatten().collect();
    let reclaim: Vec<&&Value> = waits.iter().filter(|waits| is_reclaim(waits)).collect();
    assert!(!reclaim.is_empty(), "{json}");
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    for process in processes {
        assert_eq!(process["name"], "cat", "{process}");
        // One thread cannot wait longer than it was watched.
        assert!(number(process, "total_ns") <= number(&json, "elapsed_ns"), "{process}");
    }
    for waits in waits {
        let buckets = waits["histogram"].as_array().unwrap();
        let sum: u64 = buckets.iter().map(|bucket| number(bucket, "count")).sum();
        assert_eq!(sum, number(waits, "count"), "{waits}");
        assert!(number(waits, "p50_ns") <= number(waits, "p99_ns"), "{waits}");
        assert!(number(waits, "p99_ns") <= number(waits, "max_ns"), "{waits}");
    }
    // Another process did not wait, but the answer says that some did.
    let own = std::process::id();
    let shown = place.done(&format!("maps {own} --stalls --for 1s"));
    assert!(shown.starts_with("Nothing waited for memory in"), "{shown}");
    assert!(shown.contains("Processes that were not selected waited"), "{shown}");
    let shown = place.done("maps --name cat --stalls --for 1s");
    assert!(shown.starts_with("cat (") && shown.contains(" waited "), "{shown}");
    assert!(shown.contains("What would help") && shown.contains("control group"), "{shown}");
    let csv = place.done("maps --stalls --for 1s --csv");
    assert!(csv.contains(",cat,group_reclaim,4096,"), "{csv}");
    drop(reader);
}

/// Starts a watch of an hour; returns it with its instance.
fn start_watch(place: &Place) -> Option<(Child, PathBuf)> {
    if !can_trace(place) {
        return None;
    }
    if !Path::new(INSTANCES).is_dir() {
        largefolio_testkit::skipped!("tracefs is not mounted, so instances cannot be seen");
        return None;
    }
    let mut command = place.command("maps --stalls --for 1h");
    let folio = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let instance = Path::new(INSTANCES).join(format!("folio-stalls-{}", folio.id()));
    wait_until(|| fs::read_to_string(instance.join("tracing_on")).is_ok_and(|on| on == "1\n"));
    Some((folio, instance))
}

fn wait_until(is_true: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < PATIENCE, "this takes too long");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupt_ends_the_watch_early_and_shows_what_was_seen() {
    let place = Place::new();
    let Some((folio, instance)) = start_watch(&place) else { return };
    let pid = folio.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = folio.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("Not seen: page faults"), "{}", text(&output.stdout));
    assert!(!instance.exists());
}

#[test]
fn nothing_remains_of_a_killed_watch() {
    let place = Place::new();
    let Some((mut folio, instance)) = start_watch(&place) else { return };
    folio.kill().unwrap();
    folio.wait().unwrap();
    wait_until(|| !instance.exists());
}

#[test]
fn a_watch_of_a_process_ends_with_it() {
    let place = Place::new();
    if !can_trace(&place) {
        return;
    }
    let mut child = Command::new("sleep").arg("2").spawn().unwrap();
    let waiter = place.command(&format!("maps {} --stalls --for 1h", child.id())).output();
    assert_eq!(waiter.unwrap().status.code(), Some(0));
    child.wait().unwrap();
}

#[test]
fn what_cannot_be_watched_is_an_error_with_its_remedy() {
    let place = Place::new();
    let output = place.command_of_nobody("maps --stalls --for 5s").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--stalls needs root"), "{stderr}");
    assert!(stderr.contains("maps --stalls --for 5s"), "the exact command: {stderr}");
    let refused = place.fails("maps --for 5s --all");
    assert!(refused.contains("--stalls"), "{refused}");
    assert!(place.fails("maps --stalls --watch").contains("cannot be used with"));
    assert!(place.fails("maps --stalls --for 1ms").contains("expected seconds"));
    if can_trace(&place) {
        let refused = place.fails("maps 4194304 --stalls");
        assert!(refused.contains("no process 4194304 exists"), "{refused}");
        let refused = place.fails("maps --name no-such-name --stalls");
        assert!(refused.contains("no process is called no-such-name"), "{refused}");
    }
}
