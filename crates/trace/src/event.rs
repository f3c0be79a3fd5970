//! One event of a trace, and the meaning of a row.
//!
//! Owns the vocabulary shared by recorders, generators, file format and replay. Does not own the
//! storage of rows ([`crate::file`]) or their effect on a kernel.
//!
//! | op | addr | len | pos | aux | flags | file |
//! |---|---|---|---|---|---|---|
//! | exec | first byte of the 4 KiB page | number of references in the run | 0 | 0 | 0 | - |
//! | read write | first byte of the 4 KiB page | number of references in the run | 0 | 0 | link, or 0 | - |
//! | mmap | address that the kernel chose | bytes | file position | log2 of the huge page size, or 0 | `PROT_*`, `MAP_*`: [`mmap_flags`] | file or none |
//! | munmap | address | bytes | 0 | 0 | 0 | - |
//! | mprotect | address | bytes | 0 | 0 | `PROT_*` | - |
//! | mremap | old address | old bytes | new address | new bytes | `MREMAP_*` | - |
//! | madvise | address | bytes | for `MADV_COLLAPSE`, as in collapse | advice | 0 | - |
//! | brk | old end of the heap | 0 | new end | 0 | 0 | - |
//! | fork | 0 | 0 | 0 | new thread id | [`SHARES_MEMORY`] or [`BORROWS_MEMORY`] | - |
//! | exit | 0 | 0 | exit status | 0 | [`ExitKind`] | - |
//! | execve | 0 | 0 | 0 | row of [`Meta::execs`](crate::Meta::execs) | 0 | program |
//! | open | 0 | 0 | descriptor | 0, or 1 + the descriptor that it duplicates | `O_*` | file |
//! | pread pwrite | for a copy: the position in the other file; otherwise, for a pwrite: address of the data, or 0 | bytes moved | file position | descriptor | [`io`] | file |
//! | truncate | 0 | new size | 0 | 0 | 0 | file |
//! | fadvise | 0 | bytes | file position | advice | 0 | file |
//! | `drop_caches` | 0 | 0 | 0 | 0 | 0 | file or all |
//! | collapse | address | bytes | folio size in bytes; 0 = PMD folios | 0 | 0 | - |
//! | close | 0 | 0 | descriptor | 0 | 0 | - |
//! | sync | for msync: address | bytes | file position | 0 | 0 | file; none for msync, and for all files if `len` is 0 |
//! | fallocate | 0 | bytes | file position | `FALLOC_FL_*` | 0 | file |
//! | unlink | 0 | 0 | 0 | 0 | 0 | file, which has no name from now on |
//! | mlock | address | bytes; 0 = all memory | 0 | 0 | [`lock`]; 0 = unlock | - |
//! | `thp_disable` | 0 | 0 | 0 | [`thp_disable`]; 0 = allow | 0 | - |
//! | mempolicy | for mbind: address | bytes; 0 = the process | 0 | its NUMA nodes, one bit each | [`mempolicy`] | - |
//!
//! A *link* means that the program loaded the page's address from memory before it used the page.
//! It is the distance to that load in rows of references (exec, read, write) of the same thread,
//! from 1 to [`LINK_MAX`]. 0 means that no such row loaded the address, or that nothing is known
//! because the footer does not say that links were recorded ([`crate::Meta::links`]). The thread
//! has no other events between the two rows. In a damaged trace, a link can point to any row, or to
//! a position before the thread's first row.
//!
//! A *process* starts with the first thread, or with a thread from a fork without
//! [`SHARES_MEMORY`], and includes the threads that it starts. An execve ends the process's other
//! threads and replaces its address space with the one in its row of
//! [`Meta::execs`](crate::Meta::execs). With [`BORROWS_MEMORY`] (vfork, `posix_spawn`) the new
//! process
//! uses its parent's address space. The parent thread has no rows until the child's execve or exit.
//!
//! Older traces have no `close` events. In these, a descriptor closes when it is opened again or
//! when its process ends.

/// A row's operation. The numbers are part of the file format and equal in every schema version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the module's table describes each row")]
pub enum Op {
    Exec = 0,
    Read = 1,
    Write = 2,
    Mmap = 3,
    Munmap = 4,
    Mprotect = 5,
    Mremap = 6,
    Madvise = 7,
    Brk = 8,
    Fork = 9,
    Exit = 10,
    Open = 11,
    Pread = 12,
    Pwrite = 13,
    Truncate = 14,
    Fadvise = 15,
    DropCaches = 16,
    Collapse = 17,
    Close = 18,
    Execve = 19,
    Sync = 20,
    Fallocate = 21,
    Unlink = 22,
    Mlock = 23,
    ThpDisable = 24,
    Mempolicy = 25,
}

