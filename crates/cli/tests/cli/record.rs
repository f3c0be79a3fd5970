//! `folio record`: the verb. The recorder has its own tests.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Place, is_able, text};

/// Returns whether recording works here; says loudly if not.
fn can_record(place: &Place) -> bool {
    is_able(&place.run("record -o probe.folio -- true"))
}

#[test]
fn unrecordable_programs_are_errors() {
    let place = Place::new();
    fs::write(place.path("notes"), "just text\n").unwrap();
    for (args, expected) in [
        ("record", "<CMD>"),
        ("record -- no-such-program", "not found in PATH"),
        ("record -- ./missing", "no such file"),
        ("record -- /tmp", "is a directory"),
        ("record -- ./notes", "not executable"),
        ("record -o - -- true", "such as -o true.folio"),
        ("record --live -o /dev/stdout -- true", "such as -o true.folio"),
        ("record --with perf -- true", "qemu"),
        ("record --with valgrind -- true", "only with QEMU"),
    ] {
        let stderr = place.fails(args);
        assert!(stderr.contains(expected), "{args}: {stderr}");
    }
}

#[test]
fn the_program_keeps_its_output_and_its_exit_code() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let mut command = place.command("record -o t.folio -- sh -c");
    let output = command.arg("echo hello; exit 7").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "hello\n");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("recorded t.folio") && stderr.contains("exit 7"), "{stderr}");
    assert!(place.done("trace info t.folio").contains("exit 7"));
}

#[test]
fn a_recorded_program_can_be_predicted() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let table = place.done("predict probe.folio --kernel 6.12,7.2+page=64K --machine altra --full");
    assert!(table.contains("Mapped text by folio size"), "{table}");
    assert!(table.contains("segments are at"), "{table}");
}

#[test]
fn a_quiet_recording_prints_nothing() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    // The program's options need no separator.
    let output = place.run("record -q -o q.folio true --help-is-not-ours");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("recorded"), "{}", text(&output.stderr));
}

#[test]
fn ctrl_c_before_the_program_starts_is_reported() {
    let place = Place::new();
    // An emulator that starts slowly.
    let script =
        "#!/bin/sh\ncase $2 in /nonexistent/*) exit 1;; esac\necho begun >&2\nexec sleep 100\n";
    fs::write(place.path("qemu-x86_64"), script).unwrap();
    fs::set_permissions(place.path("qemu-x86_64"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.path("plugin.so"), "").unwrap();
    let path = format!("{}:{}", place.0.path().display(), std::env::var("PATH").unwrap());
    let mut command = place.command("record -o t.folio -- true");
    command.env("PATH", path).env("LARGEFOLIO_RECORDER", place.path("plugin.so"));
    let mut folio = command.stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut stderr = BufReader::new(folio.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    // Signals the whole group, as the terminal does.
    let kill = ["-INT".to_owned(), "--".to_owned(), format!("-{}", folio.id())];
    assert!(Command::new("kill").args(kill).status().unwrap().success());
    line.clear();
    stderr.read_to_string(&mut line).unwrap();
    assert_eq!(line, "folio: interrupted before the program started; there is nothing to write\n");
    assert_eq!(folio.wait().unwrap().code(), Some(130));
    assert!(!place.path("t.folio").exists());
}

fn number_of(table: &str, label: &str) -> String {
    let line = table.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_default();
    line.rsplit('|').next().unwrap_or_default().trim().to_owned()
}

#[test]
fn plain_runs_are_in_the_trace_and_predictions_are_shares_of_them() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let output = place.run("record --runs 3 -o t.folio -- sh -c exit");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("(n = 3)"), "{}", text(&output.stderr));
    let info: Value = serde_json::from_str(&place.done("trace info t.folio --json")).unwrap();
    let runs = info["meta"]["runs"].as_array().unwrap();
    // A recording lists its recorder's abilities.
    assert_eq!((runs.len(), &info["meta"]["schema_version"]), (3, &serde_json::json!(7)));
    for run in runs {
        assert!(run["wall_ns"].as_u64().unwrap() > 100_000, "{run}");
        assert!(run["minor_faults"].as_u64().unwrap() > 10, "{run}");
    }
    // Only a machine file of the same CPU uses the measured times.
    let cpu = info["meta"]["machine"].as_str().unwrap();
    let machine = format!(
        "name = \"here\"\ndescription = \"a test\"\ncpu = \"{cpu}\"\n\
                           based-on = \"cascadelake\"\n"
    );
    fs::write(place.path("here.toml"), machine).unwrap();
    let predict = |machine: &str| {
        let args = format!("predict t.folio --kernel 6.12,7.2 {machine} --json");
        serde_json::from_str::<Value>(&place.done(&args)).unwrap()
    };
    // The known machine that replaces an uncalibrated one also uses them.
    let sources = |prediction: &Value| {
        let rows = prediction["rows"].as_array().unwrap().iter();
        rows.map(|row| row["estimate"]["run"]["source"].clone()).collect::<Vec<_>>()
    };
    // For a program that waits, the CPU time counts, even on a busy machine.
    let run_sources = sources(&predict(""));
    assert!(run_sources == ["measured"; 2] || run_sources == ["cpu"; 2], "{run_sources:?}");
    let here = predict("--machine ./here.toml");
    assert_eq!(sources(&here), run_sources);
    assert_eq!(here["rows"][0]["estimate"]["run"]["runs"], 3);
    assert!(here["rows"][0]["estimate"]["run_change"].is_null());
    assert!(here["rows"][1]["estimate"]["run_change"]["mid"].is_number());
    assert_eq!(sources(&predict("--machine cascadelake")), ["estimated"; 2]);
    // Ten times the run time makes the share ten times smaller.
    let shown = |time: &str| {
        place.done(&format!("predict t.folio --kernel 6.12,7.2 --full --runtime {time}"))
    };
    let (one, ten) = (shown("10ms"), shown("100ms"));
    let high = |table: &str| number_of(table, "to, %").parse::<f64>().unwrap();
    assert!((high(&one) / high(&ten) - 10.0).abs() < 0.6, "{one}\n{ten}");
}

