//! Cases where the text must not be moved: processes, stores and machines that forbid it, and
//! violent exits.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use largefolio_linux::remap::{Options, Refusal, Remap};

use crate::stubs::{
    ALIGNED, Stage, StubReport, names, options, parse_report, preload, program, tmpfs,
};
use crate::support::{has, itself, read_until};

/// A user that owns nothing.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        largefolio_testkit::skipped!("needs root");
    }
    is_root
}

fn refused(stage: &Stage, command: &mut Command) -> (StubReport, Vec<Refusal>) {
    let report = parse_report(&command.output().unwrap());
    let summary = stage.remap.summary().unwrap();
    let texts = summary.texts.values().flat_map(|text| text.refused.keys().copied());
    (report, summary.refused.keys().copied().chain(texts).collect())
}

#[test]
fn a_store_that_is_a_link_or_of_others_or_open_to_them_is_refused() {
    preload();
    let folder = tmpfs();
    let refusal = |path: &Path| {
        let options = Options { store: Some(path.to_owned()), ..Options::default() };
        Remap::prepare(&options).unwrap_err().refusal
    };
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, Permissions::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    symlink(&real, &link).unwrap();
    assert_eq!(refusal(&link), Refusal::StoreUntrusted);
    for mode in [0o755, 0o770, 0o1700] {
        fs::set_permissions(&real, Permissions::from_mode(mode)).unwrap();
        assert_eq!(refusal(&real), Refusal::StoreUntrusted, "mode {mode:o}");
    }
    fs::set_permissions(&real, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(refusal(&folder.path().join("none/here")), Refusal::StoreMissing);
    assert_eq!(refusal(Path::new("/proc/self")), Refusal::StoreUntrusted);
    assert!(names(&real).is_empty(), "a refused store was written to");
    if is_root() {
        std::os::unix::fs::chown(&real, Some(NOBODY), None).unwrap();
        assert_eq!(refusal(&real), Refusal::StoreUntrusted);
    }
}

#[test]
fn the_library_checks_the_store_itself() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 4, ALIGNED);
    let store = stage.remap.store().to_owned();
    let run = |store: &Path| {
        let mut command = stage.command(&stubs, "run");
        command.env("LARGEFOLIO_REMAP", store).env("LARGEFOLIO_VERBOSE", "1");
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (StubReport::read(&text).large_kib, String::from_utf8(output.stderr).unwrap())
    };
    let link = stage.folder.path().join("link");
    symlink(&store, &link).unwrap();
    let (large, text) = run(&link);
    assert!(large == 0 && text.contains("is a link, belongs to another user"), "{text}");
    fs::set_permissions(&store, Permissions::from_mode(0o750)).unwrap();
    let (large, text) = run(&store);
    assert!(large == 0 && text.contains("accessible to other users"), "{text}");
    fs::set_permissions(&store, Permissions::from_mode(0o700)).unwrap();
    let (large, text) = run(Path::new("/nonexistent"));
    assert!(large == 0 && text.contains("is gone"), "{text}");
    if is_root() {
        std::os::unix::fs::chown(&store, Some(NOBODY), None).unwrap();
        let (large, text) = run(&store);
        assert!(large == 0 && text.contains("another user"), "{text}");
        std::os::unix::fs::chown(&store, Some(0), None).unwrap();
    }
    assert!(run(&store).0 >= 2 << 10);
}

#[test]
fn a_planted_copy_is_not_used_and_a_planted_link_not_followed() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 4, ALIGNED);
    let large =
        |stage: &Stage| parse_report(&stage.command(&stubs, "run").output().unwrap()).large_kib;
    assert!(large(&stage) >= 2 << 10);
    let name = stage.copies().remove(0);
    let copy = stage.remap.store().join(name);
    let bytes = fs::read(&copy).unwrap();
    for (mode, content) in [(0o600, &bytes[..]), (0o444, &bytes), (0o400, &bytes[..4096])] {
        fs::remove_file(&copy).unwrap();
        fs::write(&copy, content).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(mode)).unwrap();
        assert_eq!(large(&stage), 0, "mode {mode:o}, {} bytes", content.len());
    }
    fs::remove_file(&copy).unwrap();
    let victim = stage.folder.path().join("victim");
    fs::write(&victim, "as it was").unwrap();
    symlink(&victim, &copy).unwrap();
    assert!(large(&stage) >= 2 << 10);
    assert!(fs::symlink_metadata(&copy).unwrap().is_file());
    assert_eq!(fs::read(&victim).unwrap(), b"as it was");
    let summary = stage.remap.summary().unwrap();
    assert_eq!(summary.texts["stubs"].refused[&Refusal::BadCopy], 3);
}

