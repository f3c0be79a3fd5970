//! Commands that succeed, fail, run slowly or have children, and artificial rounds.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::VerifyError;
use super::metric::{Better, Metric, Source, pattern};
use super::proof::{Dropped, Proved, Trace};
use super::rounds::{Arm, ArmError, LoadRun, Measure, Rounds, Until, alternate};
use super::server::Ready;
use super::verdict::{Doubt, Verdict, compare, conclude, doubts, judge, nr_rounds_until};
use crate::measure::bootstrap::Interval;
use crate::timed_run::output::Output;
use crate::timed_run::{Sample, TimedRunEnd, Watch, timed};

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

struct Noted<'a> {
    name: &'static str,
    log: &'a Path,
    script: String,
    rehearsed: bool,
    server: Option<String>,
}

impl Arm for Noted<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self) -> Result<(), ArmError> {
        Ok(())
    }

    fn command(&self) -> Command {
        shell(&format!("printf %s {} >>{}; {}", self.name, self.log.display(), self.script))
    }

    fn server(&self) -> Option<Command> {
        self.server.as_deref().map(shell)
    }

    fn is_rehearsed(&self) -> bool {
        self.rehearsed
    }

    fn finish(&mut self) {
        let before = fs::read_to_string(self.log).unwrap_or_default();
        fs::write(self.log, before + ".").unwrap();
    }
}

fn measure(until: Until) -> Measure {
    let metric = Metric::quantity("wall");
    let output = Output::Discarded;
    Measure { until, within: None, metric, prepare: None, ready: None, output }
}

fn run_noted(scripts: [&str; 2], until: Until) -> (Result<Rounds, VerifyError>, String) {
    measured(scripts, None, &measure(until))
}

fn measured(
    scripts: [&str; 2],
    server: Option<&str>,
    measure: &Measure,
) -> (Result<Rounds, VerifyError>, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let arm = |name, script: &str, rehearsed| Noted {
        name,
        log: log.path(),
        script: script.to_owned(),
        rehearsed,
        server: server.map(str::to_owned),
    };
    let mut plain = arm("p", scripts[0], false);
    let mut changed = arm("c", scripts[1], scripts[1].contains("rehearsed"));
    let rounds = alternate(&mut plain, &mut changed, measure, &mut |_| {});
    (rounds, fs::read_to_string(log.path()).unwrap())
}

/// Signal handlers belong to the whole process, so tests that watch signals take turns.
fn in_turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn arms_take_turns_in_both_directions_and_the_first_round_is_not_counted() {
    let _turn = in_turn();
    let (rounds, log) = run_noted(["true", "true"], Until::Rounds(3));
    let rounds = rounds.unwrap();
    // A noisy machine gets a second round that is not counted.
    assert!(["p.c.c.p.p.c.c.p.", "p.c.c.p.p.c.c.p.p.c."].contains(&log.as_str()), "{log}");
    assert_eq!((rounds.plain.len(), rounds.changed.len()), (3, 3));
    assert!(!rounds.is_stopped);
}

#[test]
fn an_arm_is_rehearsed_until_it_is_at_rest_and_counts_once() {
    let _turn = in_turn();
    let (rounds, log) = run_noted(["true", ": rehearsed"], Until::Rounds(1));
    let rounds = rounds.unwrap();
    assert_eq!((rounds.plain[0].nr_rehearsals, rounds.changed.len()), (0, 1));
    let nr = rounds.changed[0].nr_rehearsals;
    assert!((2..=8).contains(&nr), "{nr}");
    // Round 0 has its own rehearsals.
    let all: Vec<&str> = log.split('.').collect();
    assert_eq!((all[0], all[2], all[3]), ("p", "c".repeat(nr + 1).as_str(), "p"), "{log}");
    assert!((3..=9).contains(&all[1].len()), "{log}");
}

/// Each run takes more CPU time than the one before, so more rehearsals would not settle.
#[test]
fn a_noisy_machine_gets_two_rehearsals_a_run() {
    let _turn = in_turn();
    let file = tempfile::NamedTempFile::new().unwrap();
    let n = file.path().display();
    let work = format!(
        "n=$(cat {n}); n=$((n + 1)); echo $n >{n}; i=0; \
         while [ $i -lt $((n * 20000)) ]; do i=$((i + 1)); done; : rehearsed"
    );
    let (rounds, _) = run_noted(["true", &work], Until::Rounds(2));
    let rounds = rounds.unwrap();
    let nrs: Vec<usize> = rounds.changed.iter().map(|run| run.nr_rehearsals).collect();
    assert_eq!(nrs, [2, 2]);
}

