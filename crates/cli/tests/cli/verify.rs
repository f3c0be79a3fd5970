//! `folio verify`: verdicts, failing commands, servers, Ctrl-C. System settings need root.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::run::{compile, has_large_folios};
use crate::support::{Place, hold_settings, text};

/// A setting that only this test changes, because tests run in parallel.
const SLEEP: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs";

/// A change that needs no privileges and has no effect.
const NO_CHANGE: &str = "--env LARGEFOLIO_TEST=1";

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        largefolio_testkit::skipped!("changing a setting needs root");
    }
    is_root
}

/// Limits of rounds and time, CPU time as the metric, and progress lines without a terminal.
#[test]
fn rounds_are_bounded_by_time_too_and_say_how_far_they_are() {
    let place = Place::new();
    let run = |words: &str| {
        let mut command = place.command(&format!("verify --env FOLIO_TEST=1 {words}"));
        command.env("LARGEFOLIO_PROGRESS_MS", "20").output().unwrap()
    };
    let output = run("--runs 3 --time 10m --metric cpu --json -- sleep 0.05");
    let said = text(&output.stderr);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["rounds"].as_array().unwrap().len(), 3, "{said}");
    assert!(text(&output.stdout).contains("\"cpu\""), "{result}");
    assert!(
        said.lines()
            .any(|line| line.starts_with("folio: rounds: ") && line.contains(" of 4 after")),
        "{said}"
    );
    let output = run("--runs 100000 --within 2s -- sleep 0.02");
    let said = text(&output.stdout);
    assert!(said.contains("or at the end of --within, after"), "{said} {}", text(&output.stderr));
    let output = run("--within 1s -- sleep 9");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("before the first round was complete"));
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
    assert!(said.contains("--trace predicts only changes made with --tune"), "{said}");
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
    let change = NO_CHANGE;
    let place = Place::new();
    for (words, expected) in [
        ("verify --tune thp.enabled=often -- true".to_owned(), "always, madvise, never"),
        ("verify --tune nothing=1 -- true".to_owned(), "expected thp.enabled"),
        (format!("verify {change} --runs 0 -- true"), "from 1 to 100000"),
        (format!("verify {change} --time 5 -- true"), "such as 90s"),
        (format!("verify {change} -- /no/such/program"), "is it installed"),
        (format!("verify {change}"), "required"),
        (
            format!("verify {change} --metric wal -- true"),
            "expected wall, cpu, user, system, minor faults, major faults, memory, or a shell",
        ),
        (format!("verify {change} --metric /bin/x -- true"), "--better higher or --better lower"),
        (format!("verify {change} --metric-pattern ( -- true"), "--metric-pattern"),
        (
            format!("verify {change} --metric-pattern elapsed:([0-9]+),[0-9]+tps,tps -- true"),
            "'elapsed' means less is better, 'tps' means more is better: which one is the metric? \
             Add --better higher or --better lower",
        ),
        (format!("verify {change} --better higher -- true"), "add --metric-pattern"),
        (format!("verify {change} --fail-if wall -- true"), "such as wall>+2%"),
        (
            format!("verify {change} --fail-if tps>2% -- true"),
            "no quantity tps; expected one of wall",
        ),
        (format!("verify {change} --server x -- true"), "--ready"),
        (format!("verify {change} --server 'x --ready true -- true"), "a quote is not closed"),
        (format!("verify {change} {change} -- true"), "given twice"),
        ("verify --env X -- true".to_owned(), "NAME=VALUE"),
        (format!("verify {change} --server x --ready // -- true"), "an empty pattern"),
    ] {
        let said = place.fails(&words);
        assert!(said.contains(expected), "{words}: {said}");
    }
}

fn other_value(kib: u32) -> Option<&'static str> {
    let size = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled");
    let Ok(text) = fs::read_to_string(&size) else {
        largefolio_testkit::skipped!("{size} is not there: Linux 6.8 is the first with it");
        return None;
    };
    Some(if text.contains("[never]") { "madvise" } else { "never" })
}

