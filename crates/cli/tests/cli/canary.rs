//! `folio tune --canary` with a systemctl that behaves like systemd's, in a mount namespace with its
//! own /etc/systemd/system and /run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use crate::support::{Place, text};

/// Lists three instances. A restart notes whether the instance has the drop-in.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >> "$PLACE/calls"
for unit; do :; done
case "$1" in
list-units) for nr in 1 2 3; do echo "worker@$nr.service loaded active running Worker"; done ;;
restart)
    if [ -e "/etc/systemd/system/$unit.d/51-largefolio.conf" ]; then echo new; else echo old; fi > "$PLACE/state/$unit"
    if [ -n "$INTERRUPT" ]; then kill -INT $PPID; fi
    if [ "$(cat "$PLACE/state/$unit")" = "$BROKEN" ]; then echo "Job for $unit failed" >&2; exit 1; fi ;;
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
             echo > /run/systemd/system/worker@.service && \
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
    assert_eq!(calls.matches("restart -- worker@1.service").count(), 2, "{calls}");
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
    assert_eq!(calls.matches("restart -- worker@2.service").count(), 1, "put back too: {calls}");
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
    let script = "sed -i 's/^restart)/restart) [ \"$unit\" = worker@1.service ] \\&\\& exit 1;/' \
                  \"$PLACE/bin/systemctl\"\n";
    let Some(output) = host.run(&format!("{script}{TUNE} --check true --yes")) else { return };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("may still run with the change"), "{stderr}");
    let calls = fs::read_to_string(host.0.path("calls")).unwrap();
    assert_eq!(calls.matches("restart -- worker@2.service").count(), 1, "{calls}");
    assert_eq!(host.drop_ins(), 0);
}

fn calls(host: &Host) -> String {
    fs::read_to_string(host.0.path("calls")).unwrap()
}

#[test]
fn a_signal_before_any_change_changes_nothing() {
    let host = Host::new();
    let Some(output) = host.run(&format!("{TUNE} --check 'kill -INT $PPID' --yes")) else { return };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("interrupted, before any change"), "{stderr}");
    assert!(!calls(&host).contains("restart") && !calls(&host).contains("daemon-reload"));
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
}

#[test]
fn a_signal_between_restarts_or_in_the_last_check_takes_the_change_back() {
    let host = Host::new();
    let Some(output) = host.run(&format!("export INTERRUPT=1; {TUNE} --check true --yes")) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let calls = calls(&host);
    assert_eq!(calls.matches("restart -- worker@2").count(), 1, "only to take it back: {calls}");
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
    let last = "--check 'test \"$(cat \"$PLACE/state/$UNIT\")\" = old || \
                if [ $INSTANCE = 2 ]; then kill -TERM $PPID; fi' --yes";
    let output = host.run(&format!("{TUNE} {last}")).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
}

#[test]
fn a_signal_ends_a_check_that_takes_long() {
    let host = Host::new();
    let check = "--check 'test \"$(cat \"$PLACE/state/$UNIT\")\" = old || \
                 { kill -INT $PPID; exec sleep 1000; }' --yes";
    let Some(output) = host.run(&format!("{TUNE} {check}")) else { return };
    let stderr = text(&output.stderr);
    assert!(stderr.contains("interrupted") && !stderr.contains("took more"), "{stderr}");
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
}

#[test]
fn a_full_output_does_not_stop_the_way_back() {
    let host = Host::new();
    let check = "--check 'test \"$(cat \"$PLACE/state/$UNIT\")\" = old' --yes >/dev/full";
    let Some(output) = host.run(&format!("{TUNE} {check}")) else { return };
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("cannot write to standard output"));
    assert_eq!((host.state(), host.drop_ins()), (OLD.map(str::to_owned).to_vec(), 0));
    let undo = "\"$FOLIO\" tune --unit worker@ --env A=1 --yes >/dev/null; rm \"$PLACE/calls\"; \
                \"$FOLIO\" tune --undo >/dev/full";
    host.run(undo).unwrap();
    assert_eq!((calls(&host).trim(), host.drop_ins()), ("daemon-reload", 0));
}

#[test]
fn a_template_s_change_supersedes_that_of_its_canary() {
    let host = Host::new();
    let set = "\"$FOLIO\" tune --unit worker@ --env";
    let Some(output) = host.run(&format!(
        "{set} A=1 --yes && {TUNE} --check true --yes && cat /etc/systemd/system/*/*.conf && \
         {set} MODE=new"
    )) else {
        return;
    };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("A=1") && stdout.contains("MODE=new"), "{stdout}");
    assert!(stderr.contains("systemctl restart 'worker@*.service'"), "{stderr}");
    assert!(stderr.contains("--yes also removes"), "{stderr}");
    assert_eq!(host.drop_ins(), 3);
    let output = host.run(&format!("{set} B=2 --yes && ls /etc/systemd/system | wc -l")).unwrap();
    assert!(text(&output.stdout).trim().ends_with('3'), "other settings stay");
    let output = host.run(&format!("{set} MODE=new --yes")).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("51-largefolio.conf  removed"));
    assert_eq!(host.drop_ins(), 1);
    let both = "\"$FOLIO\" tune --unit worker@1 --env MODE=x --env C=3 --yes";
    let output = host.run(&format!("{both} >/dev/null; {set} MODE=y --yes")).unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("overrides the template's setting"), "{stderr}");
}

#[test]
fn without_a_restart_a_failure_says_which_instances_may_have_the_change() {
    let host = Host::new();
    let check = "--check 'test ! -d /etc/systemd/system/worker@1.service.d' --yes";
    let Some(output) = host.run(&format!("{} {check}", TUNE.replace("--restart", ""))) else {
        return;
    };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("systemctl restart worker@1.service worker@2.service"), "{stderr}");
    assert!(!calls(&host).contains("restart"));
}

#[test]
fn a_name_that_systemctl_would_read_as_an_option_or_pattern_is_refused() {
    let host = Host::new();
    for name in ["-Hevil@", "*@", "w*@", "worker[12]@"] {
        let tune = TUNE.replace("--unit worker@", &format!("'--unit={name}'"));
        let Some(output) = host.run(&format!("{tune} --check true")) else { return };
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(!host.0.path("calls").exists(), "{name}: {}", calls(&host));
    }
    let list =
        "sed -i 's/^list-units)/list-units) echo other@1.service x;/' \"$PLACE/bin/systemctl\"\n";
    let output = host.run(&format!("{list}{TUNE} --check true")).unwrap();
    assert!(text(&output.stderr).contains("2 of 3 instances"), "{}", text(&output.stderr));
    assert!(calls(&host).contains("--state=active -- worker@*.service"), "{}", calls(&host));
}