#[test]
fn by_time_there_is_at_least_one_round() {
    let _turn = in_turn();
    let (rounds, _) = run_noted(["true", "true"], Until::Time(Duration::ZERO));
    assert_eq!(rounds.unwrap().plain.len(), 1);
}

#[test]
fn a_run_that_fails_is_no_value_and_its_arm_is_finished() {
    let _turn = in_turn();
    let (rounds, log) = run_noted(["true", "exit 3"], Until::Rounds(3));
    let error = rounds.unwrap_err().to_string();
    assert!(error.contains("exited with 3 in the c run of round 0"), "{error}");
    assert_eq!(log, "p.c.");
    let (rounds, _) = run_noted(["kill -SEGV $$", "true"], Until::Rounds(1));
    assert!(rounds.unwrap_err().to_string().contains("killed by signal 11"));
}

#[test]
fn a_sample_has_the_time_and_the_faults_of_the_command_and_its_children() {
    let _turn = in_turn();
    let watch = Watch::start().unwrap();
    let sample = |script: &str| match timed(shell(script), &watch).unwrap() {
        TimedRunEnd::Succeeded(sample) => sample,
        other => panic!("{other:?}"),
    };
    let idle = sample("exit 0");
    let busy = sample("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; /bin/true; exit 0");
    assert!(busy.user > idle.user, "{busy:?} {idle:?}");
    assert!(busy.nr_minor_faults > idle.nr_minor_faults + 20, "{busy:?} {idle:?}");
    assert!(busy.wall >= busy.user / 4);
}

#[test]
fn what_a_command_leaves_running_is_ended_with_it() {
    let _turn = in_turn();
    let watch = Watch::start().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = format!("sleep 1000 & echo $! >{}", file.path().display());
    assert!(matches!(timed(shell(&script), &watch).unwrap(), TimedRunEnd::Succeeded(_)));
    let pid = fs::read_to_string(file.path()).unwrap().trim().to_owned();
    assert!(is_gone(&pid), "process {pid} is still there");
}

#[test]
fn an_orphan_in_a_group_of_its_own_is_ended_and_what_this_process_started_is_not() {
    let _turn = in_turn();
    let watch = Watch::start().unwrap();
    let mut own = Command::new("sleep");
    let (mut own, number) = crate::helpers::spawn(own.arg("1000").process_group(0)).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    // timeout(1) makes a group in the same session.
    let inner = format!("echo $$ >{path}; exec sleep 1000");
    let script = format!("timeout 1000 sh -c '{inner}' & until test -s {path}; do :; done");
    assert!(matches!(timed(shell(&script), &watch).unwrap(), TimedRunEnd::Succeeded(_)));
    let pid = fs::read_to_string(file.path()).unwrap().trim().to_owned();
    assert!(is_gone(&pid), "process {pid} is still there");
    assert_eq!(own.try_wait().unwrap(), None);
    own.kill().unwrap();
    own.wait().unwrap();
    drop(number);
}

fn is_gone(pid: &str) -> bool {
    (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    })
}

/// The next test runs this as a separate process.
#[test]
#[ignore = "helper of `killed_itself_it_leaves_no_process`"]
fn hold() {
    let file = std::env::var("LARGEFOLIO_TEST_PID").unwrap();
    let watch = Watch::start().unwrap();
    let script = format!("sleep 1000 & echo $! >{file}.new; mv {file}.new {file}; wait");
    let _ = timed(shell(&script), &watch);
}

#[test]
fn killed_itself_it_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "verify::tests::hold", "--ignored"])
        .env("LARGEFOLIO_TEST_PID", &file)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = (0..4000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        file.exists()
    });
    assert!(started, "the command was never started");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let pid = fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(is_gone(&pid), "process {pid} is still there");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let _turn = in_turn();
    let watch = Watch::start().unwrap();
    let error = timed(Command::new("/no/such/program"), &watch).unwrap_err().to_string();
    assert!(error.contains("/no/such/program") && error.contains("installed"), "{error}");
}

