//! The directory of shared copies: creation, checks, lease and cleaning.
//!
//! ```text
//!   /dev/shm/largefolio-UID/   0700
//!     lease                    locked shared by every running launcher
//!     report.PID.TIME          records of one launcher's processes
//!     NAME.KEY                 a copy, 0400
//!     NAME.KEY.src             link to its file, which replaces the copy in the end
//! ```
//!
//! A launcher that gets the lease exclusively may clean up, both when it starts (after another
//! launcher was killed) and when it ends. A process that outlives its launcher keeps its mapping of
//! a removed copy.
//!
//! Invariants:
//! - S1: the directory is not a link, belongs only to this user (0700) and is on tmpfs.
//! - S2: nothing outside the directory is opened, changed or removed through it. Links are followed
//!   only to check whether their file is still the same.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::wire::{DISK_SEQUENCES, LINK_SUFFIX, REPORT_BYTES_MAX, Refusal};
use crate::proc::block;
use crate::system::Live;

const TMPFS: i128 = 0x0102_1994;
const LEASE: &str = "lease";
/// Limit on names read during cleaning: a hostile number of files cannot block it forever.
const ENTRIES_MAX: usize = 100_000;
/// Numbers at the end of a copy's name: device, filesystem, disk, inode, change time, size, offset,
/// length, shift.
const NR_KEY_FIELDS: usize = 9;

#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    directory: OwnedFd,
    lease: OwnedFd,
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Returns the possible directories in order of preference. A reboot empties both.
pub(super) fn places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let mut places = vec![PathBuf::from(format!("/dev/shm/largefolio-{user}"))];
    // The user's own tmpfs, for systems with a noexec /dev/shm (containers).
    let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_absolute());
    places.extend(runtime.map(|path| Path::new(&path).join("largefolio")));
    places
}

impl Store {
    pub(super) fn open(path: &Path) -> Result<Self, Refusal> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(_) => return Err(Refusal::StoreMissing),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
                Errno::NOENT | Errno::ACCESS => Refusal::StoreMissing,
                _ => Refusal::StoreUntrusted,
            })?;
        let status = rustix::fs::fstat(&directory).map_err(|_| Refusal::Os)?;
        let is_own = status.st_uid == rustix::process::geteuid().as_raw();
        if !is_own || status.st_mode & 0o7777 != 0o700 {
            return Err(Refusal::StoreUntrusted);
        }
        let system = rustix::fs::fstatfs(&directory).map_err(|_| Refusal::Os)?;
        if i128::from(system.f_type) != TMPFS {
            return Err(Refusal::StoreMissing);
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lease = rustix::fs::openat(&directory, LEASE, flags, Mode::RUSR | Mode::WUSR);
        let lease = lease.map_err(|_| Refusal::StoreUntrusted)?;
        Ok(Self { path: path.to_owned(), directory, lease })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Cleans if no launcher runs, and holds the store for this one.
    pub(super) fn lease(&self) -> io::Result<()> {
        if rustix::fs::flock(&self.lease, FlockOperation::NonBlockingLockExclusive).is_ok() {
            self.clean();
        }
        // A launcher that holds it exclusively is cleaning, which takes milliseconds.
        Ok(rustix::fs::flock(&self.lease, FlockOperation::LockShared)?)
    }

    pub(super) fn release(&self) {
        if rustix::fs::flock(&self.lease, FlockOperation::NonBlockingLockExclusive).is_ok() {
            self.clean();
        }
    }

    pub(super) fn report(&self) -> io::Result<ReportFile> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let pid = rustix::process::getpid().as_raw_nonzero();
        let name = format!("report.{pid}.{}{:09}", now.tv_sec, now.tv_nsec);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(ReportFile { name, file: File::from(file) })
    }

    pub(super) fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(self, name, AtFlags::empty());
    }

    /// Removes every copy and report. A copy's name becomes the link to its file. Removes links
    /// whose file has changed.
    fn clean(&self) {
        let entries = self.entries();
        for (name, kind) in &entries {
            if let (FileType::Symlink, Some(copy)) = (kind, base_of(name)) {
                let is_there = entries.iter().any(|(other, kind)| {
                    other.as_bytes() == copy && *kind == FileType::RegularFile
                });
                let taken = is_there && rustix::fs::renameat(self, name, self, copy).is_ok();
                if !taken {
                    let _ = rustix::fs::unlinkat(self, name, AtFlags::empty());
                }
            }
        }
        for (name, kind) in self.entries() {
            let is_kept = name == LEASE || kind == FileType::Symlink && self.is_current(&name);
            if !is_kept {
                let _ = rustix::fs::unlinkat(self, &name, AtFlags::empty());
            }
        }
    }

    fn entries(&self) -> Vec<(OsString, FileType)> {
        let Ok(directory) = Dir::read_from(self) else { return Vec::new() };
        let named = directory.flatten().filter_map(|entry| {
            let name = entry.file_name().to_bytes();
            let is_real = name != b"." && name != b"..";
            is_real.then(|| (OsString::from_vec(name.to_vec()), entry.file_type()))
        });
        named.take(ENTRIES_MAX).collect()
    }

    /// Returns whether a link's target is the file that its copy was made of, according to the
    /// name.
    fn is_current(&self, name: &OsStr) -> bool {
        let Some([device, system, disk, inode, changed_ns, bytes, ..]) = key_of(name) else {
            return false;
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(self, name, flags, Mode::empty()) else { return false };
        let (Ok(status), Ok(ground)) = (rustix::fs::fstat(&file), rustix::fs::fstatvfs(&file))
        else {
            return false;
        };
        let seconds = u64::try_from(status.st_ctime).unwrap_or(0);
        let found_ns = seconds.wrapping_mul(1_000_000_000).wrapping_add(status.st_ctime_nsec);
        let found_bytes = u64::try_from(status.st_size).unwrap_or(0);
        (status.st_dev, ground.f_fsid, disk_sequence(status.st_dev)) == (device, system, disk)
            && (status.st_ino, found_ns, found_bytes) == (inode, changed_ns, bytes)
    }
}

