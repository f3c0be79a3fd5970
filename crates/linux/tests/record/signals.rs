//! Interrupted recordings: Ctrl-C, kill, the death of the program or folio.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use largefolio_linux::record::{RecordEnd, RecordRequest, Recording};
use largefolio_trace::Op;

use crate::recorded::{Made, TestHost, plugin, program, read, record_pausing};
use crate::support::{has, itself, read_until};

/// Not a test: `interrupted` interrupts this recording.
#[test]
#[ignore = "run by the tests of signals"]
fn recording_in_a_process_of_its_own() {
    let (Some(program), Some(output)) =
        (std::env::var_os("FOLIO_TEST_PROGRAM"), std::env::var_os("FOLIO_TEST_OUTPUT"))
    else {
        return;
    };
    let (command, output) = ([program], PathBuf::from(output));
    let output = Some(output.as_path());
    let request = RecordRequest { command: &command, output, root: None };
    let plan = Recording::in_environment(&TestHost, &request);
    let outcome = plan.expect("a plan").run(&mut |_| {}).expect("a recording");
    std::process::exit(outcome.ended.exit_code().into());
}

/// Records an endless program that ignores `ignored`, stops it by `kill`, checks the trace.
fn interrupted(ignored: &[&str], kill: impl FnOnce(i32), signal: u8) {
    let ignore =
        ignored.iter().fold(String::new(), |code, name| code + "signal(" + name + ", SIG_IGN); ");
    let main = r#"pages(9); puts("go"); fflush(stdout); for (;;) fill(0, 9, 3); }"#;
    program_is_interrupted(&format!("int main(void) {{ {ignore}{main}"), kill, signal);
}

/// Does the same for any program that prints `go` and does not end.
fn program_is_interrupted(main: &str, kill: impl FnOnce(i32), signal: u8) {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(main, &[]);
    let output = made.dir.path().join("endless.folio");
    let mut folio = start(&made, &output);
    let _stdout = read_until(folio.stdout.take(), "go");
    std::thread::sleep(Duration::from_millis(200));
    kill(i32::try_from(folio.id()).expect("a pid"));
    let status = folio.wait().expect("its end");
    assert_eq!(status.code(), Some(128 + i32::from(signal)), "{status:?} {:?}", status.signal());
    let (meta, events) = read(&output);
    assert_eq!(meta.ended, format!("signal {signal}"));
    assert!(meta.nr_references > 100_000, "only {}", meta.nr_references);
    assert_eq!(events.last().map(|event| event.op), Some(Op::Exit));
}

fn start(made: &Made, output: &Path) -> Child {
    plugin();
    itself("signals::recording_in_a_process_of_its_own")
        .env("FOLIO_TEST_PROGRAM", &made.path)
        .env("FOLIO_TEST_OUTPUT", output)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the test itself")
}

fn send(target: &str, signal: &str) {
    let status = Command::new("kill").args([signal, "--", target]).status().expect("kill");
    assert!(status.success());
}

#[test]
fn ctrl_c_leaves_a_valid_trace() {
    interrupted(&[], |pid| send(&format!("-{pid}"), "-INT"), 2);
}

/// Programs execute others continuously; none misses the signal.
#[test]
fn ctrl_c_ends_a_program_that_executes_itself_for_ever() {
    let main = r#"
        int main(int argc, char **argv) {
            if (argc == 1) { puts("go"); fflush(stdout); }
            pages(9);
            fill(0, 9, 3);
            execl(argv[0], argv[0], "again", (char *)0);
            return 1;
        }"#;
    for _ in 0..3 {
        program_is_interrupted(main, |pid| send(&format!("-{pid}"), "-INT"), 2);
    }
}

/// Sends Ctrl-C `times` times, slowly enough for each to be seen.
fn insist(pid: i32, times: usize) {
    for _ in 0..times {
        send(&format!("-{pid}"), "-INT");
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_second_ctrl_c_terminates_a_program_that_ignores_the_first() {
    interrupted(&["SIGINT"], |pid| insist(pid, 2), 15);
}

#[test]
fn a_third_ctrl_c_kills_a_program_that_ignores_both() {
    interrupted(&["SIGINT", "SIGTERM"], |pid| insist(pid, 3), 9);
}

#[test]
fn a_signal_to_folio_alone_is_forwarded() {
    interrupted(&[], |pid| send(&pid.to_string(), "-TERM"), 15);
}

#[test]
fn a_program_outlives_a_folio_that_is_killed() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r#"
        int main(int argc, char **argv) {
            char name[4096];
            pages(9);
            puts("go"); fflush(stdout);
            for (int i = 0; i < 40; i++) { fill(0, 9, 100); usleep(10000); }
            snprintf(name, sizeof name, "%s.done", argv[0]);
            return open(name, O_CREAT, 0600) < 0;
        }"#,
        &[],
    );
    let mut folio = start(&made, &made.dir.path().join("lost.folio"));
    let _stdout = read_until(folio.stdout.take(), "go");
    folio.kill().expect("kill");
    folio.wait().expect("its end");
    let done = made.path.with_extension("done");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done.exists() {
        assert!(Instant::now() < deadline, "the program did not continue without folio");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_reference_is_lost_or_doubled_by_a_sudden_death() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = counting();
    for microseconds in [30_000, 77_777, 123_456] {
        counted_is_recorded(&made, microseconds, Duration::ZERO);
    }
}

/// Messages then wait in the socket, more than one turn reads.
#[test]
fn nothing_is_lost_when_folio_reads_late() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    counted_is_recorded(&counting(), 500_000, Duration::from_millis(800));
}

/// A program that its child kills after the microseconds in its second argument.
fn counting() -> Made {
    // Each round writes one of 13 pages (so rows never join) and then counts it in a file.
    program(
        r"
        int main(int argc, char **argv) {
            int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
            if (ftruncate(fd, 4096)) return 1;
            volatile long *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            pages(13);
            pid_t victim = getpid();
            if (fork() == 0) { usleep(atoi(argv[2])); kill(victim, SIGKILL); _exit(0); }
            for (;;) { p[*count % 13 * 4096] = 1; *count = *count + 1; }
        }",
        &[],
    )
}

fn counted_is_recorded(made: &Made, microseconds: u32, pause: Duration) {
    let name = made.dir.path().join(format!("count{microseconds}"));
    let arguments = [name.to_str().expect("utf-8"), &microseconds.to_string()];
    let trace = record_pausing(&made.path, &arguments, pause);
    assert_eq!(trace.outcome.ended, RecordEnd::Signal(9));
    let bytes = std::fs::read(&name).expect("the counter");
    let counted = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    let base = trace.mapping(13).addr;
    let recorded = trace.count(Op::Write, Some(0), base, base + 13 * 4096);
    assert!(counted > 1000, "only {counted}");
    assert!((counted..=counted + 1).contains(&recorded), "{recorded} of {counted}");
}
