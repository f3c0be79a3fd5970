//! The protocol between the plugin and `folio record`.
//!
//! `largefolio_trace::event::Op` defines the op numbers. `largefolio-linux` compiles this file too,
//! through a symbolic link: a cdylib cannot be a dependency.
//!
//! A message is one packet of a `SOCK_SEQPACKET` socket:
//!
//! ```text
//! | header 40 B | rows: nr_rows x 8 B | body |
//! ```
//!
//! A row is one word, so its count can be incremented with one addition and never tears:
//!
//! ```text
//!  63            28 27 26 25       4 3    0
//! | page number    | op  | count   | link |     op: 1 exec, 2 read, 3 write; 0 is an empty row
//! ```
//!
//! The link is the distance, in rows of the message, back to the load whose value points to this
//! row's page; 0 for none. It is below the count, so checking whether a reference joins a row needs
//! no mask.
//!
//! Invariants:
//! - W1: numbers are little-endian.
//! - W2: a message's rows happened before its body.
//! - W3: a thread's `seq` grows by one with each of its messages that carries rows. If a tail's
//!   `seq` is not above the last received one, its rows were already received.
//! - W4: a message that a process sends before it lets another one go on is older, by `sent_ns`,
//!   than what that one then sends.

use super::holes::NR_HOLES_MAX;

/// First word of each message. The digit is the version of this layout.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"LFR5");

pub(crate) const HEADER_BYTES: usize = 40;

pub(crate) const ROW_BYTES: usize = 8;

pub(crate) const LINK_BITS: u32 = 4;

pub(crate) const LINK_MAX: u64 = (1 << LINK_BITS) - 1;

/// Bits of a row's count: up to 2^22 - 1 references.
pub(crate) const COUNT_BITS: u32 = 22;

const OP_SHIFT: u32 = LINK_BITS + COUNT_BITS;

/// The page number takes the 36 bits above, enough for any user address of x86-64 and arm64 with
/// four levels.
pub(crate) const PAGE_SHIFT: u32 = OP_SHIFT + 2;

/// log2 of the granularity of references.
pub(crate) const PAGE_BITS: u32 = 12;

/// Rows per tail. 64 KiB of rows fit the L2 cache and a packet.
pub(crate) const TAIL_ROWS: usize = 8192;

/// A reference can join one of this many last rows of its thread.
pub(crate) const WINDOW: usize = 8;

/// Offset of the rows in a tail. The header takes one page.
pub(crate) const TAIL_ROWS_OFFSET: usize = 4096;

/// Size of a tail file: header, empty rows that end the search, rows.
pub(crate) const TAIL_BYTES: usize = TAIL_ROWS_OFFSET + (WINDOW + TAIL_ROWS) * ROW_BYTES;

pub(crate) const TAIL_MAGIC: u64 = u64::from_le_bytes(*b"LFTAIL03");

pub(crate) const SOCKET_NAME: &str = "s";

/// Returns the prefix of a process's tail files in the recording's directory, which a number
/// follows. Each program that the process executes has its own prefix.
pub(crate) fn tail_prefix(pid: u32, generation: u32) -> String {
    format!("tail.{pid}.{generation}.")
}

pub(crate) const BODY_MAX: usize = 64 * 1024;

