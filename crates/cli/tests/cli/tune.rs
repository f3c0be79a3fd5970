//! `folio tune` on a copy of a system's settings, including kills during a change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{Place, text};

/// A service user has no home, but the error must name the missing privileges.
#[test]
fn names_the_sudo_command_before_searching_a_home() {
    let place = Place::new();
    let mut command = place.command_of_nobody("tune --set thp.enabled=always --yes");
    command.env_remove("XDG_STATE_HOME").env("HOME", "/nonexistent");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            largefolio_testkit::skipped!("the user nobody cannot run folio: {error}");
            return;
        }
    };
    let stderr = text(&output.stderr);
    if output.status.code() == Some(0) {
        largefolio_testkit::skipped!("thp.enabled is always here already");
        return;
    }
    assert!(stderr.contains("only root can change system settings: run `sudo "), "{stderr}");
    assert!(!stderr.contains("/nonexistent"), "{stderr}");
}

const THP: &str = "sys/kernel/mm/transparent_hugepage";

pub(crate) struct System(pub(crate) Place);

impl System {
    pub(crate) fn new() -> Self {
        let system = Self(Place::new());
        system.write(&format!("{THP}/enabled"), "always madvise [never]");
        system.write(&format!("{THP}/khugepaged/pages_to_scan"), "4096");
        system.write("sys/block/vda/queue/read_ahead_kb", "128");
        system.write("sys/block/vda/dev", "254:0");
        system.write("proc/self/mountinfo", "20 1 254:0 / / rw - ext4 /dev/vda rw\n");
        system.write("proc/sys/kernel/random/boot_id", "one");
        system.write("bin/sudo", "");
        fs::set_permissions(system.path("bin/sudo"), fs::Permissions::from_mode(0o755)).unwrap();
        system
    }

    pub(crate) fn write(&self, file: &str, value: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path(file)
    }

    fn readahead(&self) -> String {
        fs::read_to_string(self.path("sys/block/vda/queue/read_ahead_kb")).unwrap()
    }

    pub(crate) fn tune(&self, args: &str) -> Output {
        let mut command = self.0.command("tune --root .");
        command.env("XDG_STATE_HOME", self.path("state")).env("PATH", self.path("bin"));
        command.args(args.split_whitespace()).output().unwrap()
    }
}

#[test]
fn the_command_has_sudo_only_where_it_is_installed() {
    let system = System::new();
    let check_remedy = |command: &str| {
        let stdout = text(&system.tune("").stdout);
        assert!(stdout.contains(&format!("to apply it: {command} --yes")), "{command}: {stdout}");
    };
    let with_sudo = format!("{} tune --root .", Place::as_root());
    check_remedy(&with_sudo);
    fs::remove_file(system.path("bin/sudo")).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    check_remedy(if is_root { with_sudo.trim_start_matches("sudo ") } else { &with_sudo });
}

#[test]
fn a_plan_changes_nothing_and_names_the_command() {
    let system = System::new();
    let output = system.tune("");
    assert_eq!(output.status.code(), Some(0));
    let stdout = text(&output.stdout);
    for expected in [
        "thp.enabled",
        "never -> madvise",
        "readahead.vda",
        &format!("to apply it: {} tune --root . --yes", Place::as_root()),
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
    assert!(stdout.contains("left out: thp.64K"), "{stdout}");
    assert_eq!(system.readahead(), "128");
    assert!(!system.path("state").exists(), "a plan leaves no trace");
}

#[test]
fn yes_changes_and_undo_puts_back() {
    let system = System::new();
    let output = system.tune("--set readahead.vda=4096 --set khugepaged.pages_to_scan=8192 --yes");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("folio tune --root . --undo"));
    assert_eq!(system.readahead(), "4096");
    let planned = text(&system.tune("").stdout);
    assert!(planned.contains("changed earlier and not restored: readahead.vda"), "{planned}");
    let output = system.tune("--undo --json");
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["rows"][1]["setting"], "readahead.vda");
    assert_eq!(json["rows"][1]["result"], "put back");
    assert_eq!(system.readahead(), "128");
    let again = system.tune("--undo");
    assert!(text(&again.stdout).contains("nothing to undo"));
}

