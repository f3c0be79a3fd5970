//! The descriptors of processes, and their files.
//!
//! Links below `/proc/PID` lead to the file itself, whatever its name is. Only the running kernel
//! has them, so these functions do not use a [`System`]: a directory of text files cannot provide
//! them.

use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

use crate::system::{FdInfo, System};

pub fn link(pid: impl Display, fd: impl Display) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/fd/{fd}"))
}

pub fn own(file: impl AsFd) -> PathBuf {
    link("self", file.as_fd().as_raw_fd())
}

pub(crate) fn program(pid: impl Display) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

pub fn info(system: &dyn System, pid: impl Display, fd: i32) -> io::Result<FdInfo> {
    let path = format!("/proc/{pid}/fdinfo/{fd}");
    Ok(FdInfo::parse(&system.text(Path::new(&path))?))
}

pub fn regular(pid: impl Display, fd: impl Display) -> Option<(Metadata, PathBuf)> {
    let link = link(pid, fd);
    let metadata = fs::metadata(&link).ok().filter(Metadata::is_file)?;
    Some((metadata, fs::read_link(&link).ok()?))
}

/// Whether it is a file or device, and not a pipe or socket.
pub fn is_file_or_device(pid: impl Display, fd: i32) -> bool {
    let is_either =
        |metadata: Metadata| !metadata.file_type().is_fifo() && !metadata.file_type().is_socket();
    fs::metadata(link(pid, fd)).is_ok_and(is_either)
}

pub fn memory(pid: impl Display, address: u64, bytes: &mut [u8]) -> io::Result<()> {
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(bytes, address)
}