impl Op {
    /// Every op, ordered by number.
    pub const ALL: [Self; 26] = [
        Self::Exec,
        Self::Read,
        Self::Write,
        Self::Mmap,
        Self::Munmap,
        Self::Mprotect,
        Self::Mremap,
        Self::Madvise,
        Self::Brk,
        Self::Fork,
        Self::Exit,
        Self::Open,
        Self::Pread,
        Self::Pwrite,
        Self::Truncate,
        Self::Fadvise,
        Self::DropCaches,
        Self::Collapse,
        Self::Close,
        Self::Execve,
        Self::Sync,
        Self::Fallocate,
        Self::Unlink,
        Self::Mlock,
        Self::ThpDisable,
        Self::Mempolicy,
    ];

    /// Returns the op with this number, `None` if no op has it.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the lower-case name, as `folio trace cat` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Read => "read",
            Self::Write => "write",
            Self::Mmap => "mmap",
            Self::Munmap => "munmap",
            Self::Mprotect => "mprotect",
            Self::Mremap => "mremap",
            Self::Madvise => "madvise",
            Self::Brk => "brk",
            Self::Fork => "fork",
            Self::Exit => "exit",
            Self::Open => "open",
            Self::Pread => "pread",
            Self::Pwrite => "pwrite",
            Self::Truncate => "truncate",
            Self::Fadvise => "fadvise",
            Self::DropCaches => "drop_caches",
            Self::Collapse => "collapse",
            Self::Close => "close",
            Self::Execve => "execve",
            Self::Sync => "sync",
            Self::Fallocate => "fallocate",
            Self::Unlink => "unlink",
            Self::Mlock => "mlock",
            Self::ThpDisable => "thp_disable",
            Self::Mempolicy => "mempolicy",
        }
    }

    /// Returns whether the row is a run of memory references (exec, read or write).
    #[must_use]
    pub const fn is_reference(self) -> bool {
        matches!(self, Self::Exec | Self::Read | Self::Write)
    }
}

/// Dense number of a thread of the recorded program; 0 is the first thread.
pub type ThreadId = u32;

/// Row of the footer's file table.
pub type FileId = u32;

/// One row of a trace. The module's table lists the fields' meanings by op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The thread.
    pub thread: ThreadId,
    /// The operation.
    pub op: Op,
    /// Address in bytes.
    pub addr: u64,
    /// Bytes, or number of references.
    pub len: u64,
    /// File position in bytes, or the op's second address.
    pub pos: u64,
    /// The op's additional number.
    pub aux: u64,
    /// The op's flags, numbered as in the Linux x86-64 ABI.
    pub flags: u32,
    /// A row of the file table.
    pub file: Option<FileId>,
}

impl Event {
    /// Creates an event of `thread` without a file and with all numbers 0.
    #[must_use]
    pub const fn new(thread: ThreadId, op: Op) -> Self {
        Self { thread, op, addr: 0, len: 0, pos: 0, aux: 0, flags: 0, file: None }
    }

    /// Creates a run of `count` references of kind `op` to the 4 KiB page at `addr`.
    #[must_use]
    pub const fn references(thread: ThreadId, op: Op, addr: u64, count: u64) -> Self {
        let mut event = Self::new(thread, op);
        event.addr = addr;
        event.len = count;
        event
    }
}

