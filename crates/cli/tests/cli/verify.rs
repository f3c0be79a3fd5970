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
fn rounds_are_bounded_by_time_and_report_progress() {
    let place = Place::new();
    let run = |args: &str| {
        let mut command = place.command(&format!("verify --env FOLIO_TEST=1 {args}"));
        command.env("LARGEFOLIO_PROGRESS_MS", "20").output().unwrap()
    };
    let output = run("--runs 3 --time 10m --metric cpu --json -- sleep 0.05");
    let stderr = text(&output.stderr);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["rounds"].as_array().unwrap().len(), 3, "{stderr}");
    assert!(text(&output.stdout).contains("\"cpu\""), "{result}");
    assert!(
        stderr
            .lines()
            .any(|line| line.starts_with("folio: rounds: ") && line.contains(" of 4 after")),
        "{stderr}"
    );
    let output = run("--runs 100000 --within 2s -- sleep 0.02");
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("or at the end of --within, after"),
        "{stdout} {}",
        text(&output.stderr)
    );
    let output = run("--within 1s -- sleep 9");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("before the first round was complete"));
}

#[test]
fn without_a_change_there_is_nothing_to_verify() {
    let stderr = Place::new().fails("verify -- true");
    assert!(stderr.contains("--tune thp.64K=always"), "{stderr}");
}

#[test]
fn verifies_large_text_and_refuses_a_change_without_effect() {
    let place = Place::new();
    let stderr = place.fails("verify --text large -- true");
    assert!(stderr.contains("the changed run would be the same as the plain one"), "{stderr}");
    let stderr = place.fails("verify --text large --trace x.folio -- true");
    assert!(stderr.contains("--trace predicts only changes made with --tune"), "{stderr}");
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
fn checks_the_change_and_the_command_before_a_round() {
    let change = NO_CHANGE;
    let place = Place::new();
    for (args, expected) in [
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
        let stderr = place.fails(&args);
        assert!(stderr.contains(expected), "{args}: {stderr}");
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
fn refuses_a_change_without_effect_before_any_run() {
    let _settings = hold_settings();
    let place = Place::new();
    let stderr = place.fails("verify --env COLUMNS=100 -- touch made");
    assert!(stderr.contains("the environment already has this value"), "{stderr}");
    let size = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    if let Ok(text) = fs::read_to_string(size) {
        let now = text.split(['[', ']']).nth(1).unwrap();
        let stderr = place.fails(&format!("verify --tune thp.64K={now} -- touch made"));
        assert!(
            stderr.contains(&format!("--tune thp.64K={now}: it is already {now:?}")),
            "{stderr}"
        );
    }
    assert!(!place.path("made").exists());
}

#[test]
fn predicts_changes_of_modelled_settings() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    let Some(other) = other_value(32).filter(|_| is_root()) else { return };
    let args = format!("verify --tune thp.32K={other} --trace mix.folio --machine zen4 --runs 3");
    let output = place.run(&format!("{args} --json -- true"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // A change that affects nothing in the trace, and no round of `true`.
    assert_eq!(json["prediction"]["difference_ns"], 0, "{json}");
    assert_eq!(json["prediction"]["ratio"], 1.0, "{json}");
    assert_eq!(json["verdict"], "not proved", "{json}");
    assert!(json["prediction"]["cannot_tell"].is_string(), "{json}");
    let output = place.run(&format!("{args} -- true"));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("predicted, with the rules of "), "{stdout}");
    for time in ["wall", "user", "system"] {
        let line =
            stdout.lines().find(|line| line.trim_start().starts_with(&format!("{time} time ")));
        let line = line.unwrap_or_else(|| panic!("no {time}: {stdout}"));
        // A run of `true` may take none of a time that is counted in ticks.
        assert!(line.contains("+0.0% [+0.0 .. +0.0]") || line.contains("took none"), "{line}");
    }
    assert!(stdout.contains("depends on assumed costs"), "{stdout}");
    let none = "--tune khugepaged.pages_to_scan=4095 --trace mix.folio --machine zen4";
    let stderr = place.fails(&format!("verify {none} -- true"));
    assert!(
        stderr.contains("the model does not know the setting khugepaged.pages_to_scan"),
        "{stderr}"
    );
    let stderr = place
        .fails(&format!("{args} --trace gone.folio -- true").replace("--trace mix.folio ", ""));
    assert!(stderr.contains("gone.folio"), "{stderr}");
}

#[test]
fn the_calibrated_machine_is_the_default() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    let Some(other) = other_value(16).filter(|_| is_root()) else { return };
    let machines = place.path("config/largefolio/machines");
    fs::create_dir_all(&machines).unwrap();
    let machine = "name = \"mine\"\ndescription = \"of a test\"\nbased-on = \"zen4\"\n";
    fs::write(machines.join("this.toml"), machine).unwrap();
    for machine in ["", "--machine this"] {
        let args = format!("verify --tune thp.16K={other} --trace mix.folio {machine} --runs 3");
        let mut command = place.command(&format!("{args} --json -- true"));
        let output = command.env("XDG_CONFIG_HOME", place.path("config")).output().unwrap();
        let stderr = text(&output.stderr);
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
        assert_eq!(json["prediction"]["machine"], "mine", "{json}");
        assert_eq!(json["prediction"]["clipped"], serde_json::Value::Null, "{json}");
    }
}

#[test]
fn a_failing_command_is_an_error_with_its_exit_code() {
    let change = NO_CHANGE;
    let stderr = Place::new().fails(&format!("verify {change} --runs 3 -- false"));
    assert!(stderr.contains("exited with 1") && stderr.contains("--show-output"), "{stderr}");
}

#[test]
fn the_same_command_twice_is_not_faster_by_ninety_nine_per_cent() {
    let place = Place::new();
    let args = format!("verify {NO_CHANGE} --runs 10 --margin 99 --json -- true");
    let output = place.run(&args);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["schema_version"], &json["verdict"]), (&3.into(), &"not confirmed".into()));
    assert_eq!(json["rows"][0]["quantity"], "wall");
    assert_eq!(json["rows"][0]["nr_rounds"], 10);
    assert_eq!(json["environment"], serde_json::json!(["LARGEFOLIO_TEST=1"]));
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("the change may not have taken effect"), "{warnings}");
    let csv = text(&place.run(&args.replace("--json", "--csv")).stdout);
    assert!(csv.starts_with("quantity,unit,plain,"), "{csv}");
    assert!(csv.lines().count() >= 6, "{csv}");
    let few = text(&place.run(&args.replace("--runs 10", "--runs 9")).stdout);
    let few: serde_json::Value = serde_json::from_str(&few).unwrap();
    assert_eq!(few["verdict"], "inconclusive");
    assert!(few["warnings"].to_string().contains("9 rounds are too few"), "{few}");
}

