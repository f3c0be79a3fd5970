//! `folio calibrate`: the file it writes, how that file is found, and what a check says about a
//! wrong one. No test asserts a time.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use largefolio_sim::replay::RESULTS_VERSION;
use serde_json::json;

use crate::schemas;
use crate::support::{Place, copy_program, hold_settings, text};

const ABSURD: &str = r#"
name = "absurd"
description = "every entry costs a second"
based-on = "cascadelake"

[costs.map_entry]
value = 1000000
unit = "us"
source = "made up"
assumed = true

[costs.fork_pmd]
value = 1000000
unit = "us"
source = "made up"
assumed = true
"#;

#[test]
fn the_file_is_written_whole_and_used_as_this_machine() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    // The user's home directory may have one.
    let mut command = place.command("predict mix.folio --machine this");
    let output = command.env("XDG_CONFIG_HOME", place.path("empty")).output().unwrap();
    let missing = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{missing}");
    assert!(missing.contains("this machine is not calibrated"), "{missing}");
    assert!(missing.contains("run folio calibrate"), "{missing}");

    let in_config = |args: &str| {
        let mut command = place.command(args);
        let output = command.env("XDG_CONFIG_HOME", place.path("config")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let stdout = in_config("calibrate --quick --dir .");
    assert!(stdout.contains("TLB reach") && stdout.contains("written:"), "{stdout}");
    let dir = place.path("config/largefolio/machines");
    let file = fs::read_to_string(dir.join("this.toml")).unwrap();
    assert!(file.contains("source = \"measured: "), "{file}");
    // The file was first written under another name, which is gone.
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    let json = in_config("predict mix.folio --machine this --json");
    assert!(json.contains("\"machine\": \"this\""), "{json}");
}

#[test]
fn curves_are_exported() {
    largefolio_testkit::only_in_test_all!("calibrates more than once");
    let _settings = hold_settings();
    let place = Place::new();
    let csv = place.done("calibrate --quick --dir . --csv -o quick.toml");
    assert!(csv.starts_with("side,folios,pages,what,ns,min,max,n\n"), "{csv}");
    assert!(csv.contains("\ndata,4K,64,spread,"), "{csv}");
    let quick = fs::read_to_string(place.path("quick.toml")).unwrap();
    assert!(
        quick.contains("nr = 0\n"),
        "a first estimate does not count as a calibration: {quick}"
    );
    fs::write(place.path("mean.toml"), quick.replace("nr = 0\n", "nr = 8\n")).unwrap();
    let stderr = place.fails("calibrate --quick --dir . -o mean.toml");
    assert!(
        stderr.contains("is the mean of 8 calibrations") && stderr.contains("--fresh"),
        "{stderr}"
    );
    assert!(fs::read_to_string(place.path("mean.toml")).unwrap().contains("nr = 8\n"));
}

#[test]
fn checks_the_output_before_measuring() {
    let place = Place::new();
    fs::write(place.path("old.toml"), "old").unwrap();
    for args in ["calibrate -o nowhere/this.toml", "calibrate -o old.toml/this.toml"] {
        let stderr = place.fails(args);
        assert!(stderr.contains("cannot write") && stderr.contains("--output"), "{stderr}");
    }
    let stderr = place.fails("calibrate --check --machine nowhere.toml");
    assert!(stderr.contains("nowhere.toml"), "{stderr}");
    assert_eq!(fs::read_to_string(place.path("old.toml")).unwrap(), "old");
}

#[test]
fn a_machine_with_absurd_costs_is_caught() {
    let _settings = hold_settings();
    let place = Place::new();
    fs::write(place.path("absurd.toml"), ABSURD).unwrap();
    let output = place.run("calibrate --check --quick --dir . --machine absurd.toml");
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("MISS, bound"), "{stdout}");
    assert!(stdout.contains("ratios are within their bounds"), "{stdout}");
}

/// Every operation in every size that this process may use: an operation without a comparison
/// proves nothing.
#[test]
fn a_check_has_a_row_for_every_operation() {
    let _settings = hold_settings();
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("only root has folios of every size");
        return;
    }
    let place = Place::new();
    let output = place.run("calibrate --check --quick --dir . --machine zen4 --json");
    let result: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let nr_of = |operation: &str| {
        rows.iter().filter(|row| row["operation"].as_str() == Some(operation)).count()
    };
    for operation in ["first touch", "fork, less fork without the region", "munmap"] {
        assert_eq!(nr_of(operation), 4, "{operation}: {rows:#?}");
    }
    assert_eq!((nr_of("munmap, child alive"), nr_of("store, child alive")), (4, 4), "{rows:#?}");
}

/// Twenty programs that were off by one point, of the CPU and version that `folio` will find.
fn earlier_programs(cpu: &str) -> String {
    let exact = |percent: f64| json!({"low": percent, "mid": percent, "high": percent});
    let pair = json!({"predicted": exact(-5.0), "measured": exact(-6.0)});
    let visit = json!({
        "version": RESULTS_VERSION, "time": 0, "kernel": "6.18", "nr_rounds": 9, "run_ns": 1e9,
        "settings": [{"setting": "thp.64K=always", "user": pair, "system": pair, "total": pair}],
    });
    let programs: serde_json::Map<_, _> =
        (0..20).map(|nr| (format!("program{nr}"), json!([visit]))).collect();
    json!({"cpu": cpu, "programs": programs}).to_string()
}

