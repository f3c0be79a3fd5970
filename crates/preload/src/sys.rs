//! System calls, in safe functions where that is possible.
//!
//! Calls use `syscall(2)` instead of libc's wrappers: the program or another preloaded library may
//! have replaced `open` or `mmap` with functions that are not ready before `main`.
//!
//! Invariants:
//! - S1: nothing here allocates, blocks without bound, raises a signal or changes a disposition.
//! - S2: descriptors are close-on-exec and closed before the constructor returns.
//! - S3: calls change errno, and `start` in `lib.rs` restores the program's value.

mod area;

use core::ffi::{CStr, c_char, c_int};
use core::ops::Deref;

use largefolio_ranges::sys::{call, i32_word, word};

pub(crate) use area::{Area, Mapping, Window, is_same};
pub(crate) use largefolio_ranges::sys::{Madvise, auxiliary, errno, madvise, set_errno};
pub(crate) use largefolio_ranges::{Errno, Result, page_bytes};

/// The base directory of relative paths: the current one. None of our paths is relative to it.
const AT_FDCWD: usize = i32_word(libc::AT_FDCWD);

pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: `name` is a C string. The value stays in place while the constructor runs: threads
    // started by an earlier constructor may not change the environment before main either.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a value that is not null is a C string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

pub(crate) fn block_bytes() -> usize {
    largefolio_ranges::block_bytes(page_bytes())
}

pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = i32_word(libc::CLOCK_MONOTONIC);
    // SAFETY: `now` is a timespec that outlives the call.
    let result =
        unsafe { call(libc::SYS_clock_gettime, [clock, (&raw mut now).addr(), 0, 0, 0, 0]) };
    if result.is_ok() { nanoseconds(now.tv_sec, now.tv_nsec) } else { 0 }
}

/// Converts to nanoseconds. A time before the epoch is 0.
const fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    if seconds < 0 || nanoseconds < 0 {
        return 0;
    }
    (seconds.cast_unsigned()).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds.cast_unsigned())
}

pub(crate) fn pause_ns(nanoseconds: i64) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: `pause` is a timespec that outlives the call.
    let _ = unsafe { call(libc::SYS_nanosleep, [(&raw const pause).addr(), 0, 0, 0, 0, 0]) };
}

pub(crate) fn effective_user() -> u32 {
    // SAFETY: geteuid takes nothing.
    let user = unsafe { call(libc::SYS_geteuid, [0; 6]) };
    user.ok().and_then(|user| u32::try_from(user).ok()).unwrap_or(u32::MAX)
}

pub(crate) fn process() -> u64 {
    // SAFETY: getpid takes nothing.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.map_or(0, |pid| pid as u64)
}

/// Returns the soft limit on file sizes in bytes. Exceeding it would raise SIGXFSZ.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_FSIZE as usize;
    // SAFETY: `limit` is an rlimit64 that outlives the call; no new limit is given.
    let result =
        unsafe { call(libc::SYS_prlimit64, [0, resource, 0, (&raw mut limit).addr(), 0, 0]) };
    if result.is_ok() { limit.rlim_cur } else { 0 }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) has_one_name: bool,
    pub(crate) bytes: u64,
    pub(crate) changed_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystem {
    pub(crate) magic: u64,
    pub(crate) free_bytes: u64,
    pub(crate) id: u64,
}

/// A descriptor that also writes, which the shared one does not.
#[derive(Debug)]
pub(crate) struct Fd(largefolio_ranges::Fd);