pub(crate) const MESSAGE_MAX: usize = HEADER_BYTES + TAIL_ROWS * ROW_BYTES + BODY_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// First message of a connection. Body: [`Hello`].
    Hello = 1,
    /// Mappings at the start. Body: guest base (8 B, see [`is_base`]), bytes of the first text (8
    /// B), `/proc/self/maps` from before QEMU loaded the program, then from after.
    Layout = 2,
    Rows = 3,
    /// An event. Body: [`WireEvent`].
    Event = 4,
    /// A file before its first use. Body: [`WireFile`].
    File = 5,
    /// The process is about to execute a program that cannot be recorded. Body: an [`Unrecorded`]
    /// (4 B), then the path.
    ExecveUnrecorded = 6,
    /// The execve failed and the process continues.
    ExecveFailed = 7,
    /// The whole process is about to exit. Body: status (8 B).
    Ending = 8,
    /// The program closes our descriptor. The process reconnects when it has more to send.
    Leaving = 9,
    /// The process is about to execute a program that is recorded too. Body: path of the ELF file
    /// and arguments, each zero-terminated. The program opens its own connection.
    Execve = 10,
    /// The program clears pages that QEMU does not report. Body: its path.
    Unseen = 11,
    /// QEMU refused a call that a kernel grants. Body: its name.
    Refused = 12,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::Hello,
        Self::Layout,
        Self::Rows,
        Self::Event,
        Self::File,
        Self::ExecveUnrecorded,
        Self::ExecveFailed,
        Self::Ending,
        Self::Leaving,
        Self::Execve,
        Self::Unseen,
        Self::Refused,
    ];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) nr_rows: u32,
    pub(crate) nr_body: u32,
    pub(crate) seq: u64,
    /// When it was sent, on the clock that all processes share (`CLOCK_MONOTONIC`).
    pub(crate) sent_ns: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [MAGIC, self.kind as u32, self.pid, self.tid, self.nr_rows, self.nr_body];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.seq.to_le_bytes());
        bytes[32..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if u32_at(bytes, 0)? != MAGIC {
            return None;
        }
        Some(Self {
            kind: Kind::from_number(u32_at(bytes, 4)?)?,
            pid: u32_at(bytes, 8)?,
            tid: u32_at(bytes, 12)?,
            nr_rows: u32_at(bytes, 16)?,
            nr_body: u32_at(bytes, 20)?,
            seq: u64_at(bytes, 24)?,
            sent_ns: u64_at(bytes, 32)?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    Start = 0,
    Fork = 1,
    Again = 2,
    Execve = 3,
}

/// Why an executed program is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Unrecorded {
    /// It gets another user's privileges.
    SetUserId = 0,
    ThirtyTwoBit = 1,
    /// It is for another architecture, or in a format run by a kernel helper.
    Foreign = 2,
    Unreadable = 3,
    Deleted = 4,
    NoRecorder = 5,
}

impl Unrecorded {
    const ALL: [Self; 6] = [
        Self::SetUserId,
        Self::ThirtyTwoBit,
        Self::Foreign,
        Self::Unreadable,
        Self::Deleted,
        Self::NoRecorder,
    ];

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u32 == number)
    }
}

pub(crate) const HELLO_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) reason: Reason,
    /// Parent process, for a fork.
    pub(crate) parent: u32,
    /// Number of programs that the process, or its parents before the fork, executed before.
    pub(crate) generation: u32,
}

impl Hello {
    pub(crate) fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let words = [self.reason as u32, self.parent, self.generation];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let reason = match u32_at(bytes, 0)? {
            0 => Reason::Start,
            1 => Reason::Fork,
            2 => Reason::Again,
            3 => Reason::Execve,
            _ => return None,
        };
        Some(Self { reason, parent: u32_at(bytes, 4)?, generation: u32_at(bytes, 8)? })
    }
}

/// Body of [`Kind::Event`]: the fields of `largefolio_trace::event::Event`, with these exceptions.
/// A fork's `aux` is the new thread's TID, an mmap's `flags` are `MAP_*` and its `aux` `PROT_*`, a
/// brk's `aux` is the requested end, and a file is its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WireEvent {
    pub(crate) op: u32,
    pub(crate) flags: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) pos: u64,
    pub(crate) aux: u64,
    /// Key of a file announced by [`Kind::File`], 0 for none.
    pub(crate) file: u64,
}

/// Bit of a fork's `flags`: memory is shared, as in the trace.
pub(crate) const SHARES_MEMORY: u32 = 1;

/// Bit of a fork's `flags`: the new process borrows its parent's memory, as in the trace.
pub(crate) const BORROWS_MEMORY: u32 = 2;

pub(crate) const NEW_PROCESS: u32 = 1 << 16;

pub(crate) const EVENT_BYTES: usize = 48;

impl WireEvent {
    pub(crate) fn encode(&self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..4].copy_from_slice(&self.op.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        let words = [self.addr, self.len, self.pos, self.aux, self.file];
        for (slot, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            op: u32_at(bytes, 0)?,
            flags: u32_at(bytes, 4)?,
            addr: u64_at(bytes, 8)?,
            len: u64_at(bytes, 16)?,
            pos: u64_at(bytes, 24)?,
            aux: u64_at(bytes, 32)?,
            file: u64_at(bytes, 40)?,
        })
    }
}

