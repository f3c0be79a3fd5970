//! Warms files on the running kernel: successes and reported refusals.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs::{self, File, FileTimes};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use largefolio_linux::warm::{Part, Warm, WarmRefusal, Warmed};

use crate::started::started;
use crate::support::{compile_in, has};

const M2: u64 = 2 << 20;

/// A folder on the build's filesystem; `None`, with a message, if it has no large folios.
fn place() -> Option<tempfile::TempDir> {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = place.path().join("try");
    write(&path, 2 * M2);
    let warmed = warm(&path);
    if matches!(
        warmed.refusal,
        Some(
            WarmRefusal::NoFolios { .. }
                | WarmRefusal::NotCached { .. }
                | WarmRefusal::NoThp
                | WarmRefusal::OldKernel
        )
    ) {
        largefolio_testkit::skipped!(
            "{} (ext4 from Linux 6.16 on or XFS is needed)",
            warmed.refusal.unwrap()
        );
        return None;
    }
    Some(place)
}

fn content(len: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|nr| (nr * 2_654_435_761).to_le_bytes()).collect()
}

/// Writes a file page by page, so the page cache has small folios.
fn write(path: &Path, len: u64) {
    let mut file = File::create(path).unwrap();
    for piece in content(len).chunks(4096) {
        file.write_all(piece).unwrap();
    }
}

fn warm(path: &Path) -> Warmed {
    Warm::new(path, Part::Whole).unwrap().run().unwrap()
}

#[test]
fn a_written_file_becomes_large_and_keeps_its_bytes_and_times() {
    let Some(place) = place() else { return };
    let path = place.path().join("file");
    let len = 3 * M2 + 12_288;
    write(&path, len);
    // An access time that any read would change.
    let long_ago = UNIX_EPOCH + Duration::from_hours(24);
    let times = FileTimes::new().set_accessed(long_ago);
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let before = fs::metadata(&path).unwrap();
    let looked = Warm::new(&path, Part::Whole).unwrap().check().unwrap();
    assert_eq!((looked.before_bytes, looked.refusal), (Some(0), None));
    let warmed = warm(&path);
    assert_eq!((warmed.possible_bytes, warmed.before_bytes), (3 * M2, Some(0)));
    assert!(warmed.is_complete() && warmed.is_enlarged(), "{warmed:?}");
    let after = fs::metadata(&path).unwrap();
    assert_eq!(
        (before.modified().unwrap(), before.len()),
        (after.modified().unwrap(), after.len())
    );
    assert_eq!(after.accessed().unwrap(), long_ago);
    assert_eq!(fs::read(&path).unwrap(), content(len));
    // A second time: nothing to do, and nothing is lost.
    let again = warm(&path);
    assert_eq!((again.before_bytes, again.after_bytes), (Some(3 * M2), Some(3 * M2)));
    assert_eq!(again.refusal, None);
}

#[test]
fn a_part_is_warmed_alone() {
    let Some(place) = place() else { return };
    let path = place.path().join("file");
    write(&path, 4 * M2);
    let part = Part::Bytes(M2 + 5..2 * M2);
    let warmed = Warm::new(&path, part).unwrap().run().unwrap();
    assert_eq!((warmed.possible_bytes, warmed.after_bytes), (M2, Some(M2)));
    let looked = Warm::new(&path, Part::Whole).unwrap().check().unwrap();
    assert!(looked.before_bytes.unwrap() < 4 * M2, "{looked:?}");
}

struct Held {
    child: Child,
}

