//! `folio warm`, `folio align`, `folio collapse` from outside: output formats, exit codes, reasons.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::run::{compile, has_large_folios};
use crate::support::{Place, copy_program, text};

#[test]
fn warm_reports_each_file_in_every_form() {
    let place = Place::new();
    if !has_large_folios(&place) || !compile(&place, "-no-pie") {
        return;
    }
    let looked: Value = serde_json::from_str(&place.done("warm --check --json p")).unwrap();
    assert_eq!((&looked["schema_version"], &looked["is_check"]), (&2.into(), &true.into()));
    let row = &looked["rows"][0];
    assert_eq!((&row["before_bytes"], &row["possible_bytes"]), (&0.into(), &(8 << 20).into()));
    let table = place.done("warm p");
    assert!(table.contains("0 B -> 8 MiB"), "{table}");
    let csv = place.done("warm --csv p");
    assert!(csv.starts_with("path,filesystem,file_bytes,possible_bytes,before_bytes,"), "{csv}");
    assert!(csv.contains(",8388608,8388608,8388608,"), "{csv}");
    fs::write(place.path("short"), vec![1; 1 << 20]).unwrap();
    let row = &serde_json::from_str::<Value>(&place.done("warm --json short")).unwrap()["rows"][0];
    assert_eq!((&row["folio_bytes"], &row["possible_bytes"]), (&65536.into(), &(1 << 20).into()));
    let is_root = rustix::process::geteuid().is_root();
    assert!(row["after_bytes"] == row["possible_bytes"] || !is_root, "{row}");
    fs::create_dir(place.path("below")).unwrap();
    fs::rename(place.path("p"), place.path("below/p")).unwrap();
    fs::write(place.path("below/text"), "no program").unwrap();
    let result: Value = serde_json::from_str(&place.done("warm -r --json below")).unwrap();
    assert_eq!(result["rows"].as_array().unwrap().len(), 1);
}

/// The moments of the kills vary from run to run.
#[test]
fn killing_warm_never_changes_the_file() {
    let place = Place::new();
    if !has_large_folios(&place) || !compile(&place, "-no-pie") {
        return;
    }
    let original = fs::read(place.path("p")).unwrap();
    let is_intact = |name: &str| fs::read(place.path(name)).unwrap() == original;
    for round in 0..12 {
        let name = format!("copy{round}");
        copy_program(place.path("p"), place.path(&name));
        let mut warm =
            place.command(&format!("warm {name}")).stdout(Stdio::null()).spawn().unwrap();
        for _ in 0..round * 40_000 {
            std::hint::spin_loop();
        }
        warm.kill().unwrap();
        warm.wait().unwrap();
        assert!(is_intact(&name), "killed in round {round}");
        fs::remove_file(place.path(&name)).unwrap();
    }
    copy_program(place.path("p"), place.path("last"));
    let result: Value = serde_json::from_slice(&place.run("warm --json last").stdout).unwrap();
    let row = &result["rows"][0];
    assert_eq!(row["after_bytes"], row["possible_bytes"], "{result}");
    assert!(is_intact("last"));
}

#[test]
fn warm_exits_1_with_a_reason() {
    let place = Place::new();
    fs::write(place.path("short"), "x").unwrap();
    let output = place.run("warm short");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("shorter than 64K"));
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = shm.path().join("file");
    fs::write(&file, vec![1; 4 << 20]).unwrap();
    let output = place.run(&format!("warm {}", file.display()));
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("on tmpfs") && stdout.contains("folio collapse PID"), "{stdout}");
    let output = place.run("warm nothing . short");
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("cannot read nothing: No such file"), "{stderr}");
    assert!(stderr.contains(".: is a folder; --recursive"), "{stderr}");
    fs::create_dir(place.path("bare")).unwrap();
    let stderr = text(&place.run("warm --check -r bare").stderr);
    assert!(stderr.contains("bare contains no ELF files: there is nothing to warm"), "{stderr}");
}

#[test]
fn warm_finds_the_libraries_of_a_program() {
    let place = Place::new();
    let output = place.run("warm --libs --check --json /bin/sh");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let has = |name: &str| rows.iter().any(|row| row["path"].as_str().unwrap().contains(name));
    assert!(has("/libc") && has("/ld"), "{rows:?}");
}

