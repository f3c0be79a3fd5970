//! Commands that end well, badly, slowly and with children, and rounds made up by hand.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::VerifyError;
use super::rounds::{Arm, ArmError, Rounds, Until, alternate};
use super::run::{Ended, Sample, Watch, timed};
use super::verdict::{Doubt, compare, doubts};

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Says in a file when it was prepared, run and finished.
struct Noted<'a> {
    name: &'static str,
    log: &'a Path,
    script: String,
    rehearsed: bool,
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

    fn is_rehearsed(&self) -> bool {
        self.rehearsed
    }

    fn finish(&mut self) {
        let before = fs::read_to_string(self.log).unwrap_or_default();
        fs::write(self.log, before + ".").unwrap();
    }
}

fn run_noted(scripts: [&str; 2], until: Until) -> (Result<Rounds, VerifyError>, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let arm = |name, script: &str, rehearsed| Noted {
        name,
        log: log.path(),
        script: script.to_owned(),
        rehearsed,
    };
    let mut plain = arm("p", scripts[0], false);
    let mut changed = arm("c", scripts[1], scripts[1].contains("rehearsed"));
    let rounds = alternate(&mut plain, &mut changed, until, &mut |_| {});
    (rounds, fs::read_to_string(log.path()).unwrap())
}

/// Signal handlers belong to the whole process: tests that watch take turns.
fn in_turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn arms_take_turns_in_both_directions_and_the_first_round_is_not_counted() {
    let _turn = in_turn();
    let (rounds, log) = run_noted(["true", "true"], Until::Rounds(3));
    let rounds = rounds.unwrap();
    assert_eq!(log, "p.c.c.p.p.c.c.p.");
    assert_eq!((rounds.plain.len(), rounds.changed.len()), (3, 3));
    assert!(!rounds.is_stopped);
}

#[test]
fn an_arm_that_is_rehearsed_runs_twice_and_counts_once() {
    let _turn = in_turn();
    let (rounds, log) = run_noted(["true", ": rehearsed"], Until::Rounds(1));
    assert_eq!(log, "p.cc.cc.p.");
    assert_eq!(rounds.unwrap().changed.len(), 1);
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
        Ended::Well(sample) => sample,
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
    assert!(matches!(timed(shell(&script), &watch).unwrap(), Ended::Well(_)));
    let pid = fs::read_to_string(file.path()).unwrap().trim().to_owned();
    assert!(is_gone(&pid), "process {pid} is still there");
}

/// Whether a process has ended, or does while we look.
fn is_gone(pid: &str) -> bool {
    (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    })
}

/// Run by the next test as a process of its own.
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

fn samples(walls_ms: &[u64], faults: u64) -> Vec<Sample> {
    let of = |ms: &u64| Sample {
        wall: Duration::from_millis(*ms),
        user: Duration::from_millis(*ms / 2),
        nr_minor_faults: faults,
        ..Sample::default()
    };
    walls_ms.iter().map(of).collect()
}

#[test]
fn ratios_are_of_one_round_and_zero_has_none() {
    let plain = samples(&[100, 200, 400, 800], 10);
    let changed = samples(&[90, 180, 360, 720], 5);
    let all = compare(&Rounds { plain, changed, is_stopped: false });
    let by_name = |name: &str| all.iter().find(|one| one.name == name).unwrap();
    let wall = by_name("wall").ratio.unwrap();
    assert!((wall.low - 0.9).abs() < 1e-9 && (wall.high - 0.9).abs() < 1e-9, "{wall:?}");
    assert!((by_name("minor faults").ratio.unwrap().median - 0.5).abs() < 1e-9);
    assert_eq!(by_name("major faults").ratio, None);
    assert_eq!(by_name("system").ratio, None);
    assert_eq!(compare(&Rounds::default()), []);
}

#[test]
fn each_doubt_is_raised_by_what_it_is_about_and_by_nothing_else() {
    let of = |walls: &[u64], is_stopped| {
        let plain = samples(walls, 0);
        doubts(&Rounds { changed: plain.clone(), plain, is_stopped })
    };
    let calm = [100; 20];
    assert_eq!(of(&calm, false), []);
    assert_eq!(of(&calm, true), [Doubt::Stopped { nr: 20 }]);
    assert_eq!(of(&calm[..9], false), [Doubt::FewRounds { nr: 9 }]);
    assert_eq!(of(&[4; 20], false), [Doubt::Short { wall_ns: 4e6 }]);
    let noisy: Vec<u64> = (0..20).map(|i| if i % 2 == 0 { 100 } else { 120 }).collect();
    assert!(matches!(of(&noisy, false)[..], [Doubt::Noise { .. }]));
    let drifting: Vec<u64> = (0..20).map(|i| if i < 10 { 1000 } else { 1060 }).collect();
    let found = of(&drifting, false);
    assert!(
        found.iter().any(|d| matches!(d, Doubt::Drift { ratio } if *ratio > 1.05)),
        "{found:?}"
    );
}