impl Deref for Fd {
    type Target = largefolio_ranges::Fd;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Fd {
    pub(crate) fn open(path: &CStr, flags: c_int) -> Result<Self> {
        largefolio_ranges::Fd::open(path, flags).map(Self)
    }

    pub(crate) fn open_at(&self, name: &CStr, flags: c_int, mode: u32) -> Result<Self> {
        self.0.open_at(name, flags, mode).map(Self)
    }

    pub(crate) fn status(&self) -> Result<Status> {
        // SAFETY: an all-zero stat is valid.
        let mut found: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: `found` is the kernel's struct stat on 64-bit systems and outlives the call.
        unsafe { call(libc::SYS_fstat, [self.word(), (&raw mut found).addr(), 0, 0, 0, 0]) }?;
        Ok(Status {
            device: found.st_dev,
            inode: found.st_ino,
            mode: found.st_mode,
            user: found.st_uid,
            has_one_name: found.st_nlink == 1,
            bytes: u64::try_from(found.st_size).unwrap_or(0),
            changed_ns: nanoseconds(found.st_ctime, found.st_ctime_nsec),
        })
    }

    pub(crate) fn file_system(&self) -> Result<FileSystem> {
        // SAFETY: an all-zero statfs is valid.
        let mut found: libc::statfs = unsafe { core::mem::zeroed() };
        // SAFETY: `found` is the kernel's struct statfs on 64-bit systems and outlives the call.
        unsafe { call(libc::SYS_fstatfs, [self.word(), (&raw mut found).addr(), 0, 0, 0, 0]) }?;
        let block = u64::try_from(found.f_bsize).unwrap_or(0);
        Ok(FileSystem {
            magic: u64::try_from(found.f_type).unwrap_or(0),
            free_bytes: found.f_bavail.saturating_mul(block),
            // SAFETY: two 32-bit numbers in fields that libc keeps private.
            id: unsafe { core::mem::transmute::<libc::fsid_t, u64>(found.f_fsid) },
        })
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = [self.word(), rest.as_ptr().addr(), rest.len(), word(offset) + done, 0, 0];
            // SAFETY: the kernel reads `rest`, which outlives the call.
            match unsafe { call(libc::SYS_pwrite64, at) } {
                Ok(0) => return Err(Errno(libc::EIO)),
                Ok(nr) => done += nr,
                Err(Errno(libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes `bytes` in one call, so records of several processes do not mix.
    pub(crate) fn append(&self, bytes: &[u8]) {
        write_to(self.word(), bytes);
    }

    pub(crate) fn resize(&self, bytes: u64) -> Result<()> {
        // SAFETY: ftruncate takes numbers.
        unsafe { call(libc::SYS_ftruncate, [self.word(), word(bytes), 0, 0, 0, 0]) }.map(drop)
    }

    /// Takes the file's exclusive lock if it is free.
    pub(crate) fn try_lock(&self) -> bool {
        let operation = (libc::LOCK_EX | libc::LOCK_NB) as usize;
        // SAFETY: flock takes numbers.
        unsafe { call(libc::SYS_flock, [self.word(), operation, 0, 0, 0, 0]) }.is_ok()
    }

    pub(crate) fn link(&self, directory: &Self, name: &CStr) -> Result<()> {
        let mut own = crate::line::Line::<40>::new();
        own.push(b"/proc/self/fd/").push_decimal(self.word() as u64);
        let (own, name) = (own.c_str().as_ptr().addr(), name.as_ptr().addr());
        let flags = libc::AT_SYMLINK_FOLLOW as usize;
        // SAFETY: both are C strings that outlive the call.
        unsafe { call(libc::SYS_linkat, [AT_FDCWD, own, directory.word(), name, flags, 0]) }
            .map(drop)
    }

    pub(crate) fn symlink(&self, target: &CStr, name: &CStr) -> Result<()> {
        let (target, name) = (target.as_ptr().addr(), name.as_ptr().addr());
        // SAFETY: both are C strings that outlive the call.
        unsafe { call(libc::SYS_symlinkat, [target, self.word(), name, 0, 0, 0]) }.map(drop)
    }

    pub(crate) fn unlink(&self, name: &CStr) -> Result<()> {
        let name = name.as_ptr().addr();
        // SAFETY: `name` is a C string that outlives the call.
        unsafe { call(libc::SYS_unlinkat, [self.word(), name, 0, 0, 0, 0]) }.map(drop)
    }

    /// Maps the file over `len` bytes at `address` and replaces the old mapping in one step.
    ///
    /// # Safety
    /// `address..address + len` is ours to replace, or text whose bytes equal the file's.
    pub(crate) unsafe fn map_over(&self, address: usize, at: Window, how: Mapping) -> Result<()> {
        let (protection, flags) = how.numbers();
        let flags = i32_word(flags | libc::MAP_FIXED);
        let arguments = [address, at.len, protection, flags, self.word(), word(at.offset)];
        // SAFETY: by the caller's promise.
        unsafe { call(libc::SYS_mmap, arguments) }.map(drop)
    }
}

pub(crate) fn complain(text: &[u8]) {
    write_to(2, text);
}

fn write_to(fd: usize, bytes: &[u8]) {
    // SAFETY: the kernel reads `bytes`, which outlive the call. A failed write is ignored.
    let _ = unsafe { call(libc::SYS_write, [fd, bytes.as_ptr().addr(), bytes.len(), 0, 0, 0]) };
}

const _: () = assert!(size_of::<c_char>() == 1 && size_of::<usize>() == 8);