#[test]
fn align_validates_by_running() {
    let place = Place::new();
    if !compile(&place, "-pie -fPIE") {
        return;
    }
    let output = place.run("align p -o copy --validate -- a b");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("of text in whole blocks of 2M"), "{stderr}");
    assert!(stderr.contains("copy ran and ended with exit code 2"), "{stderr}");
    let again = place.fails("align copy -o copy2");
    assert!(again.contains("already aligned"), "{again}");
    assert!(place.fails("align p -o p").contains("the copy would overwrite the original"));
    assert!(place.fails("align p.c -o q").contains("not an ELF file"));
    assert!(place.fails("align p -o no/where").contains("No such file"));
    assert!(!place.path("q").exists());
}

struct Holder {
    launcher: Child,
    pid: u32,
}

impl Holder {
    fn start(code: &str) -> Self {
        let code = format!("import mmap,sys;{code};print('ready',flush=True);sys.stdin.read()");
        let mut launcher = Command::new("python3")
            .args(["-c", &code])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        launcher.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", launcher.id()));
        let pid = children.ok().and_then(|text| text.split(' ').next()?.parse().ok());
        let pid = pid.unwrap_or(launcher.id());
        Self { launcher, pid }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.launcher.stdin.take());
        let _ = self.launcher.wait();
    }
}

#[test]
fn collapse_reports_what_remains_and_exits_1() {
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("collapse of another process needs root");
        return;
    }
    let place = Place::new();
    let holder = Holder::start(
        "m=mmap.mmap(-1,8<<20,mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS);m.madvise(15);\
         m[::4096]=b'x'*2048;x=bytearray(b'x')*(16<<20)",
    );
    let output = place.run(&format!("collapse {} --kind anon", holder.pid));
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let mut lines = stdout.lines();
    let headline = lines.next().unwrap();
    assert!(headline.ends_with(" before; not everything was collapsed"), "{stdout}");
    let left = lines.next().unwrap();
    assert!(
        left.starts_with("not tried: 8 MiB of anon: the program forbids it: MADV_NOHUGEPAGE"),
        "{stdout}"
    );
    let again = place.run(&format!("collapse {} --kind anon --csv", holder.pid));
    assert!(
        text(&again.stdout).starts_with(
            "pid,kind,areas,blocks,before_bytes,after_bytes,refused,not_tried_bytes\n"
        )
    );
}

#[test]
fn collapse_reports_each_kind_and_refusals() {
    let place = Place::new();
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("collapse of another process needs root");
        return;
    }
    if !compile(&place, "-no-pie") {
        return;
    }
    let holder = Holder::start("x=bytearray(b'x')*(16<<20)");
    let pid = holder.pid;
    let output = place.run(&format!("collapse {pid} --kind anon --json"));
    drop(holder);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &result["rows"][0];
    assert_eq!((&row["kind"], &result["schema_version"]), (&"anon".into(), &1.into()));
    assert!(row["after_bytes"].as_u64() > row["before_bytes"].as_u64(), "{row}");
    let gone = place.fails(&format!("collapse {pid}"));
    assert!(gone.contains(&format!("no process {pid}")), "{gone}");
    let own = place.fails("collapse 4194304000");
    assert!(own.contains("no process 4194304000"), "{own}");
}

#[test]
fn collapse_of_a_process_of_root_names_the_command() {
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("needs root to become another user");
        return;
    }
    let place = Place::new();
    copy_program(assert_cmd::cargo::cargo_bin!("folio"), place.path("folio"));
    fs::set_permissions(place.0.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let output = Command::new("setpriv")
        .current_dir(place.0.path())
        .args("--reuid 65534 --regid 65534 --clear-groups ./folio collapse 1".split(' '))
        .output();
    let Ok(output) = output else {
        largefolio_testkit::skipped!("setpriv is not installed");
        return;
    };
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    let own = place.path("folio");
    let typed = format!("needs root; run\n  sudo {} collapse 1", own.display());
    assert!(stderr.contains(&typed), "{typed}: {stderr}");
}
