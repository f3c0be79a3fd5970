//! Old values are restored even if the process is killed.

use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::timed_run::family::{join, new_cgroup, remove};

fn messages_about(path: &Path) -> Vec<String> {
    let all = AFTERMATH.lock().unwrap();
    all.iter()
        .map(ToString::to_string)
        .filter(|message| message.contains(path.to_str().unwrap()))
        .collect()
}

#[test]
fn the_old_value_comes_back() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "always [madvise] never\n").unwrap();
    let setting = Setting::change(file.path(), "never").unwrap();
    assert_eq!(setting.old(), "madvise");
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "never");
    drop(setting);
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "madvise");
    assert_eq!(messages_about(file.path()), [""; 0]);
}

#[test]
fn the_old_value_comes_back_without_the_keeper() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "128").unwrap();
    let setting = Setting::change(file.path(), "512").unwrap();
    setting.keeper.as_ref().unwrap().kill();
    drop(setting);
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "128");
    assert_eq!(messages_about(file.path()), [""; 0]);
}

#[test]
fn a_value_that_cannot_come_back_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("setting");
    fs::write(&path, "128").unwrap();
    let setting = Setting::change(&path, "512").unwrap();
    fs::remove_file(&path).unwrap();
    symlink("/proc/sys/kernel/ostype", &path).unwrap();
    drop(setting);
    let messages = messages_about(&path);
    let expected = format!(
        "is Linux and could not be restored to 128; run: echo 128 | {}",
        as_root(&format!("tee {}", path.display()))
    );
    assert!(messages.len() == 1 && messages[0].contains(&expected), "{messages:?}");
}

#[test]
fn somebody_elses_value_that_goes_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "always [madvise] never").unwrap();
    let setting = Setting::change(file.path(), "never").unwrap();
    fs::write(file.path(), "always").unwrap();
    drop(setting);
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "madvise");
    let messages = messages_about(file.path());
    assert!(messages.len() == 1 && messages[0].contains("to always while folio"), "{messages:?}");
}

#[test]
#[ignore = "helper of `the_old_value_comes_back_after_sigkill`"]
fn hold() {
    let path = std::env::var_os("LARGEFOLIO_TEST_SETTING").unwrap();
    let _setting = Setting::change(Path::new(&path), "never").unwrap();
    thread::sleep(Duration::from_mins(1));
}

/// Runs [`hold`] in a process set up by `start`, kills it with `kill`, and waits for the old value.
fn comes_back(start: impl FnOnce(&mut Command), kill: impl FnOnce(&mut Child)) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "madvise").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "setting::tests::hold", "--ignored"])
        .env("LARGEFOLIO_TEST_SETTING", file.path())
        // The keeper needs no program.
        .env("PATH", "/nonexistent")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    start(&mut command);
    let mut holder = command.spawn().unwrap();
    let waits_for = |value: &str| {
        (0..2000).any(|_| {
            thread::sleep(Duration::from_millis(5));
            fs::read_to_string(file.path()).unwrap() == value
        })
    };
    assert!(waits_for("never"), "the setting was never changed");
    kill(&mut holder);
    holder.wait().unwrap();
    assert!(waits_for("madvise"), "the setting was not restored");
}

#[test]
fn the_old_value_comes_back_after_sigkill() {
    comes_back(|_| (), |holder| holder.kill().unwrap());
}

#[test]
fn the_old_value_comes_back_after_sigkill_of_the_control_group() {
    let Some((group, procs)) = new_cgroup() else {
        largefolio_testkit::skipped!("no control group of version 2 can be made here (needs root)");
        return;
    };
    comes_back(
        |command| join(command, procs),
        |_| fs::write(group.join("cgroup.kill"), "1").unwrap(),
    );
    remove(&group);
}

#[test]
fn a_second_change_waits_for_the_first_and_finds_the_systems_value() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "128").unwrap();
    let first = Setting::change(file.path(), "512").unwrap();
    let refused = Setting::read_at_rest(file.path()).unwrap_err();
    assert!(matches!(refused, SettingError::Busy { .. }));
    let refused = Setting::try_change(file.path(), "1024").unwrap_err();
    assert!(refused.to_string().contains("another folio"), "{refused}");
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "512");
    let path = file.path().to_owned();
    let second = thread::spawn(move || Setting::change(&path, "2048").unwrap());
    drop(first);
    let second = second.join().unwrap();
    assert_eq!(second.old(), "128");
    drop(second);
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "128");
}

#[test]
fn a_child_of_another_thread_does_not_keep_the_lock() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let locked = try_lock(file.path()).unwrap();
    let _copy = locked.0.try_clone().unwrap();
    assert!(try_lock(file.path()).is_err());
    drop(locked);
    assert!(try_lock(file.path()).is_ok());
}

#[test]
fn a_value_that_is_right_already_is_left_alone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "511\n").unwrap();
    drop(Setting::change(file.path(), "511").unwrap());
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "511\n");
}

#[test]
fn the_first_value_comes_back_after_several() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "128\n").unwrap();
    let mut setting = Setting::change(file.path(), "512").unwrap();
    setting.set("8192").unwrap();
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "8192");
    drop(setting);
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "128");
}

#[test]
fn what_others_set_while_a_value_is_held_is_undone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "511\n").unwrap();
    let held = Setting::hold(file.path()).unwrap();
    fs::write(file.path(), "0\n").unwrap();
    drop(held);
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "511");
}

#[test]
fn a_missing_setting_is_named() {
    let error = Setting::change(Path::new("/sys/kernel/mm/no_such"), "1").unwrap_err();
    assert!(error.to_string().contains("/sys/kernel/mm/no_such"), "{error}");
}