/// The guest base requested from QEMU (`-B`). Without address randomization, QEMU 10.0 puts a
/// program where the kernel puts QEMU. 64 GiB leave room for both heaps.
pub(crate) const GUEST_BASE: &str = "0x1000000000";

/// Returns whether loaded values can be read through this guest base: it is a multiple of the page
/// size.
pub(crate) const fn is_base(base: u64) -> bool {
    base.is_multiple_of(1 << PAGE_BITS)
}

/// Body of [`Kind::File`]: key, size, number of holes, each hole's position and length, path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WireFile<'a> {
    pub(crate) key: u64,
    pub(crate) size_bytes: u64,
    /// Position and length of the parts without data, at most [`NR_HOLES_MAX`].
    pub(crate) holes: Vec<(u64, u64)>,
    pub(crate) path: &'a [u8],
}

impl<'a> WireFile<'a> {
    const HEAD_BYTES: usize = 24;
    const HOLE_BYTES: usize = 16;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = [self.key, self.size_bytes, self.holes.len() as u64];
        let holes = self.holes.iter().flat_map(|&(pos, len)| [pos, len]);
        let mut body: Vec<u8> = head.into_iter().chain(holes).flat_map(u64::to_le_bytes).collect();
        body.extend_from_slice(self.path);
        body
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let nr_holes = usize::try_from(u64_at(bytes, 16)?).ok()?;
        let nr_holes = Some(nr_holes).filter(|nr| *nr <= NR_HOLES_MAX)?;
        let hole = |place: usize| {
            let at = Self::HEAD_BYTES + place * Self::HOLE_BYTES;
            Some((u64_at(bytes, at)?, u64_at(bytes, at + 8)?))
        };
        Some(Self {
            key: u64_at(bytes, 0)?,
            size_bytes: u64_at(bytes, 8)?,
            holes: (0..nr_holes).map(hole).collect::<Option<_>>()?,
            path: bytes.get(Self::HEAD_BYTES + nr_holes * Self::HOLE_BYTES..)?,
        })
    }
}

/// The longest path of a file, with the end of a deleted one.
const PATH_MAX: usize = 4096 + 16;
const _: () =
    assert!(WireFile::HEAD_BYTES + NR_HOLES_MAX * WireFile::HOLE_BYTES + PATH_MAX <= BODY_MAX);

/// Returns a file's key, never 0: FNV-1a over device, inode and birth time (0 if unknown).
pub(crate) fn file_key(device: u64, inode: u64, birth_ns: u64) -> u64 {
    let words = [device, inode, birth_ns];
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// 0 exec, 1 read, 2 write.
    pub(crate) op: u32,
    pub(crate) addr: u64,
    /// References, below 2^[`COUNT_BITS`].
    pub(crate) count: u64,
    /// Rows back to the load whose value points to the page: at most [`LINK_MAX`], 0 for none.
    pub(crate) link: u32,
}

impl Row {
    #[inline]
    pub(crate) const fn encode(self) -> u64 {
        (self.addr >> PAGE_BITS) << PAGE_SHIFT
            | ((self.op as u64 + 1) << OP_SHIFT)
            | self.count << LINK_BITS
            | self.link as u64
    }

    pub(crate) const fn decode(word: u64) -> Option<Self> {
        let op = (word >> OP_SHIFT) & 3;
        if op == 0 {
            return None;
        }
        Some(Self {
            op: op as u32 - 1,
            addr: word >> PAGE_SHIFT << PAGE_BITS,
            count: (word >> LINK_BITS) & ((1 << COUNT_BITS) - 1),
            link: (word & LINK_MAX) as u32,
        })
    }
}

/// Offsets of the tail header fields that the parent reads.
pub(crate) mod tail_offset {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const PID: usize = 8;
    pub(crate) const TID: usize = 12;
    /// Sequence number that the pending rows will have, 8 B.
    pub(crate) const SEQ: usize = 16;
    /// Index after the last pending row, in rows after the header, 4 B.
    pub(crate) const END: usize = 24;
    /// Grace periods that timed out for this thread, 4 B.
    pub(crate) const NR_GRACE_EXPIRED: usize = 28;
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let slice = bytes.get(offset..offset.checked_add(4)?)?;
    slice.try_into().ok().map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let slice = bytes.get(offset..offset.checked_add(8)?)?;
    slice.try_into().ok().map(u64::from_le_bytes)
}
