//! The protocol between the plugin and `folio record`.
//!
//! Owns the byte layout of messages, rows and tails. Both crates compile this one file
//! (`largefolio-linux` has a link to it, because a cdylib cannot be a dependency). Does not own
//! the meaning of ops: their numbers are those of `largefolio_trace::event::Op`.
//!
//! A message is one packet of a `SOCK_SEQPACKET` socket:
//!
//! ```text
//! | header 32 B | rows: nr_rows x 8 B | body |
//! ```
//!
//! A row is one word, so that bumping its count is one addition and it can never be torn:
//!
//! ```text
//!  63            28 27 26 25       4 3    0
//! | page number    | op  | count   | link |     op: 1 exec, 2 read, 3 write; 0 is an empty row
//! ```
//!
//! A link is how many rows of the message back the load is whose value named the page of this row,
//! 0 for none. It is below the count, so that the test whether a reference joins a row needs no mask.
//!
//! Invariants:
//! - W1: numbers are little-endian.
//! - W2: the rows of a message happened before what its body says.
//! - W3: `seq` grows by one for each message of a thread that carries rows. A tail whose `seq`
//!   is not above the last one received holds rows that were received already.

/// First word of each message; the digit is the version of this layout.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"LFR4");

/// Bytes of a message's header.
pub(crate) const HEADER_BYTES: usize = 32;

/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 8;

/// Bits of a row's link.
pub(crate) const LINK_BITS: u32 = 4;

/// Largest link: a load further back has none.
pub(crate) const LINK_MAX: u64 = (1 << LINK_BITS) - 1;

/// Bits of a row's count: 2^22 - 1 references.
pub(crate) const COUNT_BITS: u32 = 22;

/// Bit of a row where its op starts.
const OP_SHIFT: u32 = LINK_BITS + COUNT_BITS;

/// Bit of a row where its page number starts; the 36 bits left hold any user address of x86-64 and
/// arm64 with four levels.
pub(crate) const PAGE_SHIFT: u32 = OP_SHIFT + 2;

/// log2 of the granularity of references.
pub(crate) const PAGE_BITS: u32 = 12;

/// Rows a tail can hold. 64 KiB of rows stay in the second-level cache and fit a packet.
pub(crate) const TAIL_ROWS: usize = 8192;

/// A reference joins a row among this many last rows of its thread.
pub(crate) const WINDOW: usize = 8;

/// Rows start here in a tail: the header takes one page.
pub(crate) const TAIL_ROWS_OFFSET: usize = 4096;

/// Bytes of a tail file: header, empty rows before the first (they end the search), rows.
pub(crate) const TAIL_BYTES: usize = TAIL_ROWS_OFFSET + (WINDOW + TAIL_ROWS) * ROW_BYTES;

/// First word of a tail file.
pub(crate) const TAIL_MAGIC: u64 = u64::from_le_bytes(*b"LFTAIL03");

/// Name of the listening socket in the recording's directory.
pub(crate) const SOCKET_NAME: &str = "s";

/// Beginning of the names of a process's tails in the recording's directory, which the number of a
/// tail ends; each program that the process executes has its own.
pub(crate) fn tail_prefix(pid: u32, generation: u32) -> String {
    format!("tail.{pid}.{generation}.")
}

/// Most bytes a body may have.
pub(crate) const BODY_MAX: usize = 64 * 1024;

/// Most bytes a whole message may have.
pub(crate) const MESSAGE_MAX: usize = HEADER_BYTES + TAIL_ROWS * ROW_BYTES + BODY_MAX;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// First message of a connection; body: [`Hello`].
    Hello = 1,
    /// Mappings at the start; body: guest base (8 B, see [`is_base`]), bytes of the first text
    /// (8 B), text of `/proc/self/maps` before QEMU loaded the program, and after.
    Layout = 2,
    /// Nothing but rows.
    Rows = 3,
    /// An event; body: [`WireEvent`].
    Event = 4,
    /// A file before its first use; body: `WireFile`.
    File = 5,
    /// The process is about to execute a program that cannot be recorded; body: an [`Unrecorded`]
    /// (4 B), then the path.
    ExecveUnrecorded = 6,
    /// The execve failed, the process continues.
    ExecveFailed = 7,
    /// The whole process is about to exit; body: status (8 B).
    Ending = 8,
    /// The program closes our descriptor; another connection follows when there is more to say.
    Leaving = 9,
    /// The process is about to execute a program that is recorded too; body: path of the ELF file
    /// and arguments, each ended by a zero. It speaks again on a connection of its own.
    Execve = 10,
    /// The program clears pages that QEMU does not tell; body: its path.
    Unseen = 11,
}

impl Kind {
    pub(crate) const ALL: [Self; 11] = [
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
    ];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Start of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What the message says.
    pub(crate) kind: Kind,
    /// Process.
    pub(crate) pid: u32,
    /// Thread, by the kernel's number.
    pub(crate) tid: u32,
    /// Number of rows that follow.
    pub(crate) nr_rows: u32,
    /// Bytes of the body.
    pub(crate) nr_body: u32,
    /// Sequence number of the rows (W3).
    pub(crate) seq: u64,
}

