//! Block devices: the paths of their settings, and a search for a disk by its number.

use std::path::{Path, PathBuf};

use super::number;
use crate::system::System;

pub const DISKS: &str = "/sys/block";
/// Each mounted btrfs has a directory here: its own device has the readahead window.
pub const BTRFS: &str = "/sys/fs/btrfs";
/// Reading it creates a compressed RAM disk and returns its number.
pub const ZRAM_ADD: &str = "/sys/class/zram-control/hot_add";
/// Writing a disk's number removes it.
pub const ZRAM_REMOVE: &str = "/sys/class/zram-control/hot_remove";

/// Begins the name of a btrfs; one of its disks follows. A btrfs has its own readahead settings.
pub const OF_BTRFS: &str = "btrfs-";

/// Whether a kernel's edit can name the device.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!_-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns a path of disk `name`, such as `queue/read_ahead_kb`.
#[must_use]
pub fn of_disk(name: &str, file: &str) -> PathBuf {
    Path::new(DISKS).join(name).join(file)
}

/// Returns the directory of a device.
pub(crate) fn folder_of((major, minor): (u32, u32)) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// Returns the file with the mount options of the ext4 on device `name`.
pub(crate) fn ext4_options(name: &str) -> PathBuf {
    Path::new("/proc/fs/ext4").join(name).join("options")
}

/// Reads a number from a device's directory; `place` starts with `/`.
pub fn number_of(system: &dyn System, device: u64, place: &str) -> Option<u64> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    number(system, Path::new(&format!("/sys/dev/block/{major}:{minor}{place}")))
}