#[test]
fn a_change_that_is_none_is_refused_before_anything_runs() {
    let _settings = hold_settings();
    let place = Place::new();
    let said = place.fails("verify --env COLUMNS=100 -- touch made");
    assert!(said.contains("the environment already has this value"), "{said}");
    let size = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    if let Ok(text) = fs::read_to_string(size) {
        let now = text.split(['[', ']']).nth(1).unwrap();
        let said = place.fails(&format!("verify --tune thp.64K={now} -- touch made"));
        assert!(said.contains(&format!("--tune thp.64K={now}: it is already {now:?}")), "{said}");
    }
    assert!(!place.path("made").exists());
}

#[test]
fn a_prediction_stands_beside_where_the_model_has_the_setting() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    let Some(other) = other_value(32).filter(|_| is_root()) else { return };
    let words = format!("verify --tune thp.32K={other} --trace mix.folio --machine zen4 --runs 3");
    let output = place.run(&format!("{words} --json -- true"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // A change that affects nothing in the trace, and no round of `true`.
    assert_eq!(json["prediction"]["difference_ns"], 0, "{json}");
    assert_eq!(json["prediction"]["ratio"], 1.0, "{json}");
    assert_eq!(json["verdict"], "not proved", "{json}");
    assert!(json["prediction"]["cannot_tell"].is_string(), "{json}");
    let output = place.run(&format!("{words} -- true"));
    let said = text(&output.stdout);
    assert!(said.contains("predicted: wall time +0.0% [+0.0 .. +0.0] (rules of"), "{said}");
    assert!(said.contains("depends on assumed costs"), "{said}");
    let none = "--tune khugepaged.pages_to_scan=4095 --trace mix.folio --machine zen4";
    let said = place.fails(&format!("verify {none} -- true"));
    assert!(
        said.contains("the model does not know the setting khugepaged.pages_to_scan"),
        "{said}"
    );
    let said = place
        .fails(&format!("{words} --trace gone.folio -- true").replace("--trace mix.folio ", ""));
    assert!(said.contains("gone.folio"), "{said}");
}

#[test]
fn the_machine_that_calibrate_measured_is_known_and_the_default() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    let Some(other) = other_value(16).filter(|_| is_root()) else { return };
    let machines = place.path("config/largefolio/machines");
    fs::create_dir_all(&machines).unwrap();
    let machine = "name = \"mine\"\ndescription = \"of a test\"\nbased-on = \"zen4\"\n";
    fs::write(machines.join("this.toml"), machine).unwrap();
    for machine in ["", "--machine this"] {
        let words = format!("verify --tune thp.16K={other} --trace mix.folio {machine} --runs 3");
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
    let change = NO_CHANGE;
    let said = Place::new().fails(&format!("verify {change} --runs 3 -- false"));
    assert!(said.contains("exited with 1") && said.contains("--show-output"), "{said}");
}

#[test]
fn the_same_command_twice_is_not_faster_by_ninety_nine_per_cent() {
    let place = Place::new();
    let words = format!("verify {NO_CHANGE} --runs 10 --margin 99 --json -- true");
    let output = place.run(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["schema_version"], &json["verdict"]), (&2.into(), &"not confirmed".into()));
    assert_eq!(json["rows"][0]["quantity"], "wall");
    assert_eq!(json["rows"][0]["nr_rounds"], 10);
    assert_eq!(json["environment"], serde_json::json!(["LARGEFOLIO_TEST=1"]));
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("the change may not have taken effect"), "{warnings}");
    let csv = text(&place.run(&words.replace("--json", "--csv")).stdout);
    assert!(csv.starts_with("quantity,unit,plain,"), "{csv}");
    assert!(csv.lines().count() >= 6, "{csv}");
    let few = text(&place.run(&words.replace("--runs 10", "--runs 9")).stdout);
    let few: serde_json::Value = serde_json::from_str(&few).unwrap();
    assert_eq!(few["verdict"], "inconclusive");
    assert!(few["warnings"].to_string().contains("9 rounds are too few"), "{few}");
}

