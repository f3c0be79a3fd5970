//! `folio tune --persist` and `--unit`, `folio warm --persist`, and their undo, in a root directory
//! of the test.

use std::fs;
use std::process::{Output, Stdio};

use crate::support::{Place, text};
use crate::tune::System;

const TMPFILES: &str = "etc/tmpfiles.d/largefolio.conf";
const UDEV: &str = "etc/udev/rules.d/60-largefolio.rules";
const DROP_IN: &str = "etc/systemd/system/job.service.d/50-largefolio.conf";
const PERSIST: &str = "--set khugepaged.pages_to_scan=8192 --set readahead.vda=512 --persist";
const UNIT: &str = "--unit job --env GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

impl System {
    fn with_job() -> Self {
        let system = Self::new();
        system.write("usr/lib/systemd/system/job.service", "[Service]\nExecStart=/bin/true\n");
        system
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    fn warm(&self, args: &str) -> Output {
        let mut command = self.0.command("warm --root .");
        command.env("XDG_STATE_HOME", self.path("state"));
        command.args(args.split_whitespace()).output().unwrap()
    }
}

fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn without_yes_the_files_are_shown_and_nothing_is_written() {
    let system = System::with_job();
    let stdout = done(&system.tune(&format!("{PERSIST} {UNIT}")));
    for expected in [
        "2 settings change; 3 files would be written",
        TMPFILES,
        "khugepaged/pages_to_scan - - - - 8192",
        UDEV,
        r#"KERNEL=="vda", ATTR{queue/read_ahead_kb}="512""#,
        DROP_IN,
        r#"Environment="GLIBC_TUNABLES=glibc.malloc.hugetlb=1""#,
        &format!("nothing was changed; to apply it: {} tune --root ", Place::as_root()),
        "--persist",
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
    assert!(!system.path("etc").exists() && !system.path("state").exists());
}

#[test]
fn files_are_written_listed_and_taken_back_with_the_settings() {
    let system = System::with_job();
    let output = system.tune(&format!("{PERSIST} --yes --json"));
    let json: serde_json::Value = serde_json::from_str(&done(&output)).unwrap();
    assert_eq!(json["files"][0]["result"], "written");
    assert_eq!(json["files"][0]["text"], system.read(TMPFILES));
    assert!(text(&output.stderr).contains(&format!("{} tune --root . --undo", Place::as_root())));
    done(&system.tune(&format!("{UNIT} --yes")));
    done(&system.tune("--unit job.service --env MALLOC_ARENA_MAX=2 --yes"));
    assert_eq!(system.read(DROP_IN).matches("Environment=").count(), 2);
    let listed = done(&system.tune(""));
    assert!(listed.contains("3 files written earlier"), "{listed}");
    assert_eq!(listed.matches("  persisted").count(), 3, "{listed}");
    assert!(done(&system.tune("--csv")).contains(&format!("./{DROP_IN},,,persisted,")));
    let undone = done(&system.tune("--undo"));
    assert!(undone.starts_with("2 settings were recorded; 3 files were recorded"), "{undone}");
    assert_eq!(undone.matches("  removed").count(), 3, "{undone}");
    assert!(!system.path("etc").exists(), "the directories that were made went, too");
    assert_eq!(system.read("sys/block/vda/queue/read_ahead_kb"), "128");
    assert!(done(&system.tune("--undo")).contains("nothing to undo"));
}

#[test]
fn keeps_a_file_changed_by_others_and_exits_1() {
    let system = System::new();
    done(&system.tune(&format!("{PERSIST} --yes")));
    system.write(TMPFILES, "# mine\n");
    let listed = done(&system.tune(""));
    assert!(listed.contains("it was changed after folio wrote it"), "{listed}");
    let output = system.tune("--undo");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("--force removes it"), "{}", text(&output.stdout));
    assert!(!system.path(UDEV).exists() && system.path(TMPFILES).exists());
    done(&system.tune("--undo --force"));
    assert!(!system.path("etc").exists());
}

#[test]
fn checks_the_files_before_changing_a_setting() {
    let system = System::with_job();
    system.write(TMPFILES, "of the administrator");
    for (args, expected) in [
        (format!("{PERSIST} --yes"), "it exists, but this user's record does not list it"),
        ("--unit job --env A --yes".to_owned(), "expected NAME=VALUE"),
        ("--unit job --yes".to_owned(), "--env"),
        ("--env A=1 --yes".to_owned(), "--unit"),
        ("--unit ../x --env A=1 --yes".to_owned(), "only letters, digits"),
        ("--unit gone --env A=1 --yes".to_owned(), "there is no such service"),
        ("--undo --persist".to_owned(), "cannot be used with"),
    ] {
        let output = system.tune(&args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected), "{args}: {stderr}");
    }
    assert_eq!(system.read("sys/block/vda/queue/read_ahead_kb"), "128");
    assert_eq!(system.read(TMPFILES), "of the administrator");
}

