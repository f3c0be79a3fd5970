//! Identifies a file's superblock beyond its device number.
//!
//! A device number can be reused: a loop device gets another image, an anonymous device another
//! filesystem. Two numbers that need no privileges identify it better:
//!
//! - the disk's sequence number (Linux 5.15), new for each image of a loop device and each inserted
//!   medium;
//! - `f_fsid`: derived from the UUID on ext4 and btrfs, random for each tmpfs.
//!
//! Both are the same for every mount of a superblock, so these mounts share their copies. Neither
//! number proves the contents, and FUSE has neither: `proof` covers that.

use largefolio_ranges::number;

use crate::line::Line;
use crate::sys::{Fd, Status};
use crate::wire::DISK_SEQUENCES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) id: u64,
    /// The disk's sequence number, 0 if there is no disk or `/sys` does not show it.
    pub(crate) disk_sequence: u64,
}

impl Superblock {
    pub(crate) fn of(source: &Fd, status: &Status) -> Self {
        let id = source.file_system().map_or(0, |ground| ground.id);
        let (major, minor) = (libc::major(status.device), libc::minor(status.device));
        // Major 0 has no disk.
        let mut places = DISK_SEQUENCES.iter().filter(|_| major != 0);
        let found = places.find_map(|place| disk_sequence(major, minor, place));
        Self { id, disk_sequence: found.unwrap_or(0) }
    }
}

fn disk_sequence(major: u32, minor: u32, place: &str) -> Option<u64> {
    let mut path = Line::<64>::new();
    path.push(b"/sys/dev/block/").push_decimal(major.into()).push(b":");
    path.push_decimal(minor.into()).push(place.as_bytes());
    let file = Fd::open(path.c_str(), libc::O_RDONLY).ok()?;
    let mut buffer = [0; 32];
    let nr = file.read(&mut buffer).ok()?;
    number::<10>(buffer.get(..nr)?.trim_ascii())
}
