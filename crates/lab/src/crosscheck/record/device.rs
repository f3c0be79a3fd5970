//! A block device in memory: a loop device over a memfd.
//!
//! Owns attaching, formatting, and the two queue settings that a recording needs. The device
//! detaches itself after its last user (`LO_FLAGS_AUTOCLEAR`); it uses memory only for written
//! data. Invariant D1: the queue's earlier settings are restored when [`Device`] is dropped or this
//! process is killed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::error::CrosscheckError;
use super::workloads::Filesystem;
use largefolio_linux::proc::block;
use largefolio_linux::setting::Setting;

/// The device's length without a user file; XFS needs 300 MiB.
const DEVICE_BYTES: u64 = 640 << 20;
/// The largest request in KiB, as in the recordings of the packaged kernels.
const MAX_SECTORS_KB: u64 = 512;
/// btrfs has its own device, which keeps the kernel's default whatever the device below supports.
const BTRFS_SECTORS_KB: u64 = 128;
/// Another process may take the free device first.
const NR_TRIES: usize = 16;

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    places: [u64; 5],
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    names_and_keys: [u8; 64 + 64 + 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

#[derive(Debug)]
pub(super) struct Device {
    number: u32,
    settings: BTreeMap<PathBuf, Setting>,
    /// Keeps the device attached between formatting and mounting.
    _open: File,
}

impl Device {
    pub(super) fn new(more_bytes: u64) -> Result<Self, CrosscheckError> {
        let image = memfd_create("largefolio", MemfdFlags::CLOEXEC)
            .map_err(CrosscheckError::os("make an image in memory"))?;
        ftruncate(&image, DEVICE_BYTES + more_bytes)
            .map_err(CrosscheckError::os("set the image's size"))?;
        for _ in 0..NR_TRIES {
            match attach(&image) {
                Ok((number, open)) => {
                    return Ok(Self { number, settings: BTreeMap::new(), _open: open });
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(CrosscheckError::NoLoop(error)),
            }
        }
        Err(CrosscheckError::NoLoop(io::ErrorKind::ResourceBusy.into()))
    }

    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    pub(super) fn set_max_sectors_kb(&mut self) -> Result<(), CrosscheckError> {
        self.set(&self.queue("max_sectors_kb"), MAX_SECTORS_KB)
    }

    /// Returns the readahead window setting of `filesystem`. btrfs has its own device for it.
    pub(super) fn window_of(&self, filesystem: Filesystem) -> Result<PathBuf, CrosscheckError> {
        if filesystem != Filesystem::Btrfs {
            return Ok(self.queue("read_ahead_kb"));
        }
        let all = Path::new(block::BTRFS);
        let entries = fs::read_dir(all).map_err(CrosscheckError::file(all))?;
        let has_this = |path: &PathBuf| path.join(format!("devices/loop{}", self.number)).exists();
        let path = entries.flatten().map(|entry| entry.path()).find(has_this);
        let missing = || CrosscheckError::file(all)(io::ErrorKind::NotFound);
        Ok(path.ok_or_else(missing)?.join("bdi/read_ahead_kb"))
    }

    /// Sets the readahead window for files opened from now on, except on btrfs.
    pub(super) fn set_window_kb(&mut self, window_kb: u64) -> Result<(), CrosscheckError> {
        self.set(&self.queue("read_ahead_kb"), window_kb)
    }

    fn queue(&self, name: &str) -> PathBuf {
        block::of_disk(&format!("loop{}", self.number), &format!("queue/{name}"))
    }

    pub(super) fn set(&mut self, path: &Path, value: u64) -> Result<(), CrosscheckError> {
        let wanted = value.to_string();
        if let Some(setting) = self.settings.get_mut(path) {
            setting.set(&wanted)?;
        } else {
            self.settings.insert(path.to_owned(), Setting::change(path, &wanted)?);
        }
        let now = Setting::read(path)?;
        if now == wanted {
            return Ok(());
        }
        let what = format!("folio set it to {value}, but the kernel changed it to {now}");
        Err(CrosscheckError::file(path)(io::Error::other(what)))
    }
}

pub(super) const fn max_sectors_kb(filesystem: Filesystem) -> u64 {
    if matches!(filesystem, Filesystem::Btrfs) { BTRFS_SECTORS_KB } else { MAX_SECTORS_KB }
}

fn attach(image: &OwnedFd) -> io::Result<(u32, File)> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    // SAFETY: the request takes no argument and returns a number.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
    let path = format!("/dev/loop{number}");
    let device = OpenOptions::new().read(true).write(true).open(path)?;
    let config = LoopConfig {
        fd: u32::try_from(image.as_raw_fd()).map_err(io::Error::other)?,
        block_size: 0,
        places: [0; 5],
        number,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_AUTOCLEAR,
        names_and_keys: [0; 160],
        init: [0; 2],
        reserved: [0; 8],
    };
    // SAFETY: `config` has the layout of `struct loop_config` and outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if result == 0 { Ok((number, device)) } else { Err(io::Error::last_os_error()) }
}

/// 304 bytes in `<linux/loop.h>`.
const _: () = assert!(size_of::<LoopConfig>() == 304);
