//! Mounts that are not attached to any directory tree.
//!
//! Only a descriptor holds a [`Detached`] filesystem. Its path is `/proc/PID/fd/N`, it appears in
//! no list of mounts, and the kernel unmounts it when the process ends, even if SIGKILL ends it.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use crate::proc::fd;

#[derive(Debug)]
pub struct Detached {
    root: OwnedFd,
}

impl Detached {
    pub fn new(driver: &str, source: Option<&Path>) -> io::Result<Self> {
        let context = fsopen(driver, FsOpenFlags::FSOPEN_CLOEXEC)?;
        if let Some(source) = source {
            fsconfig_set_string(&context, "source", source)?;
        }
        fsconfig_create(&context)?;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(Self { root })
    }

    /// Returns a path to it for this process and its children, valid while this process lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let pid = rustix::process::getpid().as_raw_nonzero();
        fd::link(pid, self.root.as_raw_fd())
    }
}
