//! The actions of the tests' processes.

use std::fs::File;
use std::io::{self, BufRead as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

const PAGE: usize = 4096;
const M: usize = 1 << 20;
/// `MADV_COLLAPSE`, Linux 6.1.
const MADV_COLLAPSE: i32 = 25;
/// `MADV_POPULATE_READ`, Linux 5.14.
const MADV_POPULATE_READ: i32 = 22;

/// Prints the memory's address and waits for the next command; exits if the test has ended.
fn say(at: usize, len: usize) {
    println!("\nat {at} {}", at + len);
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
}

/// Maps memory, or a file if given, at the reserved address `at`.
fn map(at: usize, len: usize, prot: i32, file: Option<(&File, i32)>) {
    let (fd, flags) = file
        .map_or((-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS), |(file, flags)| {
            (file.as_raw_fd(), flags)
        });
    // SAFETY: the range was reserved by `reserve` for this, and no reference points into it.
    let result =
        unsafe { libc::mmap(at as *mut libc::c_void, len, prot, flags | libc::MAP_FIXED, fd, 0) };
    assert_ne!(result, libc::MAP_FAILED, "{}", io::Error::last_os_error());
}

/// Reserves addresses aligned to 2 MiB, with the same space after them.
fn reserve(len: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address the kernel chooses.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), len + 4 * M, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    (at as usize).next_multiple_of(2 * M)
}

fn advise(at: usize, len: usize, advice: i32) {
    // SAFETY: the range is a mapping of this scene; no reference points into it.
    let result = unsafe { libc::madvise(at as *mut libc::c_void, len, advice) };
    assert_eq!(result, 0, "advice {advice}: {}", io::Error::last_os_error());
}

fn protect(at: usize, len: usize, prot: i32) {
    // SAFETY: the range is a mapping of this scene; no reference points into it.
    let result = unsafe { libc::mprotect(at as *mut libc::c_void, len, prot) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn write(at: usize, len: usize) {
    for page in (at..at + len).step_by(PAGE) {
        // SAFETY: a writable page of this scene.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
}

fn read(at: usize, len: usize) {
    for page in (at..at + len).step_by(PAGE) {
        // SAFETY: a readable page of this scene.
        unsafe { (page as *const u8).read_volatile() };
    }
}

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const RX: i32 = libc::PROT_READ | libc::PROT_EXEC;

fn anon(len: usize, advice: Option<i32>) -> usize {
    let at = reserve(len);
    map(at, len, RW, None);
    if let Some(advice) = advice {
        advise(at, len, advice);
    }
    write(at, len);
    at
}

fn collapse(at: usize, len: usize) {
    for block in (at..at + len).step_by(2 * M) {
        advise(block, 2 * M, MADV_COLLAPSE);
    }
}

fn moved() {
    let at = anon(4 * M, Some(libc::MADV_HUGEPAGE));
    let to = reserve(8 * M) + PAGE;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: moves a mapping of this scene onto reserved addresses; no reference points into
    // either.
    let result =
        unsafe { libc::mremap(at as *mut _, 4 * M, 4 * M, flags, to as *mut libc::c_void) };
    assert_eq!(result as usize, to, "{}", io::Error::last_os_error());
    // Khugepaged would make one aligned folio from parts of two.
    advise(to, 4 * M, libc::MADV_NOHUGEPAGE);
    say(to, 4 * M);
}

fn fork() {
    let at = anon(4 * M, Some(libc::MADV_HUGEPAGE));
    // SAFETY: the child calls only async-signal-safe functions and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child when its parent ends.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    println!("\npid {pid}");
    say(at, 4 * M);
}

fn memory(scene: &str) {
    let huge = Some(libc::MADV_HUGEPAGE);
    let len = 4 * M;
    let at = match scene {
        "not-advised" | "advised-late" => anon(len, None),
        "advised-against" => anon(len, Some(libc::MADV_NOHUGEPAGE)),
        _ => anon(len, huge),
    };
    match scene {
        "advised-late" => advise(at, len, libc::MADV_HUGEPAGE),
        "hole" => [PAGE, 2 * M + PAGE]
            .iter()
            .for_each(|hole| advise(at + hole, PAGE, libc::MADV_DONTNEED)),
        "split" => {
            // Not the whole range, because the PMD entries must be split.
            protect(at + PAGE, len - 2 * PAGE, libc::PROT_READ);
            protect(at + PAGE, len - 2 * PAGE, RW);
        }
        _ => {}
    }
    say(at, len);
    match scene {
        "not-advised" | "advised-against" => {
            advise(at, len, libc::MADV_HUGEPAGE);
            advise(at, len, libc::MADV_DONTNEED);
            write(at, len);
        }
        _ => collapse(at, len),
    }
    say(at, len);
}

fn advised_small() {
    let at = reserve(2 * M);
    map(at, M, RW, None);
    advise(at, M, libc::MADV_HUGEPAGE);
    write(at, M);
    say(at, M);
    advise(at, M, libc::MADV_DONTNEED);
    write(at, M);
    say(at, M);
}

fn memfd() {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"scene".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: a new descriptor with no other owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(4 * M as u64).unwrap();
    let at = reserve(4 * M);
    map(at, 4 * M, RW, Some((&file, libc::MAP_SHARED)));
    write(at, 4 * M);
    say(at, 4 * M);
    collapse(at, 4 * M);
    say(at, 4 * M);
}

/// Maps a file as executable, at an address `off` away from its alignment.
fn text(file: &File, off: usize) -> usize {
    let at = reserve(8 * M) + off;
    map(at, 4 * M, RX, Some((file, libc::MAP_PRIVATE)));
    at
}

fn file(file: &File) {
    let at = text(file, 0);
    read(at, 4 * M);
    say(at, 4 * M);
    // SAFETY: unmaps a mapping of this scene; no reference points into it.
    unsafe { libc::munmap(at as *mut libc::c_void, 4 * M) };
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let at = text(file, 0);
    advise(at, 4 * M, libc::MADV_HUGEPAGE);
    advise(at, 4 * M, MADV_POPULATE_READ);
    say(at, 4 * M);
}

fn file_off(file: &File) {
    for off in [PAGE, 0] {
        let at = text(file, off);
        read(at, 4 * M);
        say(at, 4 * M);
    }
}

fn file_copy(file: &File) {
    let at = reserve(4 * M);
    map(at, 4 * M, RW, Some((file, libc::MAP_PRIVATE)));
    read(at, 4 * M);
    write(at, M);
    say(at, 4 * M);
}

/// The tests run this as a separate process.
#[test]
#[ignore = "the other tests' processes"]
fn play() {
    let scene = std::env::var("LARGEFOLIO_SCENE").unwrap();
    let open = || File::open(std::env::var_os("LARGEFOLIO_SCENE_FILE").unwrap()).unwrap();
    match scene.as_str() {
        "pmd" | "advised" => say(anon(4 * M, Some(libc::MADV_HUGEPAGE)), 4 * M),
        "moved" => moved(),
        "fork" => fork(),
        "memfd" => memfd(),
        "advised-small" => advised_small(),
        "file" => file(&open()),
        "file-off" => file_off(&open()),
        "file-copy" => file_copy(&open()),
        other => memory(other),
    }
}
