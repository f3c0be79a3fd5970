//! Kernel events, before they are assigned to a process.

use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Mmap,
    Munmap,
    Mprotect,
    Mremap,
    Madvise,
    Brk,
    Msync,
    /// sync and syncfs.
    SyncAll,
    Mlock,
    Mlock2,
    Munlock,
    Mlockall,
    Munlockall,
    Prctl,
}

/// Bytes of a file that a call reads, writes or allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRange {
    pub(super) inode: u64,
    pub(super) device: u64,
    pub(super) pos: u64,
    pub(super) len: u64,
}

impl FileRange {
    pub(super) fn end(&self) -> u64 {
        self.pos.saturating_add(self.len)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) pid: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) pos: u64,
    /// The file's device, numbered like `libc::makedev`.
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) prot: u32,
    pub(super) path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KernelEvent {
    /// A page fault on a user address.
    Fault {
        address: u64,
        code: u64,
    },
    /// A read call reached the page cache for the pages `first..end` of a file.
    FileRead {
        inode: u64,
        device: u64,
        first: u64,
        end: u64,
    },
    /// A write call reached the page cache.
    FileWrite(FileRange),
    /// A read or write call is about to move data past the page cache.
    DirectBegins(FileRange),
    /// The thread's direct call moves data.
    DirectGoes {
        inode: u64,
        is_write: bool,
    },
    /// The thread waits for a file's data to be in storage.
    Synced {
        inode: u64,
        device: u64,
    },
    /// A call of fallocate (`FALLOC_FL_*`).
    Allocates {
        range: FileRange,
        mode: u64,
    },
    /// The thread created another one (`CLONE_*`).
    Birth {
        child: u32,
        flags: u64,
    },
    /// The process has executed a program; `earlier` is the thread that called execve.
    Executes {
        process: u32,
        earlier: u32,
    },
    Ends,
    Enter {
        call: Call,
        arguments: [u64; 6],
    },
    Exit {
        result: i64,
    },
    Mapped(Box<Mapped>),
    /// An execve is about to map its program.
    Clears,
}

/// An event with its time and thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    /// The kernel's thread id.
    pub(super) tid: u32,
    pub(super) event: KernelEvent,
}
