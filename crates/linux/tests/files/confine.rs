//! The files that a confined thread may open. Landlock confines threads, so each test starts its
//! own.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use largefolio_linux::confine::{self, Confined, Files};
use largefolio_trace::disk;
use tempfile::TempDir;

/// Does `work` in a thread confined to `files`; returns `None` if the kernel cannot.
fn confined<T: Send>(files: &Files, work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match confine::to(files).unwrap() {
            Confined::Whole | Confined::Partly => Some(work()),
            Confined::MemoryOnly => {
                largefolio_testkit::skipped!("this kernel has no Landlock, or it is switched off");
                None
            }
        });
        thread.join().unwrap()
    })
}

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for folder in ["in", "out", "elsewhere"] {
        fs::create_dir(place.path().join(folder)).unwrap();
        fs::write(place.path().join(folder).join("file"), "text").unwrap();
    }
    place
}

fn is_refused<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn only_what_was_given_is_read() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    std::os::unix::fs::symlink(at("elsewhere/file"), at("in/link")).unwrap();
    let files = Files { read: vec![at("in"), at("missing")], ..Files::default() };
    confined(&files, || {
        assert_eq!(fs::read_to_string(at("in/file")).unwrap(), "text");
        assert!(is_refused(File::open(at("elsewhere/file"))), "beside it");
        assert!(is_refused(File::open(at("in/link"))), "a link that leads out");
        assert!(is_refused(File::open("/etc/passwd")) && is_refused(fs::read_dir("/")));
        assert!(is_refused(fs::write(at("in/new"), "")), "to read is not to write");
        assert!(is_refused(fs::remove_file(at("in/file"))));
        assert!(is_refused(Command::new("/bin/true").status()), "nothing is executed");
    });
    // The other threads are not confined.
    assert!(File::open("/etc/passwd").is_ok());
}

#[test]
fn a_directory_that_was_made_for_nothing_goes_again() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("out/new/deep")).unwrap();
    let (fill, empty) = (Some(at("out/new/deep")), Some(at("out")));
    confined(&Files { fill, empty, ..Files::default() }, || {
        fs::remove_dir(at("out/new/deep")).unwrap();
        fs::remove_dir(at("out/new")).unwrap();
        assert!(is_refused(fs::create_dir(at("out/new"))), "not to be made again");
        assert!(is_refused(fs::remove_file(at("out/file"))));
        assert!(is_refused(fs::remove_dir(at("in"))), "nothing elsewhere");
    });
}

#[test]
fn results_appear_whole_where_they_were_asked_for() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    let files = Files { write: vec![at("out/file"), at("out/new")], ..Files::default() };
    let was_confined = confined(&files, || {
        // `disk` replaces an existing file, or gives a new one its name.
        for name in ["out/file", "out/new"] {
            disk::write_whole(&at(name), b"result").unwrap();
        }
        assert!(is_refused(disk::write_whole(&at("elsewhere/file"), b"")));
        assert!(is_refused(std::os::unix::fs::symlink("x", at("out/link"))), "no links");
    });
    for name in ["out/file", "out/new"] {
        let written = fs::read_to_string(at(name)).unwrap();
        assert!(was_confined.is_none() || written == "result", "{name}: {written}");
    }
    assert_eq!(fs::read_to_string(at("elsewhere/file")).unwrap(), "text");
}

#[test]
fn a_data_set_is_read_and_filled_and_nothing_beside_it() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("out/a/b")).unwrap();
    let files = Files { fill: Some(at("out/a/b")), ..Files::default() };
    confined(&files, || {
        assert!(is_refused(File::open(at("out/file"))) && is_refused(fs::write(at("out/new"), "")));
        assert!(is_refused(fs::write(at("out/a/new"), "")));
        disk::write_whole(&at("out/a/b/part"), b"rows").unwrap();
        assert_eq!(fs::read_to_string(at("out/a/b/part")).unwrap(), "rows");
        fs::rename(at("out/a/b/part"), at("out/a/b/_part.broken")).unwrap();
        fs::remove_file(at("out/a/b/_part.broken")).unwrap();
        // An obstacle is moved away, even a directory or a link.
        fs::create_dir(at("out/a/b/part")).unwrap();
        fs::rename(at("out/a/b/part"), at("out/a/b/aside")).unwrap();
        std::os::unix::fs::symlink("x", at("out/a/b/link")).unwrap();
        fs::rename(at("out/a/b/link"), at("out/a/b/aside-too")).unwrap();
        assert!(is_refused(fs::create_dir(at("elsewhere/a"))));
    });
}

#[test]
fn devices_and_pipes_stay_open_for_results() {
    let place = place();
    let fifo = place.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let null = Path::new("/dev/null").to_owned();
    let files = Files { write: vec![null.clone(), fifo.clone()], ..Files::default() };
    confined(&files, || {
        File::options().write(true).open(&null).unwrap().write_all(b"x").unwrap();
        File::options().read(true).write(true).open(&fifo).unwrap().write_all(b"x").unwrap();
        assert!(is_refused(File::open("/dev/zero")));
    });
}

#[test]
fn a_kernel_that_knows_it_refuses_to_connect() {
    let connected = std::thread::spawn(|| {
        let is_whole = confine::to(&Files::default()).unwrap() == Confined::Whole;
        is_whole.then(|| TcpStream::connect("127.0.0.1:9"))
    });
    match connected.join().unwrap() {
        Some(connected) => assert!(is_refused(connected)),
        None => largefolio_testkit::skipped!("this kernel's Landlock does not know networks"),
    }
}