#[test]
fn a_program_with_the_rights_of_its_file_is_left_alone() {
    if !is_root() || !has("setpriv", "util-linux") {
        return;
    }
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 4, ALIGNED);
    fs::set_permissions(stage.folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&stubs, Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(Remap::check(&stubs).unwrap_err().refusal, Refusal::Secure);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&stubs).arg("run");
    stage.remap.apply(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(StubReport::read(&String::from_utf8(output.stdout).unwrap()).large_kib, 0);
    assert!(stage.copies().is_empty(), "{:?}", stage.copies());
}

#[test]
fn programs_the_library_cannot_enter_are_told_before_they_start() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 1, &["-static"]);
    assert_eq!(Remap::check(&stubs).unwrap_err().refusal, Refusal::Static);
    assert_eq!(parse_report(&stage.command(&stubs, "run").output().unwrap()).large_kib, 0);
    let mut foreign = fs::read(&stubs).unwrap();
    foreign[18] = 243;
    let path = stage.folder.path().join("foreign");
    fs::write(&path, foreign).unwrap();
    assert_eq!(Remap::check(&path).unwrap_err().refusal, Refusal::Foreign);
    fs::write(&path, "#!/bin/sh\n").unwrap();
    Remap::check(&path).unwrap();
    Remap::check(Path::new("/bin/ls")).unwrap();
}

#[test]
fn a_filtered_process_and_one_without_large_folios_are_left_alone() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 4, ALIGNED);
    let (report, refusals) = refused(&stage, &mut stage.command(&stubs, "plain-thp"));
    assert_eq!((report.large_kib, &refusals[..]), (0, &[Refusal::ThpDisabled][..]));
    let nr_before = stage.remap.summary().unwrap().nr_processes;
    let (report, _) = refused(&stage, &mut stage.command(&stubs, "filtered"));
    assert_eq!(report.large_kib, 0);
    // The filter may kill the process for the report's calls, so only the one before it reported.
    assert_eq!(stage.remap.summary().unwrap().nr_processes, nr_before + 1);
}

#[test]
fn a_sanitized_program_runs_and_is_left_alone() {
    let stage = Stage::new();
    let source = stage.folder.path().join("p.c");
    let text = "__asm__(\".text\\n.fill 8388608,1,0xc3\\n\");\nint main(void) { return 3; }\n";
    fs::write(&source, text).unwrap();
    let path = stage.folder.path().join("p");
    let mut gcc = Command::new("gcc");
    gcc.args(["-fsanitize=address", "-o"]).arg(&path).arg(&source);
    if !gcc.stderr(Stdio::null()).status().unwrap().success() {
        largefolio_testkit::skipped!(
            "gcc has no libasan; `apt-get install libasan8` to run this test"
        );
        return;
    }
    let output = stage.command(&path, "").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.as_str()), (Some(3), ""));
    let summary = stage.remap.summary().unwrap();
    assert!(summary.refused.contains_key(&Refusal::Sanitizer), "{summary:?}");
}

#[test]
fn limits_on_memory_and_on_files_are_kept() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 4, ALIGNED);
    let mut poor = stage.command(&stubs, "run");
    let (report, refusals) = refused(&stage, poor.env("LARGEFOLIO_REMAP_BUDGET", "1048576"));
    assert_eq!((report.large_kib, &refusals[..]), (0, &[Refusal::LowMemory][..]));
    // 1 MiB: exceeding it would raise SIGXFSZ. This limit is too small even for the report.
    let limited = format!("ulimit -f 1024; exec {} run", stubs.display());
    let mut command = Command::new("sh");
    stage.remap.apply(command.args(["-c", &limited]));
    assert_eq!(parse_report(&command.output().unwrap()).large_kib, 0);
    assert!(stage.copies().is_empty());
}

struct Mounted(PathBuf);