#[test]
fn limits_decide_the_exit_status() {
    let place = Place::new();
    let fail_if = |limit: &str| {
        let args = format!("verify {NO_CHANGE} --runs 10 --metric-pattern n=([0-9]+)");
        let mut command = place.command(&args);
        command.args(["--better", "lower", "--fail-if", limit, "--", "sh", "-c"]);
        let output = command.arg("echo n=10$LARGEFOLIO_TEST").output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout))
    };
    // 10 without the variable and 101 with it: 10.1 times as much.
    let (code, stdout) = fail_if("metric>+5%");
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stdout.contains("failed: --fail-if metric>+5%") && stdout.contains("worse"),
        "{stdout}"
    );
    assert!(stdout.contains("), lower is better: worse\n"), "{stdout}");
    let (code, stdout) = fail_if("metric>+1000%");
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("passed: --fail-if metric>+1000%"), "{stdout}");
    let (code, stdout) = fail_if("major faults>+10%");
    assert_eq!(code, 0, "{stdout}");
}

#[test]
fn an_undecided_limit_has_a_reason_and_few_rounds_have_a_range() {
    let place = Place::new();
    let args = format!("verify {NO_CHANGE} --runs 3 --fail-if wall>+2% -- true");
    let output = place.run(&args);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let why = "open: --fail-if wall>+2%: 3 rounds have a value for it, but 10 are needed";
    assert!(stdout.contains(why), "{stdout}");
    assert!(stdout.contains("ratio [range]") && !stdout.contains("95%"), "{stdout}");
}

#[test]
fn output_of_the_command_is_not_in_the_result() {
    let place = Place::new();
    for more in ["", "--metric-pattern tps=([0-9]+)"] {
        let args = format!("verify {NO_CHANGE} --runs 3 --show-output --json {more} -- echo tps=7");
        let output = place.run(&args);
        let result: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert!(result.is_ok(), "{}", text(&output.stdout));
        // A round that does not count, and three that do. If sampling a run would disturb it, each
        // arm runs once more.
        let is_sampled_apart = text(&output.stdout).contains("one extra untimed run of each arm");
        let nr_runs = 2 * (1 + 3 + usize::from(is_sampled_apart));
        assert_eq!(text(&output.stderr).matches("tps=7").count(), nr_runs, "{more}");
    }
}

