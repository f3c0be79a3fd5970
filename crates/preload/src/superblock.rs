//! Which superblock a file belongs to, beside the number of its device.
//!
//! A device number outlives what it names: a loop device gets another image, an anonymous device
//! another file system. Two numbers that need no rights tell more:
//!
//! - the sequence number of the disk (Linux 5.15), new for each image that a loop device gets and each
//!   medium that is put in;
//! - `f_fsid`: of the uuid on ext4 and btrfs, drawn at random for each tmpfs.
//!
//! Both stay the same over several mounts of one superblock, in whatever mount namespace, which then
//! share their copies; ids of mounts would not. Neither proves content, and FUSE has none of them:
//! that is what `proof` is for.

use crate::line::Line;
use crate::maps::number;
use crate::sys::{Fd, Status};
use crate::wire::DISK_SEQUENCES;

/// What names a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// `f_fsid`.
    pub(crate) id: u64,
    /// Of its disk; 0 for none, or where `/sys` does not say.
    pub(crate) disk_sequence: u64,
}

impl Superblock {
    /// That of `source`.
    pub(crate) fn of(source: &Fd, status: &Status) -> Self {
        let id = source.file_system().map_or(0, |ground| ground.id);
        let (major, minor) = (libc::major(status.device), libc::minor(status.device));
        // Major 0: no disk behind it.
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
