//! `folio tune --canary` with a systemctl that behaves like systemd's, in a mount namespace with its
//! own /etc/systemd/system and /run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use crate::support::{Place, text};

/// Lists three instances. A restart notes whether the instance has the drop-in.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >> "$PLACE/calls"
case "$1" in
list-units) for nr in 1 2 3; do echo "worker@$nr.service loaded active running Worker"; done ;;
restart)
    if [ -e "/etc/systemd/system/$2.d/50-largefolio.conf" ]; then echo new; else echo old; fi > "$PLACE/state/$2"
    if [ "$(cat "$PLACE/state/$2")" = "$BROKEN" ]; then echo "Job for $2 failed" >&2; exit 1; fi ;;
esac
"#;

struct Host(Place);

impl Host {
    fn new() -> Self {
        let host = Self(Place::new());
        for folder in ["bin", "state", "units"] {
            fs::create_dir(host.0.path(folder)).unwrap();
        }
        let systemctl = host.0.path("bin/systemctl");
        fs::write(&systemctl, SYSTEMCTL).unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        for nr in 1..=3 {
            fs::write(host.0.path(&format!("state/worker@{nr}.service")), "old\n").unwrap();
        }
        host
    }

    /// Runs `script` in the namespace; `None` if it cannot be made.
    fn run(&self, script: &str) -> Option<Output> {
        let place = self.0.path(".").canonicalize().unwrap();
        let script = format!(
            "mount -t tmpfs none /run && mkdir -p /run/systemd/system && \
             mount --bind \"$PLACE/units\" /etc/systemd/system || exit 77\n{script}"
        );
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .env("PLACE", &place)
            .env("FOLIO", crate::program())
            .env("XDG_STATE_HOME", place.join("record"))
            .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", place.join("bin").display()))
            .output()
            .ok()?;
        let is_refused =
            output.status.code() == Some(77) || text(&output.stderr).contains("unshare failed");
        if is_refused {
            largefolio_testkit::skipped!("no mount namespace: {}", text(&output.stderr));
            return None;
        }
        Some(output)
    }

    fn state(&self) -> Vec<String> {
        let read = |nr| fs::read_to_string(self.0.path(&format!("state/worker@{nr}.service")));
        (1..=3).map(|nr| read(nr).unwrap().trim().to_owned()).collect()
    }

    fn drop_ins(&self) -> usize {
        fs::read_dir(self.0.path("units")).unwrap().count()
    }
}

const TUNE: &str = "\"$FOLIO\" tune --unit worker@ --env MODE=new --canary 34% --restart --for 1s";
const OLD: [&str; 3] = ["old", "old", "old"];
const SOME_NEW: [&str; 3] = ["new", "new", "old"];

#[test]
fn some_instances_change_if_the_check_succeeds() {
    let host = Host::new();
    let Some(output) = host.run(&format!("{TUNE} --check true")) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("2 files would be written"), "a plan");
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
    let output = host.run(&format!("{TUNE} --check 'test -n \"$UNIT$INSTANCE\"' --yes")).unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("2 of 3 instances change: worker@1.service, worker@2.service"));
    assert_eq!((host.state(), host.drop_ins()), (SOME_NEW.map(str::to_owned).to_vec(), 2));
    let again = host.run(&format!("{TUNE} --check true --yes")).unwrap();
    assert!(text(&again.stderr).contains("an earlier change of one of these instances"));
    let undone = host.run("\"$FOLIO\" tune --undo").unwrap();
    assert!(text(&undone.stdout).contains("2 files were recorded"), "{}", text(&undone.stdout));
    assert_eq!(host.drop_ins(), 0);
}

#[test]
fn a_failed_check_takes_the_change_back() {
    let host = Host::new();
    let check = "--check 'test \"$(cat \"$PLACE/state/$UNIT\")\" = old' --yes";
    let Some(output) = host.run(&format!("{TUNE} {check}")) else { return };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the check of worker@1.service failed"), "{stderr}");
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
    let calls = fs::read_to_string(host.0.path("calls")).unwrap();
    assert_eq!(calls.matches("restart worker@1.service").count(), 2, "{calls}");
    assert_eq!(calls.matches("worker@3").count(), 0, "{calls}");
}

#[test]
fn a_failed_restart_takes_the_change_back() {
    let host = Host::new();
    let Some(output) = host.run(&format!("export BROKEN=new; {TUNE} --check true --yes")) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("Job for worker@1.service failed"));
    let calls = fs::read_to_string(host.0.path("calls")).unwrap();
    assert_eq!(calls.matches("restart worker@2.service").count(), 1, "put back too: {calls}");
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
}

#[test]
fn a_check_that_fails_beforehand_changes_nothing() {
    let host = Host::new();
    let Some(output) = host.run(&format!("{TUNE} --check false --yes")) else { return };
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("before any change"), "{}", text(&output.stderr));
    assert_eq!(host.drop_ins(), 0);
}

#[test]
fn undo_removes_what_a_killed_canary_left() {
    let host = Host::new();
    let check = "--check 'test \"$(cat \"$PLACE/state/$UNIT\")\" = old || kill -9 $PPID' --yes";
    let script = format!(
        "{TUNE} {check}\nls /etc/systemd/system | wc -l\n\"$FOLIO\" tune --undo >/dev/null\n\
         systemctl restart worker@1.service"
    );
    let Some(output) = host.run(&script) else { return };
    assert_eq!(text(&output.stdout).trim(), "2", "{}", text(&output.stderr));
    assert_eq!((host.state()[0].as_str(), host.drop_ins()), ("old", 0));
}

#[test]
fn ctrl_c_takes_the_change_back() {
    let host = Host::new();
    let check = "--check 'test \"$(cat \"$PLACE/state/$UNIT\")\" = old || kill -INT $PPID' --yes";
    let script = format!("{} {check}", TUNE.replace("--for 1s", "--for 1h"));
    let Some(output) = host.run(&script) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
}

#[test]
fn every_instance_is_restarted_although_one_fails_again() {
    let host = Host::new();
    let script = "sed -i 's/^restart)/restart) [ \"$2\" = worker@1.service ] \\&\\& exit 1;/' \
                  \"$PLACE/bin/systemctl\"\n";
    let Some(output) = host.run(&format!("{script}{TUNE} --check true --yes")) else { return };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("may still run with the change"), "{stderr}");
    let calls = fs::read_to_string(host.0.path("calls")).unwrap();
    assert_eq!(calls.matches("restart worker@2.service").count(), 1, "{calls}");
    assert_eq!(host.drop_ins(), 0);
}