/// Numbers of the Linux x86-64 ABI in the rows of a trace.
pub mod abi {
    /// Mask of the access mode in `O_*`; 0 = read-only.
    pub const O_ACCMODE: u32 = 3;
    /// Open for writing.
    pub const O_WRONLY: u32 = 1;
    /// Open for reading and writing.
    pub const O_RDWR: u32 = 2;
    /// The open empties the file.
    pub const O_TRUNC: u32 = 0x200;
    /// An execve closes the descriptor.
    pub const O_CLOEXEC: u32 = 0x8_0000;
    /// Loads are allowed.
    pub const PROT_READ: u32 = 1;
    /// Stores are allowed.
    pub const PROT_WRITE: u32 = 2;
    /// Instruction fetches are allowed.
    pub const PROT_EXEC: u32 = 4;
    /// Stores reach the file.
    pub const MAP_SHARED: u32 = 1;
    /// Stores copy the page.
    pub const MAP_PRIVATE: u32 = 2;
    /// Map at this address and replace earlier mappings.
    pub const MAP_FIXED: u32 = 0x10;
    /// A mapping without a file.
    pub const MAP_ANONYMOUS: u32 = 0x20;
    /// Lock the pages into memory, which also populates them.
    pub const MAP_LOCKED: u32 = 0x2000;
    /// Reserve no swap space or huge pages.
    pub const MAP_NORESERVE: u32 = 0x4000;
    /// Populate the pages.
    pub const MAP_POPULATE: u32 = 0x8000;
    /// A stack.
    pub const MAP_STACK: u32 = 0x2_0000;
    /// A System V segment (shmat). Only in traces: no call has this flag.
    pub const MAP_SEGMENT: u32 = 0x80_0000;
    /// Huge pages from a pool; [`super::huge_page_bytes`] returns their size.
    pub const MAP_HUGETLB: u32 = 0x4_0000;
    /// Map at this address if it is free.
    pub const MAP_FIXED_NOREPLACE: u32 = 0x10_0000;
    /// mremap moves to the new address that the program chose.
    pub const MREMAP_FIXED: u32 = 2;
    /// mremap moves the pages; the old area stays, without pages.
    pub const MREMAP_DONTUNMAP: u32 = 4;
    /// Allocate without changing the file's size.
    pub const FALLOC_FL_KEEP_SIZE: u64 = 1;
    /// Make the range a hole.
    pub const FALLOC_FL_PUNCH_HOLE: u64 = 2;
    /// Remove the range from the file.
    pub const FALLOC_FL_COLLAPSE_RANGE: u64 = 8;
    /// Make the range read as zeroes.
    pub const FALLOC_FL_ZERO_RANGE: u64 = 0x10;
    /// Insert a range that reads as zeroes.
    pub const FALLOC_FL_INSERT_RANGE: u64 = 0x20;
}

/// `flags` of a pread or pwrite: how the call moves the data.
pub mod io {
    /// Without the page cache (`O_DIRECT`).
    pub const DIRECT: u32 = 1;
    /// Through a pipe, at most 16 pages at a time (sendfile, splice). A pwrite's `addr` is the
    /// position in the file read.
    pub const PIPE: u32 = 2;
    /// `copy_file_range` within one filesystem, which can share blocks instead of copying. `addr`
    /// is the position in the other file.
    pub const COPY: u32 = 4;
    /// A write that returns after its data is in storage (`O_SYNC`, `O_DSYNC`).
    pub const SYNC: u32 = 8;
}

/// `aux` of a `thp_disable`: THP that `prctl(PR_SET_THP_DISABLE)` turns off, also in later children
/// and programs of the process.
pub mod thp_disable {
    /// Any.
    pub const ALL: u64 = 1;
    /// All but `MADV_HUGEPAGE` areas (`PR_THP_DISABLE_EXCEPT_ADVISED`).
    pub const EXCEPT_ADVISED: u64 = 2;
}

/// `flags` of an mlock.
pub mod lock {
    /// Lock the mappings of the range (`MCL_CURRENT`).
    pub const CURRENT: u32 = 1;
    /// Lock later mappings of the process too (`MCL_FUTURE`).
    pub const FUTURE: u32 = 2;
    /// Lock a page only when a fault maps it (`MCL_ONFAULT`).
    pub const ON_FAULT: u32 = 4;
}

/// `flags` of a mempolicy: the mode of a `set_mempolicy` or mbind call, and what mbind moves.
pub mod mempolicy {
    /// The call's mode without its flags, `MPOL_DEFAULT` (0) to `MPOL_WEIGHTED_INTERLEAVE` (6).
    pub const MODE_MASK: u32 = 0x1fff;
    /// Flags of the mode: nodes relative to the cpuset (`MPOL_F_RELATIVE_NODES`).
    pub const RELATIVE_NODES: u32 = 1 << 14;
    /// mbind moves pages that only this process maps (`MPOL_MF_MOVE`).
    pub const MOVE: u32 = 1 << 17;
    /// mbind moves all pages (`MPOL_MF_MOVE_ALL`).
    pub const MOVE_ALL: u32 = 1 << 18;
    /// First bit of mbind's `MPOL_MF_*`.
    pub const MOVE_SHIFT: u32 = 16;
}