impl Header {
    /// The bytes of the header.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [MAGIC, self.kind as u32, self.pid, self.tid, self.nr_rows, self.nr_body];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..].copy_from_slice(&self.seq.to_le_bytes());
        bytes
    }

    /// The header at the start of a message, `None` when it is not one.
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
        })
    }
}

/// Why a connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// First process of the recording.
    Start = 0,
    /// Child of a fork.
    Fork = 1,
    /// The program had closed the earlier descriptor.
    Again = 2,
    /// The process executed a program.
    Execve = 3,
}

/// Why a program that is executed is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Unrecorded {
    /// It gets another user's rights.
    SetUserId = 0,
    /// It has 32 bits.
    ThirtyTwoBit = 1,
    /// It is for another architecture, or of a format that a helper of the kernel runs.
    Foreign = 2,
    /// The recorder may not read it.
    Unreadable = 3,
    /// It has no name any more.
    Deleted = 4,
    /// The recorder could not be started in its place.
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

    /// The reason with this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u32 == number)
    }
}

/// Bytes of a [`Hello`].
pub(crate) const HELLO_BYTES: usize = 12;

/// Body of [`Kind::Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Why.
    pub(crate) reason: Reason,
    /// Parent process, for a fork.
    pub(crate) parent: u32,
    /// Programs that the process, or its parents before they forked, executed before.
    pub(crate) generation: u32,
}

impl Hello {
    /// The bytes of the body.
    pub(crate) fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let words = [self.reason as u32, self.parent, self.generation];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The body's meaning, `None` when it has none.
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

/// Body of [`Kind::Event`]: the fields of `largefolio_trace::event::Event`, except: a fork's `aux`
/// is the kernel's number of the new thread, an mmap's `flags` are `MAP_*` and its `aux` `PROT_*`,
/// a brk's `aux` is what was asked for, a file is its key.
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

/// Bit of a fork's `flags`: the new process has its parent's memory for a while, as in the trace.
pub(crate) const BORROWS_MEMORY: u32 = 2;

/// Bit of a fork's `flags`: another process.
pub(crate) const NEW_PROCESS: u32 = 1 << 16;

/// Bytes of a [`WireEvent`].
pub(crate) const EVENT_BYTES: usize = 48;

impl WireEvent {
    /// The bytes of the body.
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

    /// The body's meaning, `None` when it is too short.
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

/// The guest base that QEMU is asked for (`-B`). QEMU 10.0 puts a program at the address where the
/// kernel puts QEMU if addresses are not at random; 64 GiB leave room for the heaps of both.
pub(crate) const GUEST_BASE: &str = "0x1000000000";

/// Whether a guest base is one, by which loaded values can be read: it is a multiple of the page.
pub(crate) const fn is_base(base: u64) -> bool {
    base.is_multiple_of(1 << PAGE_BITS)
}

/// Bytes of a [`Kind::File`] body before the path: key, then size.
pub(crate) const FILE_PATH_OFFSET: usize = 16;

/// Key of a file, never 0: FNV-1a over device, inode and time of birth (0 if there is none).
pub(crate) fn file_key(device: u64, inode: u64, birth_ns: u64) -> u64 {
    let words = [device, inode, birth_ns];
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

/// A row taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Exec 0, read 1, write 2.
    pub(crate) op: u32,
    /// First address of the page.
    pub(crate) addr: u64,
    /// References, below 2^[`COUNT_BITS`].
    pub(crate) count: u64,
    /// Rows back to the load that named the page, at most [`LINK_MAX`], 0 for none.
    pub(crate) link: u32,
}

impl Row {
    /// The word.
    #[inline]
    pub(crate) const fn encode(self) -> u64 {
        (self.addr >> PAGE_BITS) << PAGE_SHIFT
            | ((self.op as u64 + 1) << OP_SHIFT)
            | self.count << LINK_BITS
            | self.link as u64
    }

    /// The row that a word is, `None` for an empty one.
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

/// Offsets of the fields of a tail's header that the parent reads.
pub(crate) mod tail_offset {
    /// [`super::TAIL_MAGIC`], 8 B.
    pub(crate) const MAGIC: usize = 0;
    /// Process, 4 B.
    pub(crate) const PID: usize = 8;
    /// Thread, 4 B.
    pub(crate) const TID: usize = 12;
    /// Sequence number the pending rows will have, 8 B.
    pub(crate) const SEQ: usize = 16;
    /// Index after the last pending row, in rows after the header, 4 B.
    pub(crate) const END: usize = 24;
    /// Grace periods this thread gave up waiting for, 4 B.
    pub(crate) const NR_GRACE_EXPIRED: usize = 28;
}

/// Four bytes at `offset` as a number.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let slice = bytes.get(offset..offset.checked_add(4)?)?;
    slice.try_into().ok().map(u32::from_le_bytes)
}

/// Eight bytes at `offset` as a number.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let slice = bytes.get(offset..offset.checked_add(8)?)?;
    slice.try_into().ok().map(u64::from_le_bytes)
}
