//! Records the running kernel, and checks that nothing remains on the system.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::io::BufReader;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use largefolio_lab::crosscheck::record::{
    CrosscheckError, Custom, Facts, Filesystem, Limits, Pause, Recorder, Selection, Workload,
    WorkloadPlan, WorkloadSet,
};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::program::is_refusal;
use crate::support::{itself, read_until};
use crate::turn::{self, Turn};

/// Prints the reason to skip, or waits for this test's turn.
fn turn(test: &str) -> Option<(Turn, Facts)> {
    // Wait first: otherwise another test would see this test's instance.
    let turn = turn::alone();
    let facts = Facts::of_host();
    let reason = if !facts.is_root {
        "needs root".to_owned()
    } else if facts.formatter(Filesystem::Ext4).is_none() {
        "needs mkfs.ext4: apt-get install e2fsprogs".to_owned()
    } else {
        match Recorder::new(facts.clone()) {
            Ok(_) => return Some((turn, facts)),
            Err(error) if is_refusal(&error) => return None,
            Err(error) => panic!("{test}: {error}"),
        }
    };
    largefolio_testkit::skipped!("{test}: {reason}");
    None
}

/// Lists all named objects that a run of process `pid` could leave.
fn left_behind(pid: u32) -> Vec<String> {
    let mut recordings = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    recordings.extend(mounts.lines().filter(|line| line.contains("largefolio")).map(str::to_owned));
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        recordings.extend(backing.ok().filter(|file| file.contains("memfd:largefolio")));
    }
    let group = format!("folio-crosscheck-{pid}");
    let trees = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"];
    recordings.extend(
        trees
            .map(|tree| format!("{tree}/{group}"))
            .into_iter()
            .filter(|path| Path::new(path).exists()),
    );
    recordings
        .extend(instances().into_iter().filter(|name| *name == format!("folio-crosscheck-{pid}")));
    recordings
}

fn instances() -> Vec<String> {
    in_instances(|path| {
        let names = fs::read_dir(path).unwrap().flatten().map(|entry| entry.file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    })
}

fn in_instances<T>(read: impl Fn(&Path) -> T) -> T {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
    fsconfig_create(&context).unwrap();
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let root = fsmount(&context, flags, MountAttrFlags::empty()).unwrap();
    read(Path::new(&format!("/proc/self/fd/{}/instances", root.as_raw_fd())))
}

fn loop_settings() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        for setting in ["read_ahead_kb", "max_sectors_kb"] {
            let value = fs::read_to_string(entry.path().join("queue").join(setting));
            if let Some(value) = value.ok().filter(|_| name.starts_with("loop")) {
                all.push((format!("{name}/{setting}"), value));
            }
        }
    }
    all.sort();
    all
}

fn workload(text: &str) -> Workload {
    let settings: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let custom = Custom::parse(&settings).unwrap();
    let selection = Selection { windows_kb: vec![128], ..Selection::default() };
    let plan = WorkloadPlan::custom(&custom, &selection, &Facts::of_host(), "").unwrap();
    plan.groups[0].workloads[0].clone()
}

