use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::place::open_stream;
use super::*;

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn begun(path: &Path, has_name: bool) -> Whole {
    let mut whole = Whole::create(path).unwrap();
    if has_name {
        let Place { folder, name, .. } = Place::of(path).unwrap();
        whole.state = State::named(folder, name).unwrap();
    }
    whole
}

#[test]
fn a_result_has_its_name_only_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("result");
    for has_name in [false, true] {
        fs::write(&path, "before").unwrap();
        let mut whole = begun(&path, has_name);
        whole.write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        drop(whole);
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(names(dir.path()), ["result"]);
        let mut whole = begun(&path, has_name);
        whole.write_all(b"after").unwrap();
        whole.commit().unwrap();
        drop(whole);
        assert_eq!(fs::read(&path).unwrap(), b"after");
        assert_eq!(names(dir.path()), ["result"]);
    }
}

#[test]
fn this_filesystem_needs_no_name_for_what_is_unfinished() {
    let dir = tempfile::tempdir().unwrap();
    let _whole = Whole::create(&dir.path().join("result")).unwrap();
    let names = names(dir.path());
    if !names.is_empty() {
        // Only if it cannot be nameless.
        assert!(names[0].starts_with(TEMPORARY.0), "{names:?}");
    }
}

#[test]
fn a_link_is_replaced_and_its_target_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let [victim, link] = ["victim", "link"].map(|name| dir.path().join(name));
    fs::write(&victim, "mine").unwrap();
    for target in [victim.as_path(), Path::new("/dev/null"), Path::new("gone")] {
        symlink(target, &link).unwrap();
        check(&link).unwrap();
        write_whole(&link, b"result").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        assert_eq!(fs::read(&link).unwrap(), b"result");
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    assert!(!dir.path().join("gone").exists());
}

#[test]
fn modes_are_those_of_any_file_that_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, ours] = ["plain", "ours"].map(|name| dir.path().join(name));
    fs::write(&plain, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for has_name in [false, true] {
        begun(&ours, has_name).commit().unwrap();
        assert_eq!(mode(&ours), mode(&plain), "minus the umask");
        fs::remove_file(&ours).unwrap();
    }
    write_whole(&ours, b"").unwrap();
    fs::set_permissions(&ours, Permissions::from_mode(0o4640)).unwrap();
    write_whole(&ours, b"new").unwrap();
    assert_eq!(mode(&ours), 0o640, "the old file's mode without its set-id bit");
}

#[test]
fn what_cannot_be_replaced_is_written_to_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_whole(Path::new("/dev/null"), b"gone").unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let fifo = fifo(dir.path());
    check(&fifo).unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    write_whole(&fifo, b"through").unwrap();
    assert_eq!(reader.join().unwrap(), b"through");
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    let refused = Whole::create_regular(&fifo).unwrap_err().to_string();
    assert_eq!(refused, "it is a FIFO, not a regular file");
    let running = dir.path().join("running");
    fs::copy("/bin/sleep", &running).unwrap();
    let mut child = std::process::Command::new(&running).arg("100").spawn().unwrap();
    write_whole(&running, b"a program that runs is replaced like any file").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for refused in [check(dir.path()), write_whole(dir.path(), b"")] {
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
    assert!(check(&dir.path().join("none/result")).is_err());
}

fn fifo(folder: &Path) -> PathBuf {
    let fifo = folder.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .unwrap();
    fifo
}

#[test]
fn a_fifo_without_a_reader_is_not_waited_for_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let found = PathHandle::of(&fifo(dir.path())).unwrap();
    let begin = Instant::now();
    let error = open_stream(&found, Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(begin.elapsed() >= Duration::from_millis(50), "its reader may come late");
    let said = error.to_string();
    assert!(said.contains("no program opened it for reading"), "{said}");
}

#[test]
fn a_slow_reader_of_a_fifo_gets_all() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = fifo(dir.path());
    let bytes = vec![7; 1 << 20];
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let mut file = File::open(fifo).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let mut all = Vec::new();
            io::Read::read_to_end(&mut file, &mut all).unwrap();
            all
        }
    });
    write_whole(&fifo, &bytes).unwrap();
    assert_eq!(reader.join().unwrap(), bytes);
}

