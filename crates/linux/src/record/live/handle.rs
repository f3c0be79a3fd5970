//! A file by the number of its inode.
//!
//! A program may open, read and close a file before anybody can look at its descriptors. The kernel
//! gives a file by a handle (`open_by_handle_at`), which ext4 takes with the inode alone; other
//! filesystems want more and refuse it.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::Found;
use rustix::fs::OFlags;

use crate::proc::{Task, fd};
use crate::system::{Live, mounts};

/// `FILEID_INO32_GEN`.
const INODE_AND_GENERATION: i32 = 1;

/// `struct file_handle` with its bytes.
#[repr(C)]
struct Handle {
    nr_bytes: u32,
    kind: i32,
    inode: u32,
    /// 0 stands for any.
    generation: u32,
}

/// The name of a file, as this process sees it; `None` where the filesystem does not tell.
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
    // SAFETY: the kernel reads the head of the handle and `nr_bytes` bytes behind it, which are its.
    let descriptor = unsafe {
        let handle = (&raw mut handle).cast();
        libc::open_by_handle_at(root.as_raw_fd(), handle, libc::O_PATH | libc::O_CLOEXEC)
    };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor) };
    let path = fs::read_link(fd::own(&file)).ok()?;
    let found = path.metadata().ok()?;
    ((found.dev(), found.ino()) == (device, inode)).then_some(path)
}

/// A descriptor on a mounted filesystem; anything but files and directories may be mounted on, too.
fn mount(point: &Path) -> Option<File> {
    let found = Found::of(point).ok()?;
    let kind = found.metadata().file_type();
    (kind.is_dir() || kind.is_file()).then(|| found.open(OFlags::RDONLY).ok())?
}
