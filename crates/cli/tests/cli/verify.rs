//! `folio verify`: verdicts, failing commands, Ctrl-C. Settings of the system need root.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::run::{compile, has_large_folios};
use crate::support::{Place, text};

const SCAN: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan";

/// A setting of its own for the test that changes one: tests run side by side.
const SLEEP: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs";

/// A change that needs no rights, as it sets what is set: the runs are the same.
fn no_change() -> Option<String> {
    let Ok(now) = fs::read_to_string(SCAN) else {
        eprintln!("SKIPPED: {SCAN} is not there: this kernel has no transparent huge pages");
        return None;
    };
    Some(format!("--tune khugepaged.pages_to_scan={}", now.trim()))
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: changing a setting needs root");
    }
    is_root
}

#[test]
fn without_a_change_there_is_nothing_to_verify() {
    let said = Place::new().fails("verify -- true");
    assert!(said.contains("--tune thp.64K=always"), "{said}");
}

#[test]
fn large_text_is_verified_and_a_change_that_is_none_is_refused() {
    let place = Place::new();
    let said = place.fails("verify --text large -- true");
    assert!(said.contains("the changed run would be the same as the plain one"), "{said}");
    let said = place.fails("verify --text large --trace x.folio -- true");
    assert!(said.contains("--trace predicts only --tune"), "{said}");
    if !has_large_folios(&place) || !compile(&place, "-no-pie") {
        return;
    }
    let output = place.run("verify --text large --runs 3 --margin 99 --json -- ./p");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let effects = json["effects"].to_string();
    assert!(effects.contains("p: 8 MiB in 2M folios in the page cache"), "{effects}");
    assert_eq!(json["change"], "text large");
    assert_eq!(json["rows"][0]["nr_rounds"], 3);
}

#[test]
fn what_cannot_be_changed_or_run_is_told_before_a_round() {
    let Some(change) = no_change() else { return };
    let place = Place::new();
    for (words, expected) in [
        ("verify --tune thp.enabled=often -- true".to_owned(), "always, madvise, never"),
        ("verify --tune nothing=1 -- true".to_owned(), "expected thp.enabled"),
        (format!("verify {change} --runs 0 -- true"), "1..=100000"),
        (format!("verify {change} --time 5 -- true"), "such as 90s"),
        (format!("verify {change} -- /no/such/program"), "is it installed"),
        (format!("verify {change}"), "required"),
    ] {
        let said = place.fails(&words);
        assert!(said.contains(expected), "{words}: {said}");
    }
}

/// What the setting of folios of 32K is now.
fn setting_of_32k() -> Option<String> {
    let size = "/sys/kernel/mm/transparent_hugepage/hugepages-32kB/enabled";
    let Ok(text) = fs::read_to_string(size) else {
        eprintln!("SKIPPED: {size} is not there: Linux 6.8 is the first with it");
        return None;
    };
    Some(text.split(['[', ']']).nth(1).unwrap().to_owned())
}

#[test]
fn a_prediction_stands_beside_where_the_model_has_the_setting() {
    let place = Place::with_trace();
    let Some(now) = setting_of_32k() else { return };
    let words = format!("verify --tune thp.32K={now} --trace mix.folio --machine zen4 --runs 3");
    let output = place.run(&format!("{words} --json -- true"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // The change is none, so the model sees none.
    assert_eq!(json["prediction"]["difference_ns"], 0, "{json}");
    assert_eq!(json["prediction"]["ratio"], 1.0, "{json}");
    let output = place.run(&format!("{words} -- true"));
    let said = text(&output.stdout);
    assert!(said.contains("predicted: wall time +0.0% [+0.0 .. +0.0] (rules of"), "{said}");
    assert!(said.contains("rests on assumed costs"), "{said}");
    if let Some(change) = no_change() {
        let said =
            place.fails(&format!("verify {change} --trace mix.folio --machine zen4 -- true"));
        assert!(said.contains("the model has no setting khugepaged.pages_to_scan"), "{said}");
    }
    let said = place
        .fails(&format!("{words} --trace gone.folio -- true").replace("--trace mix.folio ", ""));
    assert!(said.contains("gone.folio"), "{said}");
}

#[test]
fn the_machine_that_calibrate_measured_is_known_and_the_default() {
    let place = Place::with_trace();
    let Some(now) = setting_of_32k() else { return };
    let machines = place.path("config/largefolio/machines");
    fs::create_dir_all(&machines).unwrap();
    let machine = "name = \"mine\"\ndescription = \"of a test\"\nbased-on = \"zen4\"\n";
    fs::write(machines.join("this.toml"), machine).unwrap();
    for machine in ["", "--machine this"] {
        let words = format!("verify --tune thp.32K={now} --trace mix.folio {machine} --runs 3");
        let mut command = place.command(&format!("{words} --json -- true"));
        let output = command.env("XDG_CONFIG_HOME", place.path("config")).output().unwrap();
        let said = text(&output.stderr);
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        assert_eq!(json["prediction"]["machine"], "mine", "{json}");
        assert_eq!(json["prediction"]["unusable"], serde_json::Value::Null, "{json}");
    }
}

#[test]
fn a_command_that_fails_is_an_error_with_its_exit_code() {
    let Some(change) = no_change() else { return };
    let said = Place::new().fails(&format!("verify {change} --runs 3 -- false"));
    assert!(said.contains("exited with 1") && said.contains("--show-output"), "{said}");
}

#[test]
fn the_same_command_twice_is_not_faster_by_ninety_nine_per_cent() {
    let Some(change) = no_change() else { return };
    let place = Place::new();
    let words = format!("verify {change} --runs 4 --margin 99 --json -- true");
    let output = place.run(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["verdict"], "not confirmed");
    assert_eq!(json["rows"][0]["quantity"], "wall");
    assert_eq!(json["rows"][0]["nr_rounds"], 4);
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("4 rounds are too few"), "{warnings}");
    let csv = text(&place.run(&words.replace("--json", "--csv")).stdout);
    assert!(csv.starts_with("quantity,unit,plain,"), "{csv}");
    assert_eq!(csv.lines().count(), 6);
}

#[test]
fn a_command_that_is_faster_with_the_change_is_confirmed() {
    if no_change().is_none() || !is_root() {
        return;
    }
    let now: u64 = fs::read_to_string(SLEEP).unwrap().trim().parse().unwrap();
    let place = Place::new();
    fs::write(
        place.path("job.sh"),
        format!(
            "[ $(cat {SLEEP}) = {now} ] || exit 0; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
        ),
    )
    .unwrap();
    let change = format!("--tune khugepaged.alloc_sleep_millisecs={}", now + 1);
    let output = place.run(&format!("verify {change} --runs 7 --metric user -- sh job.sh"));
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.contains("\nconfirmed: user time -"), "{said}");
    assert_eq!(fs::read_to_string(SLEEP).unwrap().trim(), now.to_string());
}

#[test]
fn ctrl_c_shows_the_rounds_so_far() {
    let Some(change) = no_change() else { return };
    let place = Place::new();
    let log = place.path("log");
    let words = format!("verify {change} --runs 100000 --json -- sh -c");
    let child = place
        .command(&words)
        .arg(format!("echo >>{}", log.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let nr_runs = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    assert!(
        (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            // Two to warm up, three rounds of two, and two of which the last may be stopped.
            nr_runs() >= 10
        }),
        "the command did not run"
    );
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["rows"][0]["nr_rounds"].as_u64().unwrap() >= 3, "{json}");
    assert!(json["warnings"].to_string().contains("stopped by a signal"), "{json}");
}