#[test]
fn a_recording_has_every_kind_of_line_and_leaves_nothing() {
    let Some((_turn, facts)) = turn("a_recording_has_every_kind_of_line") else { return };
    let before = loop_settings();
    {
        let recorder = Recorder::new(facts.clone()).unwrap();
        let mut place = recorder.place(Filesystem::Ext4, 4 << 20).unwrap();
        let text = place.record(&workload("pattern=seq n=20 file=4M"), Pause::Usual).unwrap();
        let header = text.lines().next().unwrap();
        for word in ["fs=ext4", "read_ahead_kb=128", "settle=1500", "lost=0", "resid_before=0"] {
            assert!(header.contains(word), "{word}: {header}");
        }
        assert!(header.contains(&format!("kernel={}", facts.release)), "{header}");
        for start in ["N 0 ", "T 0\n", "F 0\n", "A 0 ", "E 0", "P 0", "M Rss:"] {
            assert!(text.contains(&format!("\n{start}")), "{start:?} is missing in\n{text}");
        }
        // Repeat: the page cache of the first run is gone.
        let again = place.record(&workload("pattern=seq n=20 file=4M"), Pause::Usual).unwrap();
        let steps = |text: &str| {
            let is_step = |line: &&str| line.starts_with(['T', 'A']);
            text.lines().filter(is_step).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(steps(&text), steps(&again));
        assert_eq!(left_behind(std::process::id()).len(), 2, "device and instance are seen");
    }
    assert_eq!(left_behind(std::process::id()), [""; 0]);
    let now = loop_settings();
    let is_known = |setting: &(String, String)| before.iter().any(|(name, _)| *name == setting.0);
    assert_eq!(now.into_iter().filter(is_known).collect::<Vec<_>>(), before);
}

#[test]
fn a_workload_with_a_limit_is_the_same_twice_and_its_group_is_gone() {
    let Some((_turn, facts)) = turn("a_workload_with_a_limit_is_the_same_twice") else { return };
    if facts.limits == Limits::Absent {
        largefolio_testkit::skipped!(
            "a_workload_with_a_limit_is_the_same_twice: no memory cgroups"
        );
        return;
    }
    let selection = Selection {
        set: WorkloadSet::Limited,
        only: Some("limit-often".to_owned()),
        ..Selection::default()
    };
    let plan = WorkloadPlan::new(&selection, &facts, "").unwrap();
    let workload = &plan.groups[0].workloads[0];
    {
        let recorder = Recorder::new(facts.clone()).unwrap();
        let mut place = recorder.place(workload.filesystem, 0).unwrap();
        let texts = [(); 2].map(|()| place.record(workload, Pause::Usual).unwrap());
        for word in
            ["limit=2097152", "lru=", "io=within", "\n= usage ", "\n= workingset_refault_file "]
        {
            assert!(texts[0].contains(word), "{word}");
        }
        let evicted = |text: &str| {
            let is_one = |line: &&str| line.starts_with("D ");
            text.lines().filter(is_one).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(evicted(&texts[0]).len() > 10);
        assert_eq!(evicted(&texts[0]), evicted(&texts[1]));
    }
    assert_eq!(left_behind(std::process::id()), [""; 0]);
}

#[test]
fn a_count_behind_page_0_is_a_count() {
    let Some((_turn, facts)) = turn("a_count_behind_page_0_is_a_count") else { return };
    let recorder = Recorder::new(facts).unwrap();
    let mut place = recorder.place(Filesystem::Ext4, 1 << 20).unwrap();
    let settings = workload("pattern=ops ops=t0x20,b0.0+4096x3,c7.100 file=1M");
    let text = place.record(&settings, Pause::Usual).unwrap();
    let nr = |kind: char| text.lines().filter(|line| line.starts_with(kind)).count();
    assert_eq!([nr('T'), nr('B'), nr('c')], [20, 3, 1], "{text}");
}

#[test]
fn a_probe_that_fails_is_told_and_leaves_nothing() {
    let Some((_turn, facts)) = turn("a_probe_that_fails_is_told") else { return };
    {
        let recorder = Recorder::new(facts).unwrap();
        let mut place = recorder.place(Filesystem::Ext4, 1 << 20).unwrap();
        for (settings, expected) in [
            ("pattern=nonsense", "unknown pattern"),
            ("pattern=ops ops=t1/3", "no such mapping"),
            ("pattern=ops ops=b0.0+4096/9", "no such mapping or descriptor"),
            ("pattern=ops ops=b0.0+99999999", "at most 16 MiB"),
            ("pattern=seq opens=9", "at most 4 descriptors"),
            ("pattern=seq pages=99999999", "too many mappings"),
            ("pattern=seq also=r,shared,plain,7,0,1", "too many mappings"),
        ] {
            let settings = format!("{settings} file=1M");
            let error = place.record(&workload(&settings), Pause::Usual).unwrap_err();
            assert!(matches!(error, CrosscheckError::Probe { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{settings}: {error}");
        }
    }
    assert_eq!(left_behind(std::process::id()), [""; 0]);
}

/// Not a test: `interrupted_by` interrupts this recording.
#[test]
#[ignore = "run by the tests of signals"]
fn recording_in_a_process_of_its_own() {
    if std::env::var_os("FOLIO_TEST_INTERRUPT").is_none() {
        return;
    }
    let recorder = Recorder::new(Facts::of_host()).unwrap();
    let mut place = recorder.place(Filesystem::Ext4, 64 << 20).unwrap();
    let long = workload("pattern=rand n=100000 settle=10000 file=64M");
    println!("\ngo");
    let error = place.record(&long, Pause::Usual).unwrap_err();
    drop(place);
    drop(recorder);
    let CrosscheckError::Interrupted(signal) = error else { panic!("{error}") };
    std::process::exit(signal);
}

/// Starts a recording of 15 minutes in a separate process.
fn start() -> (Child, BufReader<ChildStdout>) {
    let mut child = itself("crosscheck::recording_in_a_process_of_its_own")
        .env("FOLIO_TEST_INTERRUPT", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = read_until(child.stdout.take(), "go");
    // The probe is starting or already running: both are fine.
    std::thread::sleep(Duration::from_millis(300));
    (child, stdout)
}

fn kill(child: &Child, signal: &str) {
    let done = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

/// Waits until all objects of `pid` are gone; a killed process's mount ends with its last child.
fn wait_until_gone(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !left_behind(pid).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", left_behind(pid));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn signals_stop_the_probe_and_leave_nothing() {
    let Some((_turn, _)) = turn("signals_stop_the_probe") else { return };
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        let before = loop_settings();
        let (mut child, _said) = start();
        kill(&child, signal);
        let sent = Instant::now();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(number), "{signal}");
        assert!(sent.elapsed() < Duration::from_secs(20), "{:?}", sent.elapsed());
        assert_eq!(left_behind(child.id()), [""; 0], "{signal}");
        let now = loop_settings();
        assert!(before.iter().all(|setting| now.contains(setting)), "{before:?} {now:?}");
    }
}

#[test]
fn after_sigkill_nothing_is_left() {
    let Some((_turn, _)) = turn("after_sigkill_nothing_is_left") else { return };
    let (mut child, _said) = start();
    assert_ne!(left_behind(child.id()), [""; 0], "it is at work");
    kill(&child, "-KILL");
    child.wait().unwrap();
    wait_until_gone(child.id());
}

#[test]
fn an_instance_that_lost_its_keeper_too_goes_with_the_next_run() {
    let Some((_turn, facts)) = turn("an_instance_that_lost_its_keeper") else { return };
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let name = format!("folio-crosscheck-{}", ended.id());
    in_instances(|path| fs::create_dir(path.join(&name)).unwrap());
    drop(Recorder::new(facts).unwrap());
    assert!(!instances().contains(&name));
}