#[test]
fn a_daemon_is_named_and_ended() {
    let _turn = in_turn();
    let file = tempfile::NamedTempFile::new().unwrap();
    let pid = file.path().display();
    let is_asleep = format!("grep -qs sleep /proc/$(cat {pid})/comm");
    let script = format!(
        "setsid sh -c 'echo $$ >{pid}; exec sleep 1000' & until {is_asleep}; do sleep 0.02; done"
    );
    let (rounds, _) = run_noted([&script, "true"], Until::Rounds(1));
    let rounds = rounds.unwrap();
    assert_eq!(rounds.plain[0].left.as_deref(), Some("sleep"));
    assert_eq!(rounds.changed[0].left, None);
    let pid = fs::read_to_string(file.path()).unwrap().trim().to_owned();
    assert!(is_gone(&pid), "process {pid} is still there");
}

/// Returns a server that writes its PID to `pid`, reports that it is ready, and turns into a
/// daemon.
fn daemon(pid: &Path) -> String {
    let pid = pid.display();
    format!("setsid sh -c 'echo $$ >{pid}; echo up; while :; do sleep 0.01; done' & sleep 0.1")
}

#[test]
fn a_server_runs_beside_each_load_and_is_ended() {
    let _turn = in_turn();
    let file = tempfile::NamedTempFile::new().unwrap();
    let ready = Some(Ready::Pattern(Box::new(pattern("^up$").unwrap())));
    let metric = Metric::printed(
        Source::Pattern(Box::new(pattern("tps = ([0-9]+)").unwrap())),
        "tps",
        None,
        None,
    );
    let prepare = Some(format!("kill -0 $(cat {})", file.path().display()));
    let until = Until::Rounds(2);
    let requested = Measure { ready, metric: metric.unwrap(), prepare, ..measure(until) };
    let server = daemon(file.path());
    let loads = ["echo tps = 7", "echo tps = 8"];
    let (rounds, _) = measured(loads, Some(&server), &requested);
    let rounds = rounds.unwrap();
    assert_eq!((rounds.plain[1].metric, rounds.changed[1].metric), (Some(7.0), Some(8.0)));
    let used = rounds.plain[0].served.as_ref().unwrap();
    assert!(used.nr_minor_faults > 0 && used.memory.is_some(), "{used:?}");
    assert_eq!(rounds.plain[0].left, None, "the server is not one of the load's processes");
    let pid = fs::read_to_string(file.path()).unwrap().trim().to_owned();
    assert!(is_gone(&pid), "process {pid} is still there");
    let (rounds, _) = measured(["echo tps = much", "true"], Some(&server), &requested);
    let message = rounds.unwrap_err().to_string();
    assert!(
        message.contains("the p run of round 0 has no metric: the pattern matches nothing"),
        "{message}"
    );
    let pid = fs::read_to_string(file.path()).unwrap().trim().to_owned();
    assert!(is_gone(&pid), "process {pid} is still there");
}

#[test]
fn a_server_that_ends_is_told_with_its_last_words() {
    let _turn = in_turn();
    let ready = Some(Ready::Command("test -e /no/such".to_owned()));
    let requested = Measure { ready, ..measure(Until::Rounds(1)) };
    let server = Some("echo no room; exit 3");
    let message = measured(["true", "true"], server, &requested).0.unwrap_err().to_string();
    assert_eq!(message, "the server exited with 3 before it was ready; it wrote: no room");
    let server = Some(
        "echo the cause >&2; sleep 1; i=0; while [ $i -lt 200 ]; do echo follows $i; i=$((i + 1)); done; exit 3",
    );
    let message = measured(["true", "true"], server, &requested).0.unwrap_err().to_string();
    assert!(message.contains("; its first errors: the cause; it wrote last: "), "{message}");
    assert!(message.ends_with("follows 199"), "{message}");
    let requested = Measure { ready: Some(Ready::Command("exit 7".to_owned())), ..requested };
    let server = Some("echo still loading; sleep 1000");
    let message = measured(["true", "true"], server, &requested).0.unwrap_err().to_string();
    assert_eq!(
        message,
        "the server was not ready within 2 s: --ready: the last time, the command exited with 7; \
         it wrote: still loading"
    );
    let requested = Measure { ready: Some(Ready::Command("true".to_owned())), ..requested };
    // The server ends once the load, or --prepare, has begun.
    let dir = tempfile::tempdir().unwrap();
    let begun = dir.path().join("begun").display().to_string();
    let server = format!("until test -e {begun}; do sleep 0.02; done; exit 0");
    let server = Some(server.as_str());
    let load = format!("touch {begun}; sleep 1000");
    let message = measured([&load, &load], server, &requested).0.unwrap_err().to_string();
    assert_eq!(message, "the server exited with 0 during the load");
    fs::remove_file(&begun).unwrap();
    let requested = Measure { prepare: Some(load), ..requested };
    let message = measured(["true", "true"], server, &requested).0.unwrap_err().to_string();
    assert!(
        message.starts_with("the server exited with 0 during a command of --prepare"),
        "{message}"
    );
}