impl Held {
    fn map(path: &Path) -> Self {
        let mut command = Command::new(path);
        command.arg("hold").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut held = Self { child: started(&mut command) };
        let mut line = [0; 5];
        held.child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

const PROGRAM: &str = r#"
#include <stdio.h>
__asm__(".text\n.balign 4096\n.globl stubs\nstubs:\n.fill 8388608,1,0xc3\n");
extern char stubs[];
int main(void) {
    for (long at = 0; at < 8388608; at += 4096) ((void (*)(void))(stubs + at))();
    puts("held");
    fflush(stdout);
    getchar();
    return 0;
}
"#;

#[test]
fn what_a_process_maps_stays_and_the_process_is_named() {
    let Some(place) = place() else { return };
    if !has("gcc", "gcc") {
        return;
    }
    let path = compile_in(place.path(), PROGRAM, &["-no-pie"]);
    // Page by page: the linker's writes may have made large folios.
    let bytes = fs::read(&path).unwrap();
    let copy = place.path().join("copy");
    let mut file = File::create(&copy).unwrap();
    bytes.chunks(4096).for_each(|piece| file.write_all(piece).unwrap());
    drop(file);
    fs::set_permissions(&copy, fs::metadata(&path).unwrap().permissions()).unwrap();
    {
        let held = Held::map(&copy);
        let pid = held.child.id();
        let looked = Warm::new(&copy, Part::Whole).unwrap().check().unwrap();
        assert!(matches!(&looked.refusal, Some(WarmRefusal::InUse { pids, .. }) if *pids == [pid]));
        let warmed = warm(&copy);
        let Some(WarmRefusal::InUse { pids, bytes }) = &warmed.refusal else {
            panic!("{warmed:?}")
        };
        assert_eq!((pids.as_slice(), warmed.is_complete()), (&[pid][..], false));
        assert!(*bytes >= 3 * M2, "{bytes}");
    }
    assert!(warm(&copy).is_complete());
    assert_eq!(fs::read(&copy).unwrap(), bytes);
}

#[test]
fn memory_and_short_files_are_refused_and_left_alone() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("file");
    write(&path, 2 * M2);
    let warmed = warm(&path);
    assert!(
        matches!(&warmed.refusal, Some(WarmRefusal::NotCached { filesystem }) if filesystem == "tmpfs")
    );
    assert_eq!(fs::read(&path).unwrap(), content(2 * M2));
    let short = warm(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    assert!(matches!(short.refusal, Some(WarmRefusal::TooSmall { .. })), "{short:?}");
}

#[test]
fn a_short_file_gets_the_largest_folios_that_fit_and_keeps_its_bytes() {
    let Some(place) = place() else { return };
    let path = place.path().join("short");
    // 1 MiB, 512, 256 and 64 KiB, and an end of two pages and a byte.
    let len = M2 / 2 + (832 << 10) + 8193;
    write(&path, len / 8 * 8);
    let times = fs::metadata(&path).unwrap().modified().unwrap();
    let looked = Warm::new(&path, Part::Whole).unwrap().check().unwrap();
    assert_eq!((looked.folio_bytes, looked.possible_bytes), (64 << 10, M2 / 2 + (832 << 10)));
    let warmed = warm(&path);
    assert_eq!(fs::read(&path).unwrap(), content(len / 8 * 8));
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), times);
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("only root sees folio sizes below 2M");
        assert!(matches!(warmed.refusal, Some(WarmRefusal::Unseen { .. })), "{warmed:?}");
        return;
    }
    assert_eq!((looked.before_bytes, looked.refusal), (Some(0), None));
    assert!(warmed.is_complete() && warmed.is_enlarged() && warmed.refusal.is_none(), "{warmed:?}");
    let again = warm(&path);
    assert!(again.is_complete() && !again.is_enlarged(), "{again:?}");
}

#[test]
fn a_short_file_that_a_process_maps_stays_and_the_process_is_named() {
    let Some(place) = place() else { return };
    let program = PROGRAM.replace("8388608", "1048576");
    if !has("gcc", "gcc") {
        return;
    }
    let bytes = fs::read(compile_in(place.path(), &program, &["-no-pie"])).unwrap();
    let copy = place.path().join("copy");
    let mut file = File::create(&copy).unwrap();
    bytes.chunks(4096).for_each(|piece| file.write_all(piece).unwrap());
    drop(file);
    fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    {
        let held = Held::map(&copy);
        let pid = held.child.id();
        for result in [Warm::new(&copy, Part::Whole).unwrap().check().unwrap(), warm(&copy)] {
            let Some(WarmRefusal::InUse { pids, .. }) = &result.refusal else {
                panic!("{result:?}")
            };
            assert_eq!((pids.as_slice(), result.is_complete()), (&[pid][..], false));
        }
    }
    let warmed = warm(&copy);
    let is_root = rustix::process::geteuid().is_root();
    assert!(warmed.is_complete() || !is_root, "{warmed:?}");
    assert_eq!(fs::read(&copy).unwrap(), bytes);
}

#[test]
fn what_is_no_file_is_an_error_that_names_it() {
    let result = |path: &str| Warm::new(Path::new(path), Part::Whole).unwrap_err().to_string();
    assert!(result("/nowhere/file").starts_with("cannot read /nowhere/file: No such file"));
    assert_eq!(result("/dev/null"), "/dev/null is not a regular file");
    assert_eq!(result("/tmp"), "/tmp is not a regular file");
}

#[test]
fn a_file_that_is_written_meanwhile_loses_nothing() {
    let Some(place) = place() else { return };
    let path = place.path().join("file");
    write(&path, 4 * M2);
    let mut writer = File::options().write(true).open(&path).unwrap();
    thread::scope(|scope| {
        let warming = scope.spawn(|| (0..8).for_each(|_| drop(warm(&path))));
        let mut nr = 0_u64;
        while !warming.is_finished() || nr < 64 {
            writer.seek(SeekFrom::Start(nr % 64 * (M2 / 16))).unwrap();
            writer.write_all(&nr.to_le_bytes()).unwrap();
            nr += 1;
        }
        writer.seek(SeekFrom::Start(M2 / 2 + 8)).unwrap();
        writer.write_all(&nr.to_le_bytes()).unwrap();
        let read = fs::read(&path).unwrap();
        let at = usize::try_from(M2 / 2 + 8).unwrap();
        assert_eq!(read[at..at + 8], nr.to_le_bytes());
        for slot in 0..64 {
            let at = usize::try_from(slot * (M2 / 16)).unwrap();
            let last = u64::from_le_bytes(read[at..at + 8].try_into().unwrap());
            assert!(
                last < nr && last + 64 >= nr && last % 64 == slot,
                "slot {slot} has {last} of {nr}"
            );
        }
    });
}
