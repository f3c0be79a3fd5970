//! Filesystems by their statfs(2) magic: names, and whether the page cache holds their files.

use std::io;
use std::os::fd::AsFd;

/// Magic numbers from `linux/magic.h`.
const FILESYSTEMS: [(i64, &str); 16] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, OVERLAY),
    (0x6969, "nfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x7371_7368, "squashfs"),
    (0xe0f5_e1e2, "erofs"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0x4d44, "vfat"),
];

/// Filesystems whose files the kernel generates, without cached contents.
const WITHOUT_FILES: [i64; 9] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xf97c_ff8c, // selinuxfs
    0xcafe_4a11, // bpf
];

/// Filesystems that store files only in memory: nothing can be evicted and read again.
const MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

pub(crate) const OVERLAY: &str = "overlayfs";

pub(crate) fn name(magic: i64) -> String {
    FILESYSTEMS
        .iter()
        .find(|(known, _)| *known == magic)
        .map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned())
}

pub(crate) fn is_without_files(magic: i64) -> bool {
    WITHOUT_FILES.contains(&magic)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ground {
    pub(crate) name: String,
    pub(crate) is_cache: bool,
}

pub(crate) fn of(file: impl AsFd) -> io::Result<Ground> {
    let magic = rustix::fs::fstatfs(file)?.f_type;
    let is_cache = !is_without_files(magic) && !MEMORY.contains(&magic);
    Ok(Ground { name: name(magic), is_cache })
}