/// A machine file of this test, with `more` at its end, and twenty earlier programs.
struct Config(Place);

impl Config {
    fn new(more: &str) -> Self {
        let place = Place::with_trace();
        let machines = place.path("config/largefolio/machines");
        fs::create_dir_all(&machines).unwrap();
        let own = format!(
            "name = \"this\"\ndescription = \"a test\"\ncpu = \"a CPU\"\nbased-on = \
             \"zen4\"\n{more}"
        );
        fs::write(machines.join("this.toml"), own).unwrap();
        fs::write(machines.join("this.programs.json"), earlier_programs("a CPU")).unwrap();
        Self(place)
    }

    fn run(&self, args: &str) -> (Option<i32>, String, String) {
        let mut command = self.0.command(args);
        let output = command.env("XDG_CONFIG_HOME", self.0.path("config")).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    fn json(&self, args: &str) -> serde_json::Value {
        let (status, json, stderr) = self.run(args);
        assert_eq!(status, Some(0), "{args}: {stderr}");
        schemas::check(args, json.as_bytes());
        serde_json::from_str(&json).unwrap()
    }

    fn run_change(&self) -> [f64; 3] {
        let args = "predict mix.folio --kernel 6.12,7.2 --machine this --runtime 100ms --json";
        let change = &self.json(args)["rows"][1]["estimate"]["run_change"];
        ["low", "mid", "high"].map(|end| change[end].as_f64().unwrap())
    }
}

#[test]
fn the_errors_of_a_machine_widen_the_bounds_of_predictions() {
    let errors =
        "[errors]\ntotal = 0.5\nuser = 9\nsystem = 9\nnr_programs = 20\nsource = \"a test\"\n";
    let [low, mid, high] = Config::new("").run_change();
    let config = Config::new(errors);
    let after = config.run_change();
    // Half of 0.3 of the costs' bounds, and of two percent of the run.
    let by = |bounds: f64| 0.5 * (0.3 * bounds + 2.0);
    let expected = [mid - by(mid - low), mid, mid + by(high - mid)];
    assert!((0..3).all(|end| (after[end] - expected[end]).abs() < 1e-3), "{expected:?} {after:?}");
    let (_, text, _) =
        config.run("predict mix.folio --kernel 6.12,7.2 --machine this --runtime 100ms --full");
    assert!(text.contains("they held for nine of ten of 20 programs"), "{text}");
}

#[test]
fn the_table_judges_each_program_by_the_others() {
    let config = Config::new("");
    let table = config.json("calibrate --check --programs --json");
    // Each of the twenty was off by one point, half of the smallest scale.
    assert_eq!((&table["nr_visits"], &table["errors"]["total"]), (&json!(20), &json!(0.5)));
    let rows = table["rows"].as_array().unwrap();
    assert!(rows.len() == 100 && rows.iter().all(|row| row["is_within"] == true), "{rows:#?}");
    let (status, _, stderr) = config.run("calibrate --programs=nothing");
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("the bank has no program nothing; it has sort, "), "{stderr}");
}

#[test]
fn a_measured_program_adds_to_the_earlier_ones() {
    largefolio_testkit::only_in_test_all!("records, replays and measures a program");
    let _settings = hold_settings();
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("only root can change the folio sizes of a program");
        return;
    }
    let config = Config::new("");
    let result = config.json("calibrate --quick --programs=sieve --json");
    let rows = result["rows"].as_array().unwrap();
    let measured = rows.iter().filter(|row| row["program"] == "sieve");
    // Two or three settings, each with five rows.
    let nr = measured.map(|row| assert!(!row["is_within"].is_null(), "{row}")).count();
    assert!(nr == 10 || nr == 15, "{rows:#?}");
    assert_eq!((&result["nr_programs"], &result["nr_visits"]), (&json!(21), &json!(21)));
    let file = fs::read_to_string(config.0.path("config/largefolio/machines/this.toml")).unwrap();
    assert!(file.contains("[errors]\ntotal = 0.5\n"), "{file}");
    let again = config.json("calibrate --check --programs --json");
    assert_eq!(again["rows"], result["rows"]);
}

#[test]
fn without_rights_the_rest_is_measured_and_the_missing_named() {
    const NOBODY: u32 = 65_534;
    largefolio_testkit::only_in_test_all!("calibrates without rights");
    let _settings = hold_settings();
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("only root can become an unprivileged user");
        return;
    }
    let place = Place::new();
    // If other users cannot enter this directory, they cannot run the program there.
    let program = place.path("folio");
    copy_program(assert_cmd::cargo::cargo_bin!("folio"), &program);
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = std::process::Command::new(&program);
    command.current_dir(place.0.path()).uid(NOBODY).gid(NOBODY);
    command.args("calibrate --quick --dir . -o this.toml".split(' '));
    let output = command.output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("Not measured: folios of 32 KiB"), "{stdout}");
    assert!(stdout.contains("needs root: run folio calibrate as root"), "{stdout}");
    assert!(place.path("this.toml").exists());
}