#[test]
fn keeps_settings_changed_by_others_and_exits_1() {
    let system = System::new();
    system.tune("--set readahead.vda=4096 --yes");
    system.write("sys/block/vda/queue/read_ahead_kb", "512");
    let output = system.tune("--undo");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("--force"), "{}", text(&output.stdout));
    assert_eq!(system.readahead(), "512");
    assert_eq!(system.tune("--undo --force").status.code(), Some(0));
    assert_eq!(system.readahead(), "128");
}

#[test]
fn errors_name_the_expected_values_and_change_nothing() {
    let system = System::new();
    for (args, expected) in [
        ("--set readahead.vda --yes", "expected NAME=VALUE"),
        ("--set thp.enabled=often --yes", "always, madvise, never"),
        ("--set readahead.vda=512 --set thp.enabled=often --yes", "always, madvise, never"),
        ("--set nothing=1", "expected thp.enabled"),
        ("--profile gone.toml", "cannot read gone.toml"),
        ("--profile small", "large-always"),
        ("--undo --yes", "cannot be used with"),
    ] {
        let output = system.tune(args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected), "{args}: {stderr}");
    }
    assert_eq!(system.readahead(), "128");
}

/// Settings of a kernel built with `kernel/`.
#[test]
fn features_of_the_kernel_are_settings_where_it_has_them() {
    let system = System::new();
    let output = system.tune("--set largefolio.exec_order=window --yes");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for expected in ["this kernel does not have the setting", "`make kernel`"] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
    assert!(!text(&system.tune("").stdout).contains("largefolio."));
    let file = "sys/kernel/mm/largefolio/exec_order";
    system.write(file, "[off] block window\n");
    let listed = text(&system.tune("").stdout);
    let line = listed.lines().find(|line| line.contains("largefolio.exec_order"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    assert_eq!(words, ["largefolio.exec_order", "off", "stays"], "{listed}");
    let output = system.tune("--set largefolio.exec_order=window --yes --persist");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let read = |file: &str| fs::read_to_string(system.path(file)).unwrap();
    assert_eq!(read(file), "off block [window]");
    let line = "w /sys/kernel/mm/largefolio/exec_order - - - - window\n";
    assert!(read("etc/tmpfiles.d/largefolio.conf").contains(line));
    assert_eq!(system.tune("--undo").status.code(), Some(0));
    assert_eq!(read(file), "[off] block window");
    assert!(!system.path("etc").exists());
}

/// `--undo` works after a kill at any moment. The moments vary from run to run; the tests of
/// `largefolio_linux::tune` interrupt each step in turn.
#[test]
fn undo_works_after_a_kill_while_changing_settings() {
    let system = System::new();
    for round in 0..20 {
        let mut command = system.0.command("tune --root . --yes --set readahead.vda=4096");
        command.env("XDG_STATE_HOME", system.path("state"));
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        for _ in 0..round * 1000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let output = system.tune("--undo");
        assert_eq!(output.status.code(), Some(0), "{round}: {}", text(&output.stderr));
        assert_eq!(system.readahead(), "128", "killed in round {round}");
    }
}

#[test]
fn the_next_tune_removes_leftovers_of_a_killed_one() {
    let system = System::new();
    for name in ["state/largefolio/.tmpAb12Cd", "state/largefolio/.folio-Ab12Cd.tmp"] {
        system.write(name, "half of a record");
    }
    system.write("state/largefolio/.tmp-mine", "a file of the user");
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(system.path("state/largefolio"), mode).unwrap();
    let output = system.tune("--set readahead.vda=4096 --yes");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let names = fs::read_dir(system.path("state/largefolio")).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() == 3 && names[1].starts_with("tune-"), "{names:?}");
    assert_eq!([&names[0], &names[2]], [".tmp-mine", "tune.lock"]);
}