#[test]
fn scripts_beside_the_rounds_fail_loudly() {
    let _turn = in_turn();
    let requested = Measure { prepare: Some("exit 4".to_owned()), ..measure(Until::Rounds(1)) };
    let message = measured(["true", "true"], None, &requested).0.unwrap_err().to_string();
    assert_eq!(message, "--prepare exited with 4 in the p run of round 0");
    let requested = Measure { prepare: Some("sleep 1000 &".to_owned()), ..requested };
    let message = measured(["true", "true"], None, &requested).0.unwrap_err().to_string();
    // The shell's child may not have executed yet.
    let left =
        |name| message.starts_with(&format!("--prepare left {name} running, which was killed"));
    assert!(left("sleep") || left("sh"), "{message}");
    for (script, expected) in [
        ("printf '\\000\\377'", "expected one number"),
        ("head -c 9999999 /dev/zero", "expected one number"),
        ("echo NaN", "NaN"),
        ("exit 5", "--metric exited with 5"),
        ("sleep 1000", "--metric took more than 2 s"),
    ] {
        let source = Source::Command(script.to_owned());
        let metric = Metric::printed(source, "", Some(Better::Higher), None).unwrap();
        let requested = Measure { metric, ..measure(Until::Rounds(1)) };
        let message = measured(["true", "true"], None, &requested).0.unwrap_err().to_string();
        assert!(message.contains(expected), "{script}: {message}");
    }
}

fn runs(walls_ms: &[u64], faults: u64) -> Vec<LoadRun> {
    let of = |ms: &u64| Sample {
        wall: Duration::from_millis(*ms),
        user: Duration::from_millis(*ms / 2),
        nr_minor_faults: faults,
        ..Sample::default()
    };
    walls_ms.iter().map(|ms| LoadRun { sample: of(ms), ..LoadRun::default() }).collect()
}

#[test]
fn ratios_are_of_one_round_and_nothing_twice_is_the_same() {
    let plain = runs(&[100, 200, 400, 800], 10);
    let changed = runs(&[90, 180, 360, 720], 5);
    let wall = Metric::quantity("wall");
    let all = compare(&Rounds { plain, changed, ..Rounds::default() }, &wall);
    let by_name = |name: &str| all.iter().find(|one| one.name == name).unwrap();
    let ratio = by_name("wall").ratio.unwrap();
    assert!((ratio.low - 0.9).abs() < 1e-9 && (ratio.high - 0.9).abs() < 1e-9, "{ratio:?}");
    assert!((by_name("minor faults").ratio.unwrap().median - 0.5).abs() < 1e-9);
    // 0 in both arms.
    let same = Some(Interval { median: 1.0, low: 1.0, high: 1.0, n: 4 });
    assert_eq!((by_name("major faults").ratio, by_name("system").ratio), (same, same));
    assert!(!all.iter().any(|one| one.name.starts_with("server") || one.name == "memory"));
    assert_eq!(compare(&Rounds::default(), &wall), []);
}

fn proved(rounds: Rounds, nr_dropped: usize) -> Proved {
    let dropped = (1..=nr_dropped).map(|nr| Dropped { nr, why: String::new() }).collect();
    Proved { rounds, dropped, traces: vec!["faults"], nr_unlike: 0 }
}

