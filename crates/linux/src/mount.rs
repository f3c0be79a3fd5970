//! Mounts without a place in any directory tree.
//!
//! Owns [`Detached`]: a mounted filesystem that only its descriptor holds. It is reached through
//! `/proc/PID/fd/N`, does not appear in any list of mounts, and is unmounted when the descriptor
//! closes, however the process ends.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use crate::proc::fd;

/// A filesystem that is mounted nowhere.
#[derive(Debug)]
pub(crate) struct Detached {
    root: OwnedFd,
}

impl Detached {
    /// Mounts a filesystem of type `driver`, from `source` where it needs one.
    pub(crate) fn new(driver: &str, source: Option<&Path>) -> io::Result<Self> {
        let context = fsopen(driver, FsOpenFlags::FSOPEN_CLOEXEC)?;
        if let Some(source) = source {
            fsconfig_set_string(&context, "source", source)?;
        }
        fsconfig_create(&context)?;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(Self { root })
    }

    /// A path to it, for this process and for its children while this one lives.
    pub(crate) fn path(&self) -> PathBuf {
        let pid = rustix::process::getpid().as_raw_nonzero();
        fd::link(pid, self.root.as_raw_fd())
    }
}
