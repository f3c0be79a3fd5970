//! The directory of shared copies.
//!
//! A name in the directory always refers to a complete copy: a copy is an unnamed file
//! (`O_TMPFILE`) until it is complete.
//!
//! ```text
//!   find --found--> map it
//!     | missing
//!   lock the directory (bounded wait), find again
//!     | missing
//!   unnamed file -> fill -> check the source again -> link -> find
//!     | SIGKILL anywhere: the kernel removes the unnamed file and the lock
//! ```
//!
//! Invariants:
//! - D1: the directory is a real directory, owned by the effective user, with mode 0700, on tmpfs.
//!   A user with write access to it can also trace this process.
//! - D2: a copy is used only if it is a regular file of that user on that filesystem, with mode
//!   0400, one name and the expected size.
//! - D3: a name is a hint: a copy is used only after a comparison with the text it replaces.
//! - D4: every path below the directory is opened relative to its descriptor, without following
//!   links.

use core::ffi::CStr;

use crate::line::Line;
use crate::maps::{Blocks, Text};
use crate::superblock::Superblock;
use crate::sys::{self, Errno, Fd, Status};
use crate::wire::{LINK_SUFFIX, REPORT_BYTES_MAX, Refusal};

/// `TMPFS_MAGIC`. Only tmpfs has shared memory that can be collapsed.
const TMPFS: u64 = 0x0102_1994;
const PAUSE_NS: i64 = 1_000_000;
/// Attempts to take the lock: half a second in total, enough to copy about 500 MiB.
const TRIES: u32 = 500;
/// Bytes of a program's name in its copy's name. `NAME_MAX` is 255, the numbers take at most 153
/// and the suffix of a link 4.
const NAME_BYTES_MAX: usize = 96;

pub(crate) type Name = Line<256>;

pub(crate) struct Store {
    directory: Fd,
    device: u64,
    user: u32,
}

pub(crate) enum Found {
    Copy(Fd),
    Nothing,
    Link,
}

