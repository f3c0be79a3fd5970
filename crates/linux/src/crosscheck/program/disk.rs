//! A small filesystem of our own, cold after every mount.
//!
//! A compressed RAM disk (zram) reads within the call that asks: nothing is ever in flight, and
//! what a program does follows from its touches alone. A loop device reads in another thread, as
//! a real disk does.
//!
//! Invariant D1: what was made is removed when the value is dropped: mount, device, image.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::ProgramError;

/// Kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// zram: reads are done when the call returns.
    Synchronous,
    /// Loop device over a file: reads are done some time later.
    Loop,
}

/// A block device that ends with its value.
#[derive(Debug)]
pub(crate) struct Disk {
    /// `/dev/NAME`.
    pub(crate) path: PathBuf,
    kind: DiskKind,
}

const ZRAM: &str = "/sys/class/zram-control";

impl Disk {
    /// A new device of `bytes`; `image` is where a loop device keeps them.
    pub(crate) fn new(kind: DiskKind, bytes: u64, image: &Path) -> Result<Self, ProgramError> {
        let path = match kind {
            DiskKind::Synchronous => {
                let number = fs::read_to_string(format!("{ZRAM}/hot_add"))
                    .map_err(ProgramError::os("add a zram device"))?;
                PathBuf::from(format!("/dev/zram{}", number.trim()))
            }
            DiskKind::Loop => {
                let file =
                    fs::File::create(image).map_err(ProgramError::os("create a disk image"))?;
                file.set_len(bytes).map_err(ProgramError::os("size a disk image"))?;
                let found = tool("losetup", &["--find".as_ref(), "--show".as_ref(), image])?;
                PathBuf::from(found.trim())
            }
        };
        let disk = Self { path, kind };
        if kind == DiskKind::Synchronous {
            disk.set("disksize", &bytes.to_string())?;
        }
        Ok(disk)
    }

    fn sysfs(&self, name: &str) -> PathBuf {
        Path::new("/sys/block").join(self.path.file_name().unwrap_or_default()).join(name)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), ProgramError> {
        fs::write(self.sysfs(name), value).map_err(ProgramError::os("set up the device"))
    }

    /// Sets the readahead window of files opened from now on.
    pub(crate) fn set_window_kib(&self, kib: u64) -> Result<(), ProgramError> {
        self.set("queue/read_ahead_kb", &kib.to_string())
    }

    /// Largest I/O in KiB.
    pub(crate) fn max_io_kib(&self) -> Result<u64, ProgramError> {
        let text = fs::read_to_string(self.sysfs("queue/max_sectors_kb"))
            .map_err(ProgramError::os("read the device's limits"))?;
        text.trim().parse().map_err(|_| ProgramError::Unexpected("queue/max_sectors_kb"))
    }

    /// Puts an empty filesystem on it.
    pub(crate) fn format(&self, filesystem: &str) -> Result<(), ProgramError> {
        let program = format!("mkfs.{filesystem}");
        let arguments: &[&str] = match filesystem {
            "ext4" => &["-q", "-F"],
            _ => &["-q", "-f"],
        };
        let arguments: Vec<&Path> = arguments.iter().map(Path::new).chain([&*self.path]).collect();
        tool(&program, &arguments).map(|_| ())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A device that is still busy stays; there is nobody left to tell.
        match self.kind {
            DiskKind::Synchronous => {
                let name = self.path.to_string_lossy();
                let number = name.trim_start_matches("/dev/zram");
                let _ = fs::write(self.sysfs("reset"), "1");
                let _ = fs::write(format!("{ZRAM}/hot_remove"), number);
            }
            DiskKind::Loop => {
                let _ = tool("losetup", &["--detach".as_ref(), &*self.path]);
            }
        }
    }
}

/// A mount that ends with its value.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Where.
    pub(crate) at: PathBuf,
}

impl Mount {
    /// Mounts a device.
    pub(crate) fn device(disk: &Disk, filesystem: &str, at: &Path) -> Result<Self, ProgramError> {
        mount(&disk.path, at, filesystem, 0).map_err(ProgramError::os("mount the filesystem"))?;
        Ok(Self { at: at.to_owned() })
    }

    /// Lets `file` appear at `at`.
    pub(crate) fn bind(file: &Path, at: &Path) -> Result<Self, ProgramError> {
        mount(file, at, "", libc::MS_BIND)
            .map_err(ProgramError::os("mount a copy over a file of the program"))?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Ok(at) = CString::new(self.at.as_os_str().as_bytes()) {
            // SAFETY: a terminated path. A mount that is busy stays; it is private to this thread
            // and goes with it.
            unsafe { libc::umount2(at.as_ptr(), 0) };
        }
    }
}

fn mount(from: &Path, at: &Path, filesystem: &str, flags: libc::c_ulong) -> io::Result<()> {
    let from = CString::new(from.as_os_str().as_bytes())?;
    let at = CString::new(at.as_os_str().as_bytes())?;
    let filesystem = CString::new(filesystem)?;
    // SAFETY: terminated strings, and no data.
    let result = unsafe {
        libc::mount(from.as_ptr(), at.as_ptr(), filesystem.as_ptr(), flags, std::ptr::null())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the calling thread mounts of its own, which nobody else sees.
pub(crate) fn private_mounts() -> Result<(), ProgramError> {
    // SAFETY: takes a flag and no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        let source = io::Error::last_os_error();
        return Err(ProgramError::Os { action: "make a private mount namespace", source });
    }
    mount(Path::new("none"), Path::new("/"), "", libc::MS_REC | libc::MS_PRIVATE)
        .map_err(ProgramError::os("make the mounts private"))
}

fn tool(name: &str, arguments: &[&Path]) -> Result<String, ProgramError> {
    let output = Command::new(name).args(arguments).output().map_err(|source| {
        ProgramError::Tool { name: name.to_owned(), what: source.to_string() }
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let what = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ProgramError::Tool { name: name.to_owned(), what })
}