#[test]
fn default_settings_need_no_file_unless_named() {
    let system = System::new();
    let output = system.tune("--set readahead.vda=128 --yes --persist");
    assert!(done(&output).contains("1 file written"), "{}", text(&output.stdout));
    done(&system.tune("--undo"));
    system.write(
        "mine.toml",
        "description = \"x\"\n[[setting]]\nname = \"readahead.vda\"\n\
        at-least = 64\nwhy = \"x\"\n",
    );
    let output = system.tune("--profile mine.toml --yes --persist");
    done(&output);
    assert!(text(&output.stderr).contains("no file is needed"), "{}", text(&output.stderr));
    assert!(!system.path("etc").exists());
}

#[test]
fn warns_if_a_file_reverts_the_change_at_boot() {
    let system = System::new();
    done(&system.tune("--set readahead.vda=512 --yes --persist"));
    let output = system.tune("--set readahead.vda=1024 --yes");
    assert!(text(&output.stderr).contains("to keep 1024, add --persist"));
    let output = system.tune("--set readahead.vda=1024 --yes --persist");
    assert!(!text(&output.stderr).contains("add --persist"));
    assert!(system.read(UDEV).contains("\"1024\"") && !system.read(UDEV).contains("\"512\""));
    done(&system.tune("--undo"));
    assert_eq!(system.read("sys/block/vda/queue/read_ahead_kb"), "128");
}

#[test]
fn a_read_only_or_full_etc_leaves_no_partial_file() {
    let system = System::with_job();
    fs::create_dir(system.path("etc")).unwrap();
    let folio = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
    let tune = format!("XDG_STATE_HOME=$PWD/state {folio} tune --root . {PERSIST} {UNIT} --yes");
    let mount = "mount -t tmpfs -o mode=755";
    let script = format!(
        "{mount},ro none etc || exit 77; {tune} 2>&1; umount etc
         {mount},size=4k,nr_inodes=4 none etc && {tune} 2>&1; find etc; umount etc
         {folio} --version"
    );
    let Some(output) = system.0.on_a_small_disk(&script) else { return };
    let stdout = text(&output.stdout);
    assert!(stdout.contains("make the filesystem writable"), "{stdout}");
    assert!(stdout.contains("free some space"), "{stdout}");
    assert!(stdout.contains("will not survive a reboot"), "{stdout}");
    assert!(!stdout.contains("largefolio.conf\n") && !stdout.contains(".folio-"), "{stdout}");
    done(&system.tune("--undo"));
    assert_eq!(system.read("sys/block/vda/queue/read_ahead_kb"), "128");
}

#[test]
fn existing_options_in_a_units_variable_are_kept() {
    let system = System::with_job();
    let unit = "[Service]\nEnvironment=A=1 GLIBC_TUNABLES=glibc.pthread.rseq=0\n";
    system.write("usr/lib/systemd/system/job.service", unit);
    let output = system.tune(&format!("{UNIT} --yes"));
    done(&output);
    let both = "GLIBC_TUNABLES=glibc.pthread.rseq=0:glibc.malloc.hugetlb=1";
    assert!(system.read(DROP_IN).contains(&format!("Environment=\"{both}\"")));
    assert!(text(&output.stderr).contains(&format!("this changes it to {both}")));
    done(&system.tune("--undo"));
}

