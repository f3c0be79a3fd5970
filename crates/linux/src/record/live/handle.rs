//! Finds a file by its inode number.
//!
//! A program may open, read and close a file before its descriptors can be read. The kernel opens a
//! file by handle (`open_by_handle_at`). ext4 accepts the inode alone; other filesystems need more
//! and refuse.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::PathHandle;
use rustix::fs::OFlags;

use crate::proc::{Task, fd};
use crate::system::{Live, mounts};

const INODE_AND_GENERATION: i32 = 1;

#[repr(C)]
struct Handle {
    nr_bytes: u32,
    kind: i32,
    inode: u32,
    /// 0 matches any.
    generation: u32,
}

/// Returns the file's name in this mount namespace; `None` if the filesystem does not support it.
pub(super) fn path(device: u64, inode: u64) -> Option<PathBuf> {
    let number = (libc::major(device), libc::minor(device));
    let mountinfo = Task::own(&Live).mounts().ok()?;
    let root = mount(&mounts::point(&mountinfo, number)?)?;
    let mut handle = Handle {
        nr_bytes: 8,
        kind: INODE_AND_GENERATION,
        inode: u32::try_from(inode).ok()?,
        generation: 0,
    };
    // SAFETY: the kernel reads the handle's head and the `nr_bytes` bytes after it, which belong to
    // it.
    let descriptor = unsafe {
        let handle = (&raw mut handle).cast();
        libc::open_by_handle_at(root.as_raw_fd(), handle, libc::O_PATH | libc::O_CLOEXEC)
    };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and has no other owner.
    let file = unsafe { File::from_raw_fd(descriptor) };
    let path = fs::read_link(fd::own(&file)).ok()?;
    let metadata = path.metadata().ok()?;
    ((metadata.dev(), metadata.ino()) == (device, inode)).then_some(path)
}

/// Opens a mounted filesystem. Skips mount points that are neither files nor directories.
fn mount(point: &Path) -> Option<File> {
    let handle = PathHandle::of(point).ok()?;
    let kind = handle.metadata().file_type();
    (kind.is_dir() || kind.is_file()).then(|| handle.open(OFlags::RDONLY).ok())?
}
