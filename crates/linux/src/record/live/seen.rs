//! What the kernel tells, before it is known whose it is.

use std::path::PathBuf;

/// A system call that changes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Mmap,
    Munmap,
    Mprotect,
    Mremap,
    Madvise,
    Brk,
}

/// A range that a file was mapped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// Process.
    pub(super) pid: u32,
    /// First address.
    pub(super) addr: u64,
    /// Bytes.
    pub(super) len: u64,
    /// Position in the file.
    pub(super) pos: u64,
    /// Device of the file, as `libc::makedev` numbers it.
    pub(super) device: u64,
    /// Inode of the file.
    pub(super) inode: u64,
    /// `PROT_*`.
    pub(super) prot: u32,
    /// Its name, as the process sees it.
    pub(super) path: PathBuf,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A page fault on an address of a program.
    Fault { address: u64, code: u64 },
    /// A read call reached the page cache, for the pages `first..end` of a file.
    FileRead { inode: u64, device: u64, first: u64, end: u64 },
    /// The thread made another one (`CLONE_*`).
    Birth { child: u32, flags: u64 },
    /// The process is another program now; `earlier` is the thread that made it so.
    Executes { process: u32, earlier: u32 },
    /// The thread ended.
    Ends,
    /// A call begins.
    Enter { call: Call, arguments: [u64; 6] },
    /// The call of this thread ended.
    Exit { result: i64 },
    /// A file was mapped.
    Mapped(Box<Mapped>),
    /// An execve is about to map its program.
    Clears,
}

/// An event with its time and thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    /// By the kernel's number.
    pub(super) tid: u32,
    pub(super) seen: Seen,
}
