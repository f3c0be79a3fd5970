//! One event of a trace: what a row means.
//!
//! Owns the vocabulary that recorder, generators, file format and replay share. Does not own how
//! rows are stored ([`crate::file`]) or what a kernel does with them.
//!
//! | op | addr | len | pos | aux | flags | file |
//! |---|---|---|---|---|---|---|
//! | exec | first byte of the 4 KiB page | number of references in the run | 0 | 0 | 0 | - |
//! | read write | first byte of the 4 KiB page | number of references in the run | 0 | 0 | link, or 0 | - |
//! | mmap | address given by the kernel | bytes | file position | log2 of the size of huge pages, or 0 | `PROT_*`, `MAP_*`: [`mmap_flags`] | file or none |
//! | munmap | address | bytes | 0 | 0 | 0 | - |
//! | mprotect | address | bytes | 0 | 0 | `PROT_*` | - |
//! | mremap | old address | old bytes | new address | new bytes | `MREMAP_*` | - |
//! | madvise | address | bytes | as of collapse, for `MADV_COLLAPSE` | advice | 0 | - |
//! | brk | old end of the heap | 0 | new end | 0 | 0 | - |
//! | fork | 0 | 0 | 0 | new thread id | [`SHARES_MEMORY`] or [`BORROWS_MEMORY`] | - |
//! | exit | 0 | 0 | exit status | 0 | why: [`ExitKind`] | - |
//! | execve | 0 | 0 | 0 | row of [`Meta::execs`](crate::Meta::execs) | 0 | program |
//! | open | 0 | 0 | descriptor | 0 | `O_*` | file |
//! | pread pwrite | 0 | bytes moved | file position | descriptor | 0 | file |
//! | truncate | 0 | new size | 0 | 0 | 0 | file |
//! | fadvise | 0 | bytes | file position | advice | 0 | file |
//! | `drop_caches` | 0 | 0 | 0 | 0 | 0 | file or all |
//! | collapse | address | bytes | bytes of the folios; 0 = PMD folios | 0 | 0 | - |
//! | close | 0 | 0 | descriptor | 0 | 0 | - |
//!
//! A *link* says that a value named the page before the program touched it: it is how many rows of
//! references of the same thread (exec, read, write) back the load of that value is, 1 to
//! [`LINK_MAX`]. 0 is no such load among them; or nothing is known, in a trace whose footer does not
//! say that links were recorded ([`crate::Meta::links`]). No event of the thread lies between the two
//! rows. In a damaged trace the row may be any row, or before the thread's first.
//!
//! A *process* is a thread that a fork without [`SHARES_MEMORY`] announced, or the first one, and the
//! threads that it starts. An execve ends the process's other threads and gives it the address
//! space that its row of [`Meta::execs`](crate::Meta::execs) describes. With [`BORROWS_MEMORY`]
//! (vfork, `posix_spawn`) the new process uses the address space of its parent, whose thread has no
//! rows until the child's execve or exit.
//!
//! Traces from before `close` was recorded have none: a descriptor is closed there when it is
//! opened again, or its process ends.

/// What a row describes. The numbers are the file format, the same in every schema version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the table of the module says what each row holds")]
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
}

impl Op {
    /// Every op, in the order of its number.
    pub const ALL: [Self; 20] = [
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
    ];

    /// The op with this number, `None` for a number no op has.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Lower-case name, as `folio trace cat` prints it.
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
        }
    }

    /// Whether the row is a run of memory references (exec, read or write).
    #[must_use]
    pub const fn is_reference(self) -> bool {
        matches!(self, Self::Exec | Self::Read | Self::Write)
    }
}

/// Dense number of a thread of the recorded program; 0 is the first thread.
pub type ThreadId = u32;

/// Row of the file table in the footer.
pub type FileId = u32;

/// One row of a trace; the module's table gives the meaning of each field by op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Thread that did it.
    pub thread: ThreadId,
    /// What it did.
    pub op: Op,
    /// Address in bytes.
    pub addr: u64,
    /// Bytes, or number of references.
    pub len: u64,
    /// Position in a file in bytes, or the op's second address.
    pub pos: u64,
    /// The op's further number.
    pub aux: u64,
    /// The op's flags, with the numbers of the Linux x86-64 ABI.
    pub flags: u32,
    /// File concerned, a row of the file table.
    pub file: Option<FileId>,
}