impl Mounted {
    fn new(path: PathBuf, flags: &str) -> Self {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", flags, "largefolio-test"]).arg(&path);
        assert!(mount.status().unwrap().success());
        Self(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_mount_without_execution_or_room_is_refused() {
    if !is_root() {
        return;
    }
    preload();
    let folder = tmpfs();
    let noexec = Mounted::new(folder.path().join("noexec"), "noexec,mode=0700");
    let place = |path: PathBuf| Options { store: Some(path), ..Options::default() };
    let error = Remap::prepare(&place(noexec.0.join("store"))).unwrap_err();
    assert_eq!(error.refusal, Refusal::NoExec, "{error}");
    let small = Mounted::new(folder.path().join("small"), "size=1m,mode=0700");
    let error = Remap::prepare(&place(small.0.join("store"))).unwrap_err();
    assert_eq!(error.refusal, Refusal::LowMemory, "{error}");
    let tight = Mounted::new(folder.path().join("tight"), "size=10m,mode=0700");
    let remap = Remap::prepare(&place(tight.0.join("store"))).unwrap();
    let stubs = program(folder.path(), 16, ALIGNED);
    let mut command = Command::new(&stubs);
    remap.apply(command.arg("run"));
    assert_eq!(parse_report(&command.output().unwrap()).large_kib, 0);
    assert!(remap.summary().unwrap().texts["stubs"].refused.contains_key(&Refusal::LowMemory));
    drop(remap);
}

/// The next test runs this as a separate process.
#[test]
#[ignore = "helper of `a_killed_launcher_leaves_nothing_that_the_next_does_not_remove`"]
fn hold() {
    let store = std::env::var_os("LARGEFOLIO_TEST_STORE").map(PathBuf::from);
    let stubs = std::env::var_os("LARGEFOLIO_TEST_STUBS").unwrap();
    let remap = Remap::prepare(&Options { store, ..Options::default() }).unwrap();
    let mut command = Command::new(stubs);
    remap.apply(command.arg("run"));
    parse_report(&command.output().unwrap());
    eprintln!("holding");
    std::thread::sleep(std::time::Duration::from_mins(1));
}

#[test]
fn a_killed_launcher_leaves_nothing_that_the_next_does_not_remove() {
    preload();
    let folder = tmpfs();
    let stubs = program(folder.path(), 8, ALIGNED);
    let store = folder.path().join("store");
    let mut launcher = itself("refusals::hold")
        .env("LARGEFOLIO_TEST_STORE", &store)
        .env("LARGEFOLIO_TEST_STUBS", &stubs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _stderr = read_until(launcher.stderr.take(), "holding");
    let alive = Remap::prepare(&options(&folder)).unwrap();
    assert_eq!(names(&store).len(), 2, "the copies of a launcher that lives stay");
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    drop(alive);
    let left = names(&store);
    assert_eq!(left.len(), 1, "the link to the program: {left:?}");
    assert!(fs::symlink_metadata(store.join(&left[0])).unwrap().is_symlink());
    assert_eq!(fs::read_link(store.join(&left[0])).unwrap(), stubs);
    let reports = fs::read_dir(&store).unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("report.")
    });
    assert_eq!(reports.count(), 0);
    // The link disappears with its file.
    fs::remove_file(&stubs).unwrap();
    drop(Remap::prepare(&options(&folder)).unwrap());
    assert_eq!(names(&store), [""; 0]);
}

#[test]
fn a_process_killed_at_any_point_leaves_a_whole_copy_or_none() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 32, ALIGNED);
    let original = fs::read(&stubs).unwrap();
    let mut nr_whole = 0;
    for round in 0..40_u32 {
        let mut child = stage.command(&stubs, "spin").stdout(Stdio::null()).spawn().unwrap();
        // The check must hold at any moment, so rounds stop at different times.
        std::thread::sleep(std::time::Duration::from_micros(u64::from(round) * 400));
        child.kill().unwrap();
        child.wait().unwrap();
        for name in stage.copies() {
            nr_whole += 1;
            let copy = fs::read(stage.remap.store().join(&name)).unwrap();
            let blocks = 2 << 20..32 << 20;
            assert!(copy[blocks.clone()] == original[blocks], "a copy differs from its file");
            fs::remove_file(stage.remap.store().join(name)).unwrap();
        }
    }
    // A process that is not killed makes the copy, whatever remains of earlier ones.
    let report = parse_report(&stage.command(&stubs, "run").output().unwrap());
    assert!(report.large_kib >= 30 << 10, "{report:?} after {nr_whole} whole copies");
}

/// The next test runs this as an ordinary user.
#[test]
#[ignore = "helper of `an_ordinary_user_needs_no_rights`"]
fn as_user() {
    let stubs = std::env::var_os("LARGEFOLIO_TEST_STUBS").unwrap();
    let remap = Remap::prepare(&Options::default()).unwrap();
    let mut command = Command::new(stubs);
    remap.apply(command.arg("run"));
    let report = parse_report(&command.output().unwrap());
    assert!(report.large_kib >= 2 << 10, "{report:?}");
}

#[test]
fn an_ordinary_user_needs_no_rights() {
    if !is_root() || !has("setpriv", "util-linux") {
        return;
    }
    preload();
    let folder = tmpfs();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let stubs = program(folder.path(), 4, ALIGNED);
    let as_nobody = || {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        setpriv
    };
    let test = std::env::current_exe().unwrap();
    if !as_nobody().arg("test").arg("-x").arg(&test).status().unwrap().success() {
        let place = test.display();
        largefolio_testkit::skipped!(
            "an_ordinary_user_needs_no_rights: other users cannot run {place}"
        );
        return;
    }
    let output = as_nobody()
        .arg(test)
        .args(["--exact", "refusals::as_user", "--ignored"])
        .env("LARGEFOLIO_TEST_STUBS", &stubs)
        .output()
        .unwrap();
    fs::remove_dir_all(format!("/dev/shm/largefolio-{NOBODY}")).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
