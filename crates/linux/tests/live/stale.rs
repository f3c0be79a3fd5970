//! A copy is used only for the bytes it was made from, whatever file its name suggests.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use largefolio_linux::remap::How;

use crate::stubs::{ALIGNED, Stage, names, parse_report, program, tmpfs};
use crate::support::{compile_in, has};

/// A program with its answer in its text, between whole blocks.
const SOURCE: &str = r#"
#include <stdio.h>
__asm__(".text\n.fill 4194304,1,0xc3\n.globl answer\nanswer:\n.asciz \"the answer is 1111\"\n"
        ".fill 4194304,1,0xc3\n");
extern const char answer[];
int main(void) { return puts(answer) < 0; }
"#;
const FIRST: &str = "the answer is 1111";
const SECOND: &str = "the answer is 2222";

/// An ext4 image with the program, and another one that differs only in the program's text.
struct Images {
    first: PathBuf,
    second: PathBuf,
    at: u64,
}

impl Images {
    fn make(folder: &Path) -> Self {
        let content = folder.join("content");
        fs::create_dir(&content).unwrap();
        // `-d` copies everything into both images, including the source.
        compile_in(&content, SOURCE, &["-no-pie", ALIGNED[0]]);
        let (first, second) = (folder.join("first"), folder.join("second"));
        let mut mkfs = Command::new("mke2fs");
        mkfs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&content).arg(&first).arg("40M");
        assert!(mkfs.output().unwrap().status.success());
        fs::copy(&first, &second).unwrap();
        let bytes = fs::read(&first).unwrap();
        let position = bytes.windows(FIRST.len()).position(|at| at == FIRST.as_bytes()).unwrap();
        let images = Self { first, second, at: u64::try_from(position).unwrap() };
        images.answer_second(&images.second);
        images
    }

    /// Changes the answer of the program in `image`, below the filesystem.
    fn answer_second(&self, image: &Path) {
        let image = File::options().write(true).open(image).unwrap();
        image.write_all_at(SECOND.as_bytes(), self.at).unwrap();
    }
}

struct Loop(String);

impl Loop {
    fn attach(image: &Path) -> Self {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// Attaches `image` in place of the first; returns false if another process was faster.
    fn exchange(&self, image: &Path) -> bool {
        self.detach();
        // A device in use is detached after its last user.
        (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let attached = Command::new("losetup").arg(&self.0).arg(image).output().unwrap();
            attached.status.success()
        })
    }

    fn detach(&self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.detach();
    }
}

struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(device: &Loop, at: &'a Path) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "ro"]).arg(&device.0).arg(at);
        assert!(mount.status().unwrap().success());
        Self(at)
    }

    fn identity(&self) -> (u64, u64, u64, i64, i64) {
        let metadata = fs::metadata(self.0.join("p")).unwrap();
        (metadata.dev(), metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec())
    }

    fn answers(&self, stage: &Stage) -> [String; 2] {
        let program = self.0.join("p");
        let moved = stage.command(&program, "").output().unwrap();
        let plain = Command::new(&program).output().unwrap();
        [plain, moved].map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

fn can_mount() -> bool {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        largefolio_testkit::skipped!("needs root and loop devices");
        return false;
    }
    has("mke2fs", "e2fsprogs") && has("losetup", "mount")
}

#[test]
fn an_image_in_the_place_of_another_runs_its_own_code() {
    if !can_mount() {
        return;
    }
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let images = Images::make(folder.path());
    let at = folder.path().join("mounted");
    fs::create_dir(&at).unwrap();
    let device = Loop::attach(&images.first);
    let mounted = Mounted::new(&device, &at);
    let identity = mounted.identity();
    assert_eq!(mounted.answers(&stage), [FIRST, FIRST]);
    assert_eq!(stage.copies().len(), 1);
    drop(mounted);
    if !device.exchange(&images.second) {
        largefolio_testkit::skipped!("{} went to another process", device.0);
        return;
    }
    let mounted = Mounted::new(&device, &at);
    assert_eq!(mounted.identity(), identity, "the images differ in more than the answer");
    assert_eq!(mounted.answers(&stage), [SECOND, SECOND]);
    let text = stage.remap.summary().unwrap().texts.remove("p").unwrap();
    assert_eq!((text.how.get(&How::Made), text.refused.len()), (Some(&2), 0), "{text:?}");
    // The kernel numbers attached images, so the two copies have different names.
    assert_eq!(stage.copies().len(), 2, "{:?}", stage.copies());
    // Only one copy belongs to a file that still exists.
    let (store, Stage { folder: _folder, remap }) = (stage.remap.store().to_owned(), stage);
    drop(remap);
    assert_eq!(names(&store).len(), 1, "{:?}", names(&store));
}

#[test]
fn a_program_changed_below_its_file_system_runs_its_own_code() {
    if !can_mount() {
        return;
    }
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let images = Images::make(folder.path());
    let at = folder.path().join("mounted");
    fs::create_dir(&at).unwrap();
    let device = Loop::attach(&images.first);
    let mounted = Mounted::new(&device, &at);
    let identity = mounted.identity();
    assert_eq!(mounted.answers(&stage), [FIRST, FIRST]);
    let copies = stage.copies();
    drop(mounted);
    images.answer_second(&images.first);
    let mounted = Mounted::new(&device, &at);
    assert_eq!(mounted.identity(), identity);
    assert_eq!(mounted.answers(&stage), [SECOND, SECOND]);
    // The files differ only in their content.
    assert_eq!(stage.copies(), copies);
    assert_eq!(mounted.answers(&stage), [SECOND, SECOND]);
    let text = stage.remap.summary().unwrap().texts.remove("p").unwrap();
    let how = |how| text.how.get(&how).copied();
    assert_eq!((how(How::Made), how(How::Shared)), (Some(2), Some(1)), "{text:?}");
}

#[test]
fn a_copy_with_another_byte_is_replaced() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 8, ALIGNED);
    let original = fs::read(&stubs).unwrap();
    parse_report(&stage.command(&stubs, "run").output().unwrap());
    let copy = stage.remap.store().join(stage.copies().remove(0));
    let blocks = 2 << 20..8 << 20;
    // The first mapped byte, one inside a page, and the last.
    for at in [blocks.start, (5 << 20) + 7, blocks.end - 1] {
        let mut bytes = fs::read(&copy).unwrap();
        assert!(bytes[blocks.clone()] == original[blocks.clone()]);
        bytes[at] ^= 0xff;
        fs::remove_file(&copy).unwrap();
        fs::write(&copy, bytes).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o400)).unwrap();
        let report = parse_report(&stage.command(&stubs, "run").output().unwrap());
        assert!(report.large_kib >= 6 << 10, "{at}: {report:?}");
        assert!(fs::read(&copy).unwrap()[at] == original[at], "{at}");
    }
    assert_eq!(stage.remap.summary().unwrap().nr_texts(How::Made), 4);
}

/// A file written twice within one clock tick has the same modification time.
#[test]
fn a_program_that_was_written_this_moment_is_moved() {
    let stage = Stage::new();
    let folder = tmpfs();
    let stubs = program(folder.path(), 4, ALIGNED);
    for _ in 0..5 {
        let copy = folder.path().join("now");
        let _ = fs::remove_file(&copy);
        // Copy in another process: if a parallel test forks here, its child would hold the
        // descriptor open for writing, and the program would be busy.
        assert!(Command::new("cp").args([&stubs, &copy]).status().unwrap().success());
        let report = parse_report(&stage.command(&copy, "run").output().unwrap());
        assert!(report.large_kib >= 2 << 10, "{report:?}");
    }
}