/// As for settings: `--undo` works after a kill at any moment.
#[test]
fn undo_works_after_a_kill_while_writing_files() {
    let system = System::with_job();
    for round in 0..20 {
        let mut command = system.0.command(&format!("tune --root . --yes {PERSIST} {UNIT}"));
        command.env("XDG_STATE_HOME", system.path("state"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..round * 4000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let output = system.tune("--undo");
        assert_eq!(output.status.code(), Some(0), "{round}: {}", text(&output.stderr));
        let left = fs::read_dir(system.path("etc")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "killed in round {round}");
    }
}

#[test]
fn units_warm_a_file_again_and_go_with_undo() {
    let system = System::new();
    system.write("my job", &"x".repeat(1 << 20));
    let file = system.path("my job");
    let mut command = system.0.command("warm --root . --persist --json");
    command.env("XDG_STATE_HOME", system.path("state")).arg(&file);
    let output = command.output().unwrap();
    let stderr = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{stderr}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let units = json["units"].as_array().unwrap();
    assert_eq!(units.len(), 4, "two units and their links: {json}");
    let service = units[0]["text"].as_str().unwrap();
    let args = format!(" warm -- \"{}\"", file.display());
    assert!(service.contains(&args), "{service}");
    let name = units[1]["file"].as_str().unwrap();
    assert!(name.ends_with("-my\\x20job.path"), "{name}");
    assert!(units[1]["text"].as_str().unwrap().contains("PathChanged=/"), "{json}");
    let wants = system.path("etc/systemd/system/multi-user.target.wants");
    assert_eq!(fs::read_dir(&wants).unwrap().count(), 2);
    let again = system.warm(&format!("--persist {}", system.path("gone").display()));
    assert!(text(&again.stderr).contains("no unit was written"), "{}", text(&again.stderr));
    assert_eq!(fs::read_dir(&wants).unwrap().count(), 2);
    let undone = done(&system.tune("--undo"));
    assert_eq!(undone.matches("  removed").count(), 4, "{undone}");
    assert!(!system.path("etc").exists());
}

#[test]
fn a_service_gets_a_limit_of_thp_if_its_systemd_has_one() {
    let system = System::with_job();
    let args = "--unit job --thp off --yes";
    let refused = |expected: &str| {
        let output = system.tune(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected) && stderr.contains("systemctl edit"), "{stderr}");
    };
    refused("cannot tell whether this systemd has MemoryTHP=");
    system.write("usr/lib/systemd/libsystemd-shared-252.so", "");
    refused("systemd 252 has no MemoryTHP=");
    system.write("usr/lib/systemd/libsystemd-shared-260.so", "");
    done(&system.tune(&format!("{UNIT} --thp off --yes")));
    done(&system.tune("--unit job --thp advised --yes"));
    let written = system.read(DROP_IN);
    assert!(written.contains("\nMemoryTHP=madvise\n"), "{written}");
    assert!(!written.contains("disable") && written.contains("Environment="), "{written}");
    done(&system.tune("--undo"));
    assert!(!system.path(DROP_IN).exists());
    let output = system.tune("--unit job --env A=1 --canary 10% --check true --set thp.2M=never");
    assert!(text(&output.stderr).contains("cannot be used with"), "{}", text(&output.stderr));
    let later = "etc/systemd/system/job.service.d/override.conf";
    for (line, args) in [
        ("MemoryTHP=madvise", "--thp off"),
        ("Environment=A=1", "--env A=2"),
        ("Environment=", "--env A=2"),
    ] {
        system.write(later, &format!("[Service]\n{line}\n"));
        let output = system.tune(&format!("--unit job {args} --yes"));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(text(&output.stderr).contains("override.conf: it sets"), "{line}");
        assert!(!system.path(DROP_IN).exists());
    }
    let output = system.tune("--unit job --env A=1 --canary 10% --check true");
    assert!(text(&output.stderr).contains("only without --root"), "{}", text(&output.stderr));
}
