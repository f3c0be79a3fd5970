//! Block devices: where their settings are, and which disk is which.

use std::path::{Path, PathBuf};

use super::number;
use crate::system::System;

/// Every disk has a directory here.
pub(crate) const DISKS: &str = "/sys/block";
/// Every mounted btrfs has one here: a device of its own takes the readahead window.
pub(crate) const BTRFS: &str = "/sys/fs/btrfs";
/// A read makes a compressed RAM disk and tells its number.
pub(crate) const ZRAM_ADD: &str = "/sys/class/zram-control/hot_add";
/// A number written removes it.
pub(crate) const ZRAM_REMOVE: &str = "/sys/class/zram-control/hot_remove";

/// A file of the disk `name`, such as `queue/read_ahead_kb`.
pub(crate) fn of_disk(name: &str, file: &str) -> PathBuf {
    Path::new(DISKS).join(name).join(file)
}

/// A number in the directory of a device by its number; `place` begins with `/`.
pub(crate) fn number_of(system: &dyn System, device: u64, place: &str) -> Option<u64> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    number(system, Path::new(&format!("/sys/dev/block/{major}:{minor}{place}")))
}