#[test]
fn no_verdict_rests_on_fewer_than_ten_rounds() {
    let ratio = |n| Interval { median: 0.85, low: 0.8, high: 0.9, n };
    let of = |nr: usize, nr_dropped| {
        let plain = runs(&vec![100; nr], 0);
        let all = proved(Rounds { changed: plain.clone(), plain, ..Rounds::default() }, nr_dropped);
        conclude(&all, Some(&ratio(nr)), 0.01, Better::Lower)
    };
    assert_eq!(of(10, 0), Verdict::Confirmed);
    assert_eq!(of(10, 10), Verdict::Confirmed);
    assert_eq!(of(9, 0), Verdict::Inconclusive);
    assert_eq!(of(9, 1), Verdict::NotProved);
    assert_eq!(of(0, 20), Verdict::NotProved);
    let none = proved(Rounds::default(), 0);
    assert_eq!(conclude(&none, None, 0.01, Better::Lower), Verdict::Inconclusive);
}

#[test]
fn each_doubt_is_raised_by_what_it_is_about_and_by_nothing_else() {
    let of = |walls: &[u64], is_stopped| {
        let plain = runs(walls, 0);
        let rounds =
            Rounds { changed: plain.clone(), plain, is_stopped, too_dear: None, untimed: None };
        doubts(&proved(rounds, 0), Trace::Possible)
    };
    let calm = [100; 20];
    assert_eq!(of(&calm, false), []);
    assert_eq!(of(&calm, true), [Doubt::Stopped { nr: 20 }]);
    assert_eq!(of(&calm[..9], false), [Doubt::FewRounds { nr: 9 }]);
    assert_eq!(of(&[4; 20], false), [Doubt::Short { wall_ns: 4e6 }]);
    let noisy: Vec<u64> = (0..20).map(|i| if i % 2 == 0 { 100 } else { 120 }).collect();
    assert!(matches!(of(&noisy, false)[..], [Doubt::Noise { .. }]));
    let drifting: Vec<u64> = (0..20).map(|i| if i < 10 { 1000 } else { 1060 }).collect();
    let drift = of(&drifting, false);
    assert!(
        drift.iter().any(|d| matches!(d, Doubt::Drift { ratio } if *ratio > 1.05)),
        "{drift:?}"
    );
    let mut all = proved(Rounds { plain: runs(&calm, 0), ..Rounds::default() }, 0);
    all.rounds.plain[3].left = Some("redis-server".to_owned());
    let name = "redis-server".to_owned();
    assert_eq!(doubts(&all, Trace::Required), [Doubt::LeftRunning { name, nr_runs: 1 }]);
    all.rounds.plain[3].left = None;
    all.traces.clear();
    assert_eq!(doubts(&all, Trace::Possible), [Doubt::NoTrace { is_looked: false }]);
    assert_eq!(doubts(&all, Trace::Required), []);
    all.rounds.too_dear = Some(0.08);
    assert_eq!(doubts(&all, Trace::Required), [Doubt::NotLooked { part: 0.08, nr: 0 }]);
    all.rounds.too_dear = None;
    all.nr_unlike = 3;
    assert_eq!(doubts(&all, Trace::Required), [Doubt::Unlike { nr: 3 }]);
}

#[test]
fn the_rounds_that_are_named_decide_four_questions_of_five() {
    let mut state = 1_u64;
    // Ratios around 0.97 that spread by 3%: sums of four uniform numbers.
    let mut round = || {
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX)
        };
        0.97 + 0.05 * ((0..4).map(|_| uniform()).sum::<f64>() - 2.0)
    };
    let mut rounds = |nr: usize| {
        let ratios: Vec<f64> = (0..nr).map(|_| round()).collect();
        Interval::of(&ratios).unwrap()
    };
    let all = rounds(400);
    let half = (all.high - all.low) / 2.0 * 20_f64.sqrt();
    let few = Interval { median: 0.97, low: 0.97 - half, high: 0.97 + half, n: 20 };
    let nr = nr_rounds_until(&few, 0.98 - few.median).unwrap();
    let is_decided = |_: &usize| judge(&rounds(nr), 0.02, Better::Lower) == Verdict::Confirmed;
    let nr_decided = (0..40).filter(is_decided).count();
    assert!((28..=38).contains(&nr_decided), "{nr_decided} of 40, with {nr} rounds each");
}