#[test]
fn ignores_a_setting_that_another_folio_changed() {
    let _settings = hold_settings();
    let Ok(file) = fs::File::open(SLEEP) else {
        largefolio_testkit::skipped!("{SLEEP} is not there");
        return;
    };
    file.try_lock().unwrap();
    let now = fs::read_to_string(SLEEP).unwrap();
    let change = format!("--tune khugepaged.alloc_sleep_millisecs={}", now.trim());
    let stderr = Place::new().fails(&format!("verify {change} -- true"));
    assert!(stderr.contains("another folio process has changed it temporarily"), "{stderr}");
    file.unlock().unwrap();
    let stderr = Place::new().fails(&format!("verify {change} -- true"));
    assert!(stderr.contains("so both runs would be the same"), "{stderr}");
}

#[test]
fn a_verdict_can_be_about_faults() {
    let place = Place::new();
    // Every second changed run has a plain run's faults; for a compared metric, that drops no
    // round.
    let script = "echo >>n; [ $LARGEFOLIO_TEST ] && [ $(($(wc -l <n) / 2 % 2)) = 0 ] && exit 0; \
                  v=$(head -c 4000000 /dev/zero | tr '\\0' x)";
    let run_metric = |metric: &str| {
        let mut command = place.command(&format!("verify {NO_CHANGE} --runs 20 --json --metric"));
        command.args([metric, "--", "sh", "-c", script]).output().unwrap()
    };
    let output = run_metric("minor faults");
    let stderr = text(&output.stderr);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&stderr);
    assert_eq!((&json["metric"], &json["better"]), (&"minor faults".into(), &"lower".into()));
    assert_eq!((&json["nr_rounds"], &json["nr_counted"]), (&20.into(), &20.into()));
    let row = json["rows"].as_array().unwrap().iter().find(|row| row["quantity"] == "minor faults");
    assert_eq!(row.unwrap()["nr_rounds"], 20);
    let stderr = text(&run_metric("large folios").stderr);
    assert!(stderr.contains("neither more nor fewer is inherently better"), "{stderr}");
    let stderr = text(&run_metric("server memory").stderr);
    assert!(stderr.contains("there is no server"), "{stderr}");
}

#[test]
fn a_faster_command_is_confirmed() {
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
    let args = format!("verify {change} --metric user -- sh job.sh");
    let output = place.run(&args.replace("--metric", "--runs 10 --metric"));
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("\nconfirmed: user time -"), "{stdout}");
    assert_eq!(fs::read_to_string(SLEEP).unwrap().trim(), now.to_string());
    let output = place.run(&args.replace("--metric", "--runs 9 --metric"));
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("fewer than 10 rounds cannot decide"), "{stdout}");
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
    let args = format!("verify --env LARGEFOLIO_TEST=7 {more} --json --server");
    let mut command = place.command(&args);
    command.args(["sh server.sh", "--ready", "/^up$/", "--metric", "cat answer", "--better"]);
    command.args(["higher", "--prepare", "test -s answer", "--"]);
    command
}

#[test]
fn the_change_applies_to_the_server_and_not_to_its_load() {
    let place = Place::new();
    let output = with_server(&place, "--runs 20")
        .args(["sh", "-c", "test -z \"$LARGEFOLIO_TEST\" && test -s answer"])
        .output()
        .unwrap();
    let printed = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
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
fn ctrl_c_ends_a_command_outside_its_process_group() {
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
fn suggests_server_for_a_daemon() {
    let place = Place::new();
    // The file of the previous run names a process that has ended.
    let script = "rm -f pid; setsid sh -c 'echo $$ >pid; exec sleep 1000' & \
                  until grep -qs sleep /proc/$(cat pid 2>/dev/null)/comm; do sleep 0.01; done";
    let args = format!("verify {NO_CHANGE} --runs 2 -- sh -c");
    let output = place.command(&args).arg(script).output().unwrap();
    let stdout = text(&output.stdout);
    let first = stdout.lines().nth(1).unwrap_or_default();
    assert!(first.contains("left sleep running") && first.contains("--server"), "{stdout}");
    assert!(is_gone(&place));
}

#[test]
fn ctrl_c_shows_the_rounds_so_far() {
    let change = NO_CHANGE;
    let place = Place::new();
    let log = place.path("log");
    let args = format!("verify {change} --runs 100000 --json -- sh -c");
    let child = place
        .command(&args)
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