impl Store {
    pub(crate) fn open(path: &CStr) -> Result<Self, Refusal> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let directory = Fd::open(path, flags).map_err(|error| match error {
            Errno(libc::ENOENT | libc::EACCES) => Refusal::StoreMissing,
            _ => Refusal::StoreUntrusted,
        })?;
        let status = directory.status().map_err(|_| Refusal::StoreMissing)?;
        let user = sys::effective_user();
        if status.user != user || status.mode & 0o7777 != 0o700 {
            return Err(Refusal::StoreUntrusted);
        }
        let ground = directory.file_system().map_err(|_| Refusal::StoreMissing)?;
        if ground.magic != TMPFS {
            return Err(Refusal::StoreMissing);
        }
        Ok(Self { directory, device: status.device, user })
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.directory.file_system().map_or(0, |ground| ground.free_bytes)
    }

    /// Opens the file to which records are appended. Returns `None` if it exceeds the file size
    /// limit, because a write would then kill the process.
    pub(crate) fn report(&self, name: &CStr) -> Option<Fd> {
        let is_plain = name.to_bytes().iter().all(|byte| *byte != b'/');
        let is_allowed = is_plain && sys::file_size_limit() > 2 * REPORT_BYTES_MAX;
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW;
        let file = is_allowed.then(|| self.directory.open_at(name, flags, 0).ok()).flatten()?;
        let status = file.status().ok()?;
        (self.is_ours(&status) && status.bytes < REPORT_BYTES_MAX).then_some(file)
    }

    pub(crate) fn find(&self, name: &Name, bytes: u64) -> Result<Found, Refusal> {
        let file = match self.directory.open_at(name.c_str(), libc::O_RDONLY | libc::O_NOFOLLOW, 0)
        {
            Ok(file) => file,
            Err(Errno(libc::ENOENT)) => return Ok(Found::Nothing),
            Err(Errno(libc::ELOOP)) => return Ok(Found::Link),
            Err(Errno(libc::EACCES)) => return Err(Refusal::BadCopy),
            Err(_) => return Err(Refusal::Os),
        };
        let status = file.status().map_err(|_| Refusal::Os)?;
        let is_good =
            self.is_ours(&status) && status.mode & 0o7777 == 0o400 && status.bytes == bytes;
        if is_good { Ok(Found::Copy(file)) } else { Err(Refusal::BadCopy) }
    }

    fn is_ours(&self, status: &Status) -> bool {
        let is_regular = status.mode & libc::S_IFMT == libc::S_IFREG;
        is_regular
            && status.user == self.user
            && status.device == self.device
            && status.has_one_name
    }

    pub(crate) fn lock(&self, name: &Name, bytes: u64) -> Result<Lock, Refusal> {
        let lock = self.directory.open_at(c".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
        let lock = lock.map_err(|_| Refusal::Os)?;
        for _ in 0..TRIES {
            if lock.try_lock() {
                // The previous lock holder may have made it.
                return Ok(match self.find(name, bytes)? {
                    Found::Copy(copy) => Lock::Made(copy),
                    Found::Nothing => Lock::Taken(lock),
                    Found::Link => {
                        self.directory.unlink(name.c_str()).map_err(|_| Refusal::Os)?;
                        Lock::Taken(lock)
                    }
                });
            }
            sys::pause_ns(PAUSE_NS);
            if let Found::Copy(copy) = self.find(name, bytes)? {
                return Ok(Lock::Made(copy));
            }
        }
        Err(Refusal::Busy)
    }

    /// Removes `name` if it still refers to `copy`, whose bytes differ from the file's. A newer
    /// copy under this name stays.
    pub(crate) fn discard(&self, name: &Name, copy: &Fd) {
        let named = self.directory.open_at(name.c_str(), libc::O_RDONLY | libc::O_NOFOLLOW, 0);
        let inode = |file: Fd| file.status().map(|status| status.inode);
        if named.and_then(inode) == copy.status().map(|status| status.inode) {
            let _ = self.directory.unlink(name.c_str());
        }
    }

    /// Creates an unnamed file, which is read-only for all users once it has a name.
    pub(crate) fn unnamed(&self) -> Result<Fd, Refusal> {
        let flags = libc::O_RDWR | libc::O_TMPFILE;
        self.directory.open_at(c".", flags, 0o400).map_err(|_| Refusal::Os)
    }

    /// Names the finished `copy`, and creates a link to the original file. The link later replaces
    /// the copy for tools: positions in both are equal if the shift is 0.
    pub(crate) fn publish(
        &self,
        copy: &Fd,
        name: &Name,
        source: Option<&CStr>,
    ) -> Result<(), Refusal> {
        if let Some(source) = source {
            let mut link = Name::new();
            link.push(name.bytes()).push(LINK_SUFFIX);
            let _ = self.directory.unlink(link.c_str());
            // Without the link, only the symbols after the program's end are lost.
            let _ = self.directory.symlink(source, link.c_str());
        }
        match copy.link(&self.directory, name.c_str()) {
            Ok(()) | Err(Errno(libc::EEXIST)) => Ok(()),
            Err(_) => Err(Refusal::Os),
        }
    }
}

pub(crate) enum Lock {
    /// The lock, held until the descriptor is closed.
    Taken(Fd),
    Made(Fd),
}

/// Returns the copy's name for `blocks` of a file. It contains everything that the kernel knows
/// about the contents without reading them. `proof` checks the contents before a copy is used.
pub(crate) fn name_of(
    text: &Text,
    source: &Status,
    superblock: Superblock,
    blocks: &Blocks,
) -> Name {
    let mut name = Name::new();
    let own = text.name();
    name.push_name(own.get(..own.len().min(NAME_BYTES_MAX)).unwrap_or(b""));
    let numbers = [
        source.device,
        superblock.id,
        superblock.disk_sequence,
        source.inode,
        source.changed_ns,
        source.bytes,
        blocks.offset,
        blocks.len as u64,
        blocks.shift(),
    ];
    for number in numbers {
        name.push(b".").push_hex(number);
    }
    name
}

pub(crate) fn copy_bytes(source: &Status, blocks: &Blocks) -> Option<u64> {
    let bytes = source.bytes.checked_add(blocks.shift())?;
    bytes
        .checked_next_multiple_of(blocks.block as u64)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
}