fn disk_sequence(device: u64) -> u64 {
    let mut places = DISK_SEQUENCES.iter().filter(|_| libc::major(device) != 0);
    places.find_map(|place| block::number_of(&Live, device, place)).unwrap_or(0)
}

fn base_of(name: &OsStr) -> Option<&[u8]> {
    name.as_bytes().strip_suffix(LINK_SUFFIX).filter(|base| !base.is_empty())
}

fn key_of(name: &OsStr) -> Option<[u64; NR_KEY_FIELDS]> {
    let text = name.to_str()?;
    let mut key = [0; NR_KEY_FIELDS];
    let mut fields = text.rsplit('.');
    for slot in key.iter_mut().rev() {
        *slot = u64::from_str_radix(fields.next()?, 16).ok()?;
    }
    Some(key)
}

#[derive(Debug)]
pub(super) struct ReportFile {
    name: String,
    file: File,
}

impl ReportFile {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn read(&self) -> io::Result<String> {
        use std::io::Seek;
        let mut file = &self.file;
        file.rewind()?;
        let mut bytes = Vec::new();
        // At the limit, each process may still be writing one record.
        file.take(2 * REPORT_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_read_from_the_end_of_the_name() {
        let key = key_of(OsStr::new("lib.a.so.1.fe00.a1.7.3c7.18.5e.800000.1800000.0"));
        assert_eq!(key, Some([0xfe00, 0xa1, 7, 0x3c7, 0x18, 0x5e, 0x80_0000, 0x180_0000, 0]));
        assert_eq!(key_of(OsStr::new("a.b.c")), None);
        assert_eq!(key_of(OsStr::new("1.2.3.4.5.6.7.8.9.x")), None);
    }

    #[test]
    fn a_link_knows_its_copy() {
        assert_eq!(base_of(OsStr::new("a.1.src")), Some(&b"a.1"[..]));
        assert_eq!(base_of(OsStr::new(".src")), None);
        assert_eq!(base_of(OsStr::new("a.1")), None);
    }
}