/// First bit of `PROT_*` in an mmap's `flags`, above `MAP_*`. Of `MAP_*`, only a hugetlb mapping's
/// page size would overlap it, so that size is in `aux` ([`huge_size_of`]).
pub const PROT_SHIFT: u32 = 28;

/// Combines an mmap's `flags`: `MAP_*` in bits 0 to 27, `PROT_*` in bits 28 to 31.
///
/// ```
/// use largefolio_trace::event::{map_of, mmap_flags, prot_of};
/// let flags = mmap_flags(5, 2); // PROT_READ | PROT_EXEC, MAP_PRIVATE
/// assert_eq!((flags, prot_of(flags), map_of(flags)), (0x5000_0002, 5, 2));
/// ```
#[must_use]
pub const fn mmap_flags(prot: u32, map: u32) -> u32 {
    prot << PROT_SHIFT | map_of(map)
}

/// Returns `PROT_*` from an mmap's `flags`.
#[must_use]
pub const fn prot_of(flags: u32) -> u32 {
    flags >> PROT_SHIFT
}

/// Returns `MAP_*` from an mmap's `flags`.
#[must_use]
pub const fn map_of(flags: u32) -> u32 {
    flags & ((1 << PROT_SHIFT) - 1)
}

const MAP_HUGE_SHIFT: u32 = 26;
const HUGE_DEFAULT_LOG2: u32 = 21;
/// log2 of 16 GiB, the largest huge page of any architecture.
const HUGE_MAX_LOG2: u64 = 34;

/// Returns an mmap's `aux`: log2 of the huge page size in `MAP_*`, or 0 for the default.
#[must_use]
pub const fn huge_size_of(map: u32) -> u64 {
    if map & abi::MAP_HUGETLB == 0 { 0 } else { (map >> MAP_HUGE_SHIFT) as u64 }
}

/// Returns the page size of a hugetlb mapping in bytes; `None` for any other event.
///
/// Older traces have 0 in `aux`. Their `flags` still hold the size's two low bits, which
/// distinguish 2M and 1G.
///
/// ```
/// use largefolio_trace::event::abi::MAP_HUGETLB;
/// use largefolio_trace::event::{huge_page_bytes, huge_size_of, mmap_flags};
/// use largefolio_trace::{Event, Op};
/// let map = MAP_HUGETLB | 30 << 26; // MAP_HUGE_1GB
/// let event = Event { flags: mmap_flags(3, map), ..Event::new(1, Op::Mmap) };
/// assert_eq!(huge_page_bytes(&event), Some(1 << 30));
/// assert_eq!(huge_page_bytes(&Event { aux: huge_size_of(map), ..event }), Some(1 << 30));
/// assert_eq!(huge_page_bytes(&Event { flags: mmap_flags(3, MAP_HUGETLB), ..event }), Some(2 << 20));
/// ```
#[must_use]
pub const fn huge_page_bytes(event: &Event) -> Option<u64> {
    if !matches!(event.op, Op::Mmap) || event.flags & abi::MAP_HUGETLB == 0 {
        return None;
    }
    let left = map_of(event.flags) >> MAP_HUGE_SHIFT;
    match event.aux {
        0 if left == 2 => Some(1 << 30),
        0 => Some(1 << HUGE_DEFAULT_LOG2),
        log2 if log2 <= HUGE_MAX_LOG2 => Some(1 << log2),
        _ => None,
    }
}

/// Maximum link of a read or write, in rows.
pub const LINK_MAX: u32 = 15;

/// `flags` of a fork: a thread of the same process, in the same address space.
pub const SHARES_MEMORY: u32 = 1;
/// `flags` of a fork: a process that uses its parent's address space until its execve or exit
/// (`CLONE_VFORK`). Schema versions 1 to 3 have a plain fork instead.
pub const BORROWS_MEMORY: u32 = 2;

/// `flags` of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ExitKind {
    /// One thread exited.
    Thread = 0,
    /// The whole process exited.
    Process = 1,
    /// The process executed a program that could not be recorded.
    Execve = 2,
    /// The signal in `pos` killed the process; 0 = unknown signal.
    Signal = 3,
    /// The whole process ended, by exit or by a signal.
    Unknown = 4,
}
