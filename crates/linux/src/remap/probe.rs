//! A trial copy, which shows whether the kernel, the mount and the security policy allow remapping.
//!
//! Briefly owns one block of shared memory. It makes the same calls as the library, so the launcher
//! reports a refusal once, and the launcher's seccomp filter is tested with these calls beforehand.

use std::os::fd::AsFd;
use std::ptr;

use largefolio_ranges::Errno;
use largefolio_ranges::sys::{self, Madvise};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::store::Store;
use super::wire::Refusal;
use crate::proc::fd;

pub(super) fn check(store: &Store) -> Result<(), Refusal> {
    // A tmpfs that is too small for a block returns the same error as a kernel that cannot
    // collapse.
    let system = rustix::fs::fstatvfs(store).map_err(|_| Refusal::Os)?;
    if system.f_bavail.saturating_mul(system.f_frsize) < 2 * block_bytes() as u64 {
        return Err(Refusal::LowMemory);
    }
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(store, ".", flags, Mode::RUSR).map_err(|_| Refusal::Os)?;
    rustix::fs::ftruncate(&file, block_bytes() as u64).map_err(of_room)?;
    rustix::io::pwrite(&file, &[0], 0).map_err(of_room)?;
    let filled = TrialBlock::map(&file, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)?;
    filled.collapse()?;
    drop(filled);
    TrialBlock::map(&file, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE)?;
    let name = format!("probe.{}", rustix::process::getpid().as_raw_nonzero());
    let linked = rustix::fs::linkat(CWD, fd::own(&file), store, &*name, AtFlags::SYMLINK_FOLLOW);
    linked.map_err(|_| Refusal::Os)?;
    store.remove(&name);
    Ok(())
}

struct TrialBlock {
    reserved: *mut libc::c_void,
    start: *mut libc::c_void,
}

fn block_bytes() -> usize {
    largefolio_ranges::block_bytes(rustix::param::page_size())
}

impl TrialBlock {
    fn map(file: impl AsFd, protection: ProtFlags, flags: MapFlags) -> Result<Self, Refusal> {
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing of ours.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                2 * block_bytes(),
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let reserved = reserved.map_err(|_| Refusal::LowMemory)?;
        let start = reserved.map_addr(|address| address.next_multiple_of(block_bytes()));
        let block = Self { reserved, start };
        // SAFETY: the block is in the reserved range, which is ours.
        let mapped = unsafe {
            rustix::mm::mmap(start, block_bytes(), protection, flags | MapFlags::FIXED, file, 0)
        };
        match mapped {
            Ok(_) => Ok(block),
            Err(rustix::io::Errno::PERM) => Err(Refusal::NoExec),
            Err(rustix::io::Errno::ACCESS) => Err(Refusal::Denied),
            Err(_) => Err(Refusal::Os),
        }
    }

    fn collapse(&self) -> Result<(), Refusal> {
        match sys::madvise(self.start.addr(), block_bytes(), Madvise::Collapse) {
            Ok(()) => Ok(()),
            Err(Errno(libc::EINVAL)) => Err(Refusal::OldKernel),
            Err(_) => Err(Refusal::NoLargeFolio),
        }
    }
}

impl Drop for TrialBlock {
    fn drop(&mut self) {
        // SAFETY: `map` reserved the range and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.reserved, 2 * block_bytes()) };
    }
}

fn of_room(error: rustix::io::Errno) -> Refusal {
    match error {
        rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM => Refusal::LowMemory,
        rustix::io::Errno::FBIG => Refusal::FileLimit,
        _ => Refusal::Os,
    }
}
