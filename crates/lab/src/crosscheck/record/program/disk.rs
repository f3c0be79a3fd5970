//! A small private filesystem, cold after every mount.
//!
//! A compressed RAM disk (zram) finishes a read within the call: no read is ever in flight, and the
//! result depends only on the program's touches. A loop device reads in another thread, like a real
//! disk.
//!
//! Invariant D1: a mount or a loop device is removed when its value is dropped, a zram device with
//! [`Kept`].

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::super::device::Device;
use super::super::error::CrosscheckError;
use super::super::workloads::Filesystem;
use super::kept::Kept;
use largefolio_linux::proc::block;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disk {
    /// zram: a read ends before its call returns.
    Within,
    /// A loop device: a read ends later, as on a real disk.
    Later,
    /// zram if the kernel supports it, else a loop device.
    #[default]
    Best,
}

impl Disk {
    /// Whether to use zram, by choice or because this kernel supports it.
    pub(super) fn is_zram(self) -> bool {
        self == Self::Within || (self == Self::Best && Path::new(block::ZRAM_ADD).exists())
    }
}

#[derive(Debug)]
pub(crate) enum BlockDevice {
    Zram(u32),
    Loop(Device),
}

impl BlockDevice {
    /// Makes a device of `bytes`: the kept zram device, else a new loop device.
    pub(crate) fn new(kept: &Kept, bytes: u64) -> Result<Self, CrosscheckError> {
        let Some(number) = kept.zram else { return Device::new(bytes).map(Self::Loop) };
        let block = Self::Zram(number);
        block.set("disksize", bytes)?;
        Ok(block)
    }

    pub(crate) fn reads_within_call(&self) -> bool {
        matches!(self, Self::Zram(_))
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Zram(number) => PathBuf::from(format!("/dev/zram{number}")),
            Self::Loop(device) => device.path(),
        }
    }

    fn sysfs(&self, name: &str) -> PathBuf {
        let device = self.path();
        let disk = device.file_name().unwrap_or_default().to_string_lossy();
        block::of_disk(&disk, name)
    }

    fn set(&self, name: &str, value: u64) -> Result<(), CrosscheckError> {
        let path = self.sysfs(name);
        fs::write(&path, value.to_string()).map_err(CrosscheckError::file(path))
    }

    pub(crate) fn set_window_kb(&mut self, kb: u64) -> Result<(), CrosscheckError> {
        match self {
            Self::Zram(_) => self.set("queue/read_ahead_kb", kb),
            Self::Loop(device) => device.set_window_kb(kb),
        }
    }

    pub(crate) fn max_sectors_kb(&self) -> Result<u64, CrosscheckError> {
        let path = self.sysfs("queue/max_sectors_kb");
        let text = fs::read_to_string(&path).map_err(CrosscheckError::file(&path))?;
        text.trim().parse().map_err(io::Error::other).map_err(CrosscheckError::file(path))
    }
}

#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) at: PathBuf,
}

impl Mount {
    pub(crate) fn device(
        disk: &BlockDevice,
        filesystem: Filesystem,
        at: &Path,
    ) -> Result<Self, CrosscheckError> {
        let filesystem = filesystem.driver();
        mount(&disk.path(), at, Kind { filesystem, flags: 0, data: "" })
            .map_err(|source| CrosscheckError::Mount { filesystem, source })?;
        Ok(Self { at: at.to_owned() })
    }

    pub(crate) fn bind(file: &Path, at: &Path) -> Result<Self, CrosscheckError> {
        mount(file, at, Kind { filesystem: "", flags: libc::MS_BIND, data: "" })
            .map_err(CrosscheckError::os("mount a copy over one of the program's files"))?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Mount {
    /// Mounts an empty tmpfs with this `huge=`.
    pub(crate) fn tmpfs(huge: &str, at: &Path) -> Result<Self, CrosscheckError> {
        let (filesystem, data) = ("tmpfs", format!("huge={huge}"));
        mount(Path::new(filesystem), at, Kind { filesystem, flags: 0, data: &data })
            .map_err(|source| CrosscheckError::Mount { filesystem, source })?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Ok(at) = CString::new(self.at.as_os_str().as_bytes()) {
            // SAFETY: a terminated path. A busy mount stays, but it is private to this thread and
            // ends with it.
            unsafe { libc::umount2(at.as_ptr(), 0) };
        }
    }
}

#[derive(Clone, Copy)]
struct Kind<'a> {
    filesystem: &'a str,
    flags: libc::c_ulong,
    /// The filesystem's own options.
    data: &'a str,
}

fn mount(from: &Path, at: &Path, kind: Kind<'_>) -> io::Result<()> {
    let from = CString::new(from.as_os_str().as_bytes())?;
    let at = CString::new(at.as_os_str().as_bytes())?;
    let (filesystem, data) = (CString::new(kind.filesystem)?, CString::new(kind.data)?);
    // SAFETY: terminated strings.
    let result = unsafe {
        libc::mount(
            from.as_ptr(),
            at.as_ptr(),
            filesystem.as_ptr(),
            kind.flags,
            data.as_ptr().cast(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn private_mounts() -> Result<(), CrosscheckError> {
    // SAFETY: takes a flag and no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        let source = io::Error::last_os_error();
        return Err(CrosscheckError::Os { action: "make a private mount namespace", source });
    }
    let kind = Kind { filesystem: "", flags: libc::MS_REC | libc::MS_PRIVATE, data: "" };
    mount(Path::new("none"), Path::new("/"), kind).map_err(CrosscheckError::os(
        "make the mounts private (in a chroot, run it where `/` is a mount point)",
    ))
}