#[test]
fn a_failed_plain_run_stops_the_recording() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let stderr = place.fails("record --runs 2 -o t.folio -- false");
    assert!(stderr.contains("exited with 1 when it ran without a recorder for --runs"), "{stderr}");
    assert!(!place.path("t.folio").exists());
    for wrong in ["0", "1001", "many"] {
        let stderr = place.fails(&format!("record --runs {wrong} -- true"));
        assert!(stderr.contains("--runs"), "{stderr}");
    }
    for wrong in ["12", "0s", "-3s", "1d", "s"] {
        let stderr = place.fails(&format!("predict t.folio --runtime={wrong}"));
        assert!(stderr.contains("expected a time such as 12.3s"), "{wrong}: {stderr}");
    }
}

/// The program waits for the message that the trace is lost.
#[test]
fn reports_a_full_disk_while_the_program_continues() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    fs::create_dir(place.path("disk")).unwrap();
    let folio = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
    let script = format!(
        "mount -t tmpfs -o size=32k tmpfs disk || exit 77\ncat >program <<'END'\nawk 'BEGIN {{ \
         for (i = 0; i < 300000; i++) a[i * 7919 % 50021] = i }}'\nwhile [ ! -e told ]; do sleep \
         0.1; done\nexit 3\nEND\n{folio} record -q -o disk/t.folio -- sh program 2>said &\nfor i \
         in $(seq 600); do grep -q 'continues unrecorded' said && break; sleep 0.1; done\necho \
         told $i; touch told; wait $!; echo code $?; cat said; echo left: $(ls -A disk)\n"
    );
    let Some(output) = place.on_a_small_disk(&script) else { return };
    let stdout = text(&output.stdout);
    assert!(stdout.contains("The program continues unrecorded: cannot write"), "{stdout}");
    assert!(stdout.contains("No space left on device") && stdout.contains("code 2\n"), "{stdout}");
    assert!(!stdout.contains("told 600") && stdout.ends_with("left:\n"), "{stdout}");
}

#[test]
fn leaves_no_trace_if_qemu_cannot_load_the_program() {
    let place = Place::new();
    let emulator = "/usr/bin/qemu-aarch64";
    let test = "leaves_no_trace_if_qemu_cannot_load_the_program";
    let is_foreign = cfg!(target_arch = "x86_64") && place.path(emulator).exists();
    if !can_record(&place) || !is_foreign {
        largefolio_testkit::skipped!(
            "{test}: needs x86-64 and {emulator} (apt-get install qemu-user)"
        );
        return;
    }
    let mut command = place.command("record -o true.folio -- true");
    let output = command.env("LARGEFOLIO_QEMU", emulator).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("QEMU did not start recording (exit status: 255)"), "{stderr}");
    assert!(!place.path("true.folio").exists());
}