#[test]
fn limits_decide_the_exit_status() {
    let place = Place::new();
    let of = |limit: &str| {
        let words = format!("verify {NO_CHANGE} --runs 10 --metric-pattern n=([0-9]+)");
        let mut command = place.command(&words);
        command.args(["--better", "lower", "--fail-if", limit, "--", "sh", "-c"]);
        let output = command.arg("echo n=10$LARGEFOLIO_TEST").output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout))
    };
    // 10 without the variable and 101 with it: 10.1 times as much.
    let (code, said) = of("metric>+5%");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("failed: --fail-if metric>+5%") && said.contains("worse"), "{said}");
    assert!(said.contains("), lower is better: worse\n"), "{said}");
    let (code, said) = of("metric>+1000%");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("passed: --fail-if metric>+1000%"), "{said}");
    let (code, said) = of("major faults>+10%");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn an_open_limit_says_why_and_few_rounds_have_a_range() {
    let place = Place::new();
    let words = format!("verify {NO_CHANGE} --runs 3 --fail-if wall>+2% -- true");
    let output = place.run(&words);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = "open: --fail-if wall>+2%: 3 rounds have a value for it, but 10 are needed";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("ratio [range]") && !said.contains("95%"), "{said}");
}

#[test]
fn what_the_command_writes_is_no_part_of_the_result() {
    let place = Place::new();
    for more in ["", "--metric-pattern tps=([0-9]+)"] {
        let words =
            format!("verify {NO_CHANGE} --runs 3 --show-output --json {more} -- echo tps=7");
        let output = place.run(&words);
        let result: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert!(result.is_ok(), "{}", text(&output.stdout));
        assert_eq!(text(&output.stderr).matches("tps=7").count(), 8, "{more}");
    }
}

#[test]
fn a_setting_that_another_folio_has_changed_is_not_taken_for_the_systems() {
    let _settings = hold_settings();
    let Ok(file) = fs::File::open(SLEEP) else {
        largefolio_testkit::skipped!("{SLEEP} is not there");
        return;
    };
    file.try_lock().unwrap();
    let now = fs::read_to_string(SLEEP).unwrap();
    let change = format!("--tune khugepaged.alloc_sleep_millisecs={}", now.trim());
    let said = Place::new().fails(&format!("verify {change} -- true"));
    assert!(said.contains("another folio process has changed it temporarily"), "{said}");
    file.unlock().unwrap();
    let said = Place::new().fails(&format!("verify {change} -- true"));
    assert!(said.contains("so both runs would be the same"), "{said}");
}

#[test]
fn a_verdict_can_be_about_faults() {
    let place = Place::new();
    // Every second changed run has a plain run's faults; for a compared metric, that drops no
    // round.
    let script = "echo >>n; [ $LARGEFOLIO_TEST ] && [ $(($(wc -l <n) / 2 % 2)) = 0 ] && exit 0; \
                  v=$(head -c 4000000 /dev/zero | tr '\\0' x)";
    let of = |metric: &str| {
        let mut command = place.command(&format!("verify {NO_CHANGE} --runs 20 --json --metric"));
        command.args([metric, "--", "sh", "-c", script]).output().unwrap()
    };
    let output = of("minor faults");
    let said = text(&output.stderr);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!((&json["metric"], &json["better"]), (&"minor faults".into(), &"lower".into()));
    assert_eq!((&json["nr_rounds"], &json["nr_counted"]), (&20.into(), &20.into()));
    let row = json["rows"].as_array().unwrap().iter().find(|row| row["quantity"] == "minor faults");
    assert_eq!(row.unwrap()["nr_rounds"], 20);
    let said = text(&of("large folios").stderr);
    assert!(said.contains("neither more nor fewer is inherently better"), "{said}");
    let said = text(&of("server memory").stderr);
    assert!(said.contains("there is no server"), "{said}");
}

#[test]
fn a_command_that_is_faster_with_the_change_is_confirmed() {
    let _settings = hold_settings();
    if !is_root() || !std::path::Path::new(SLEEP).exists() {
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
    let words = format!("verify {change} --metric user -- sh job.sh");
    let output = place.run(&words.replace("--metric", "--runs 10 --metric"));
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.contains("\nconfirmed: user time -"), "{said}");
    assert_eq!(fs::read_to_string(SLEEP).unwrap().trim(), now.to_string());
    let output = place.run(&words.replace("--metric", "--runs 9 --metric"));
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(said.contains("fewer than 10 rounds cannot decide"), "{said}");
}