#[test]
fn only_descriptors_of_this_process_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    let held = File::create(&victim).unwrap();
    let mut other = std::process::Command::new("sleep").arg("100").stdout(held).spawn().unwrap();
    let link = dir.path().join("fd");
    symlink(format!("/proc/{}/fd", other.id()), &link).unwrap();
    for path in [link.join("1"), format!("/proc/{}/fd/1", other.id()).into()] {
        let error = write_whole(&path, b"result").unwrap_err();
        assert_eq!(error.to_string(), "it is a symbolic link, not a regular file");
    }
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"");
}

#[test]
fn a_result_stays_in_the_directory_in_which_it_was_begun() {
    let dir = tempfile::tempdir().unwrap();
    let [asked, other, moved] = ["asked", "other", "moved"].map(|name| dir.path().join(name));
    for has_name in [false, true] {
        for folder in [&asked, &other] {
            fs::create_dir(folder).unwrap();
        }
        let mut whole = begun(&asked.join("result"), has_name);
        fs::rename(&asked, &moved).unwrap();
        symlink(&other, &asked).unwrap();
        whole.commit().unwrap();
        drop(whole);
        assert_eq!((names(&moved), names(&other)), (vec!["result".to_owned()], vec![]));
        fs::remove_file(&asked).unwrap();
        fs::remove_dir_all(&moved).unwrap();
        fs::remove_dir(&other).unwrap();
    }
}

#[test]
fn a_name_that_is_a_directory_s_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["", ".", "..", "new/"] {
        let path = dir.path().join(name);
        assert!(check(&path).is_err() && write_whole(&path, b"").is_err(), "{name}");
    }
    assert_eq!(check(Path::new("")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_descriptor_by_its_name_is_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut log = File::create(&path).unwrap();
    log.write_all(b"before ").unwrap();
    write_whole(&handle(&log), b"after").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"before after");
}

#[test]
fn what_a_killed_writer_left_goes_and_what_is_at_work_stays() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join(".folio-abcdef.tmp");
    fs::write(&left, "cut").unwrap();
    symlink("/dev/null", dir.path().join(".folio-ghijkl.tmp")).unwrap();
    fs::write(dir.path().join("theirs.tmp"), "").unwrap();
    let at_work = Temporary::create(Folder::of(dir.path()).unwrap()).unwrap();
    remove_stale(dir.path()).unwrap();
    assert!(!left.exists());
    remove_stale(dir.path()).unwrap();
    assert!(dir.path().join(&at_work.name).exists());
    assert_eq!(
        names(dir.path()).len(),
        3,
        "the link, the foreign file and the temporary file in use"
    );
}

#[test]
fn a_result_that_replaces_one_removes_what_a_killed_writer_left() {
    let dir = tempfile::tempdir().unwrap();
    let (path, left) = (dir.path().join("result"), dir.path().join(".folio-abcdef.tmp"));
    write_whole(&path, b"first").unwrap();
    fs::write(&left, "killed before it was renamed").unwrap();
    write_whole(&path, b"second").unwrap();
    assert_eq!((fs::read(&path).unwrap().as_slice(), left.exists()), (b"second".as_slice(), false));
}

/// SIGKILL at any moment leaves no other file.
#[test]
fn a_new_result_has_no_other_name_before_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (end, folder) = (std::sync::atomic::AtomicBool::new(false), dir.path());
    let order = std::sync::atomic::Ordering::Relaxed;
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Vec::new();
            while !end.load(order) {
                seen.extend(names(folder).into_iter().filter(|name| name.contains(TEMPORARY.0)));
            }
            seen
        });
        for _ in 0..100 {
            write_whole(&folder.join("result"), b"new").unwrap();
            fs::remove_file(folder.join("result")).unwrap();
        }
        end.store(true, order);
        watcher.join().unwrap()
    });
    assert_eq!(seen, [""; 0]);
}