impl Event {
    /// An event of `thread` with every number zero and no file.
    #[must_use]
    pub const fn new(thread: ThreadId, op: Op) -> Self {
        Self { thread, op, addr: 0, len: 0, pos: 0, aux: 0, flags: 0, file: None }
    }

    /// A run of `count` references of kind `op` to the 4 KiB page at `addr`.
    #[must_use]
    pub const fn references(thread: ThreadId, op: Op, addr: u64, count: u64) -> Self {
        let mut event = Self::new(thread, op);
        event.addr = addr;
        event.len = count;
        event
    }
}

/// Numbers of the Linux x86-64 ABI that the rows of a trace hold.
pub mod abi {
    /// The bits of `O_*` that say what an open file is used for: 0 to read.
    pub const O_ACCMODE: u32 = 3;
    /// Open for writing.
    pub const O_WRONLY: u32 = 1;
    /// Open for read and write.
    pub const O_RDWR: u32 = 2;
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
    /// At this address, replacing what is there.
    pub const MAP_FIXED: u32 = 0x10;
    /// No file behind it.
    pub const MAP_ANONYMOUS: u32 = 0x20;
    /// Its pages are locked into memory, so they are there at once.
    pub const MAP_LOCKED: u32 = 0x2000;
    /// Nothing is promised to the mapping.
    pub const MAP_NORESERVE: u32 = 0x4000;
    /// Its pages are there at once.
    pub const MAP_POPULATE: u32 = 0x8000;
    /// Huge pages of a pool; their size is told apart ([`super::huge_page_bytes`]).
    pub const MAP_HUGETLB: u32 = 0x4_0000;
    /// At this address, which was free.
    pub const MAP_FIXED_NOREPLACE: u32 = 0x10_0000;
}

/// Bit of an mmap's `flags` where `PROT_*` start. Below are `MAP_*`; of those, only the page size
/// of a hugetlb mapping would reach up here, and is in `aux` ([`huge_size_of`]).
pub const PROT_SHIFT: u32 = 28;

/// The `flags` of an mmap: `MAP_*` in bits 0 to 27, `PROT_*` in bits 28 to 31.
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

/// `PROT_*` in the `flags` of an mmap.
#[must_use]
pub const fn prot_of(flags: u32) -> u32 {
    flags >> PROT_SHIFT
}

/// `MAP_*` in the `flags` of an mmap.
#[must_use]
pub const fn map_of(flags: u32) -> u32 {
    flags & ((1 << PROT_SHIFT) - 1)
}

/// Bit of `MAP_*` where log2 of the size of huge pages starts, as a program passes it.
const MAP_HUGE_SHIFT: u32 = 26;
/// log2 of the default size of huge pages.
const HUGE_DEFAULT_LOG2: u32 = 21;
/// log2 of 16 GiB, the largest size that an architecture has.
const HUGE_MAX_LOG2: u64 = 34;

/// The `aux` of an mmap: log2 of the size of huge pages that `MAP_*` asks for, 0 for the default
/// and for other mappings.
#[must_use]
pub const fn huge_size_of(map: u32) -> u64 {
    if map & abi::MAP_HUGETLB == 0 { 0 } else { (map >> MAP_HUGE_SHIFT) as u64 }
}

/// Bytes of a page of a hugetlb mapping; `None` for any other event.
///
/// Of a trace that has no `aux` there, the two low bits of the size are left in `flags`: they tell
/// 2M and 1G apart.
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

/// Largest link of a read or write, in rows.
pub const LINK_MAX: u32 = 15;

/// `flags` of a fork: a thread of the same process, in the same address space.
pub const SHARES_MEMORY: u32 = 1;
/// `flags` of a fork: a process in its parent's address space until it executes a program or ends
/// (`CLONE_VFORK`). Traces of schema versions 1 to 3 have a fork in its place.
pub const BORROWS_MEMORY: u32 = 2;

/// `flags` of an exit: what ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ExitKind {
    /// One thread.
    Thread = 0,
    /// The whole process.
    Process = 1,
    /// The process became a program (execve) that could not be recorded.
    Execve = 2,
    /// The process was killed by the signal in `pos`, 0 where that is not known.
    Signal = 3,
    /// The whole process; whether with a status or by a signal is not known.
    Unknown = 4,
}