/// A server that reads its answers from a file and writes its pid to `pid`.
const SERVER: &str = "echo $$ >pid; echo ${LARGEFOLIO_TEST:-5} >answer; echo up; \
                      trap 'echo ended >>log; exit 0' TERM; while :; do sleep 0.01; done";

fn is_gone(place: &Place) -> bool {
    let pid = fs::read_to_string(place.path("pid")).unwrap();
    (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    })
}

fn with_server(place: &Place, more: &str) -> std::process::Command {
    fs::write(place.path("server.sh"), SERVER).unwrap();
    let words = format!("verify --env LARGEFOLIO_TEST=7 {more} --json --server");
    let mut command = place.command(&words);
    command.args(["sh server.sh", "--ready", "/^up$/", "--metric", "cat answer", "--better"]);
    command.args(["higher", "--prepare", "test -s answer", "--"]);
    command
}

#[test]
fn a_server_is_changed_and_its_load_is_not() {
    let place = Place::new();
    let output = with_server(&place, "--runs 20")
        .args(["sh", "-c", "test -z \"$LARGEFOLIO_TEST\" && test -s answer"])
        .output()
        .unwrap();
    let said = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["verdict"], &json["better"]), (&"confirmed".into(), &"higher".into()));
    assert_eq!(
        (&json["rows"][0]["plain"], &json["rows"][0]["changed"]),
        (&5.0.into(), &7.0.into())
    );
    let names = json["rows"].to_string();
    for name in ["server user", "server system", "server memory", "\"wall\""] {
        assert!(names.contains(name), "{name}: {names}");
    }
    // 20 rounds of two, and one untimed round, or two on a noisy machine. Each server ended on
    // request, and none was killed.
    let nr = fs::read_to_string(place.path("log")).unwrap().lines().count();
    assert!([42, 44].contains(&nr), "{nr}");
    assert!(is_gone(&place));
}

#[test]
fn nothing_of_a_server_is_left_by_ctrl_c_and_by_sigkill() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let place = Place::new();
        let mut child = with_server(&place, "--runs 100")
            .args(["sh", "-c", "echo >>loads; sleep 1000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_up = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            place.path("loads").exists()
        });
        assert!(is_up, "the load was never started");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        child.wait().unwrap();
        assert!(is_gone(&place), "{signal:?}");
    }
}

#[test]
fn a_command_that_left_its_group_is_ended_by_ctrl_c() {
    for before in ["timeout 1000", "setsid", "timeout 1000 setsid"] {
        let place = Place::new();
        let mut child = place
            .command(&format!("verify {NO_CHANGE} -- {before} sh -c"))
            .arg("echo $$ >new; mv new pid; exec sleep 1000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_up = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            place.path("pid").exists()
        });
        assert!(is_up, "{before}: the command was never started");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let is_gone = is_gone(&place);
        if !is_gone {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        assert!(is_gone, "{before}");
    }
}

#[test]
fn a_daemon_without_server_is_told_first() {
    let place = Place::new();
    // The file of the previous run names a process that has ended.
    let script = "rm -f pid; setsid sh -c 'echo $$ >pid; exec sleep 1000' & \
                  until grep -qs sleep /proc/$(cat pid 2>/dev/null)/comm; do sleep 0.01; done";
    let words = format!("verify {NO_CHANGE} --runs 2 -- sh -c");
    let output = place.command(&words).arg(script).output().unwrap();
    let said = text(&output.stdout);
    let first = said.lines().nth(1).unwrap_or_default();
    assert!(first.contains("left sleep running") && first.contains("--server"), "{said}");
    assert!(is_gone(&place));
}

#[test]
fn ctrl_c_shows_the_rounds_so_far() {
    let change = NO_CHANGE;
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
            // Two warm-up runs, three rounds of two, and two runs, the last of which may be
            // interrupted.
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
