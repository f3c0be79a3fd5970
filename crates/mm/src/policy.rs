//! Policies: programs that make decisions at the kernel's decision points.
//!
//! ```text
//!   operation -- is the point asked? -- no --> the kernel's own answer
//!                     | yes
//!                     v
//!               Context -> Policy -> Answer -- can the kernel honour it? -- no --> as it falls back
//!                                                     | yes
//!                                                     v  counted
//! ```
//!
//! Like a BPF program in a kernel, a policy only states preferences: it never makes an operation
//! fail. Each decision point checks which answers it can follow. Answers and their effects count as
//! work ([`crate::core::work`]).
//!
//! Differs: no kernel has this; it was proposed for anonymous memory.

use std::fmt;

/// Words of a [`Context`].
pub const NR_CONTEXT_WORDS: usize = NR_KERNEL_WORDS + NR_LATER;
/// The first words of a [`Context`]: all that a kernel with `kernel/policy` fills in.
pub const NR_KERNEL_WORDS: usize = NR_NAME_WORDS + NR_FIELDS + NR_FREE;
const NR_NAME_WORDS: usize = 2;
/// Orders of free blocks: every order that a folio can have.
pub const NR_FREE: usize = 14;

/// A policy's interval unless it chooses another: one second, as PSI's triggers and the samples that
/// were posted have.
pub const INTERVAL_NS: u64 = 1_000_000_000;

/// Decision points of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// A fault on private memory: which orders to try.
    AnonOrder,
    /// A fault on a mapped file whose page is absent or has the marker: what to read.
    Window,
    /// A load fault on a mapped file: how many pages around it to map.
    Around,
    /// khugepaged found a block: to which orders to collapse it.
    Collapse,
    /// A store to a read-only large private folio: reuse it or copy the page.
    Write,
    /// Reclaim is about to evict a folio.
    Victim,
    /// A fault on private memory in swap space: which orders to read.
    SwapinOrder,
    /// An absent page of shared memory: which orders to try.
    ShmemOrder,
    /// A folio entered the page cache. The answer is ignored.
    Added,
    /// A read call used a cached folio, or a used page of it was unmapped. The answer is ignored.
    Accessed,
    /// A folio left the page cache. The answer is ignored.
    Removed,
    /// Reclaim needs file memory: which folio to evict first.
    Evict,
    /// A read call finds its first page absent: whether to read through the page cache.
    Admit,
    /// An interval of the policy's clock has passed. The answer is ignored.
    Interval,
}

impl Point {
    /// All points, in numeric order.
    pub const ALL: [Self; 14] = [
        Self::AnonOrder,
        Self::Window,
        Self::Around,
        Self::Collapse,
        Self::Write,
        Self::Victim,
        Self::SwapinOrder,
        Self::ShmemOrder,
        Self::Added,
        Self::Accessed,
        Self::Removed,
        Self::Evict,
        Self::Admit,
        Self::Interval,
    ];

    /// Name in results, and section name in an object file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnonOrder => "anon_order",
            Self::Window => "window",
            Self::Around => "around",
            Self::Collapse => "collapse",
            Self::Write => "write",
            Self::Victim => "victim",
            Self::SwapinOrder => "swapin_order",
            Self::ShmemOrder => "shmem_order",
            Self::Added => "added",
            Self::Accessed => "accessed",
            Self::Removed => "removed",
            Self::Evict => "evict",
            Self::Admit => "admit",
            Self::Interval => "interval",
        }
    }
}

/// Flags of an area, [`Context::area_flags`].
pub mod area {
    /// Loads are allowed.
    pub const READ: u64 = 1;
    /// Stores are allowed.
    pub const WRITE: u64 = 1 << 1;
    /// Instruction fetches are allowed.
    pub const EXEC: u64 = 1 << 2;
    /// Stores reach the file.
    pub const SHARED: u64 = 1 << 3;
    /// The area maps a file.
    pub const FILE: u64 = 1 << 4;
    /// `MADV_HUGEPAGE`.
    pub const HUGEPAGE: u64 = 1 << 5;
    /// `MADV_NOHUGEPAGE`.
    pub const NOHUGEPAGE: u64 = 1 << 6;
    /// `MADV_RANDOM`.
    pub const RANDOM: u64 = 1 << 7;
    /// `MADV_SEQUENTIAL`.
    pub const SEQUENTIAL: u64 = 1 << 8;
}

/// Flags of a folio, [`Context::folio_flags`].
pub mod folio {
    /// Private memory.
    pub const ANON: u64 = 1;
    /// Content differs from its file or swap slot.
    pub const DIRTY: u64 = 1 << 1;
    /// Some of its pages are not mapped.
    pub const PARTIAL: u64 = 1 << 2;
}

/// Reason for a read, [`Context::cause`].
pub mod cause {
    /// The page is absent.
    pub const COLD: u64 = 0;
    /// The page is absent, and the miss counter shows that reading ahead does not pay off.
    pub const GATED: u64 = 1;
    /// The reader reached the marker of an earlier window.
    pub const MARKER: u64 = 2;
}

/// Handling of a stored-to page: [`Answer::Value`] at [`Point::Write`].
pub mod write {
    /// Reuse the folio and make it writable.
    pub const REUSE: u64 = 1;
    /// Copy to a base page; a PMD entry is split first.
    pub const COPY: u64 = 2;
}

/// Handling of a folio chosen by reclaim: [`Answer::Value`] at [`Point::Victim`].
pub mod victim {
    /// Evict it.
    pub const EVICT: u64 = 1;
    /// Keep it for another round.
    pub const KEEP: u64 = 2;
    /// Split it and decide for each part.
    pub const SPLIT: u64 = 3;
}

/// Way of a read call: [`Answer::Value`] at [`Point::Admit`].
pub mod admit {
    /// Through the page cache.
    pub const CACHE: u64 = 0;
    /// Past the page cache.
    pub const BYPASS: u64 = 1;
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident,)* ; $($(#[$later_doc:meta])* $later:ident,)*) => {
        /// Input of a policy. Pages are base pages. A field that does not apply to a point is 0.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Context {
            /// Name of the process's program, at most 15 bytes and a 0. It comes from the program
            /// file's name, if the caller set it
            /// ([`Memory::set_comm`](crate::memory::Memory::set_comm)).
            pub comm: [u8; 16],
            $($(#[$doc])* pub $name: u64,)*
            /// Free blocks of exactly each order.
            pub free: [u64; NR_FREE],
            $($(#[$later_doc])* pub $later: u64,)*
        }

        impl Context {
            /// Names of the numbers between `comm` and `free`, in the order of [`Context::words`],
            /// and then of those after `free`.
            pub const NAMES: &[&str] = &[$(stringify!($name),)* $(stringify!($later),)*];
            /// Names of the numbers after `free`, in the order of [`Context::words`].
            pub const LATER_NAMES: &[&str] = &[$(stringify!($later),)*];

            /// Returns the number called `name`.
            #[must_use]
            pub fn number(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    $(stringify!($later) => Some(self.$later),)*
                    _ => None,
                }
            }

            /// Returns the context as words, as a program sees it in memory.
            #[must_use]
            pub fn words(&self) -> [u64; NR_CONTEXT_WORDS] {
                let mut words = [0; NR_CONTEXT_WORDS];
                let (comm, rest) = words.split_at_mut(NR_NAME_WORDS);
                for (word, bytes) in comm.iter_mut().zip(self.comm.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                let (numbers, rest) = rest.split_at_mut(NR_FIELDS);
                let (free, later) = rest.split_at_mut(NR_FREE);
                numbers.copy_from_slice(&[$(self.$name,)*]);
                free.copy_from_slice(&self.free);
                later.copy_from_slice(&[$(self.$later,)*]);
                words
            }

            /// The context with these words of a kernel, the inverse of [`Context::words`]. Numbers
            /// that a kernel does not know are 0.
            #[must_use]
            pub fn from_kernel_words(words: &[u64; NR_KERNEL_WORDS]) -> Self {
                let (name, rest) = words.split_at(NR_NAME_WORDS);
                let mut comm = [0; 16];
                for (bytes, word) in comm.as_chunks_mut().0.iter_mut().zip(name) {
                    *bytes = word.to_le_bytes();
                }
                let mut rest = rest.iter().copied();
                Self {
                    comm,
                    $($name: rest.next().unwrap_or_default(),)*
                    free: std::array::from_fn(|_| rest.next().unwrap_or_default()),
                    $($later: 0,)*
                }
            }

            /// Returns the context as bytes, each word little-endian.
            #[must_use]
            pub fn bytes(&self) -> [u8; 8 * NR_CONTEXT_WORDS] {
                let mut bytes = [0; 8 * NR_CONTEXT_WORDS];
                for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.words()) {
                    *to = word.to_le_bytes();
                }
                bytes
            }
        }

        const NR_LATER: usize = Context::LATER_NAMES.len();
        const NR_FIELDS: usize = Context::NAMES.len() - NR_LATER;
    };
}

fields! {
    /// Index of the point in [`Point::ALL`].
    point,
    /// Number of the address space: small, and reused after it ends.
    process,
    /// First page of the area.
    area_start,
    /// Page after its last one.
    area_end,
    /// Flags of [`area`].
    area_flags,
    /// Touched virtual page; for khugepaged, the block's first page.
    page,
    /// 1 = load, 2 = store, 3 = instruction fetch; 0 without a touch.
    access,
    /// Orders that the kernel would try, as a bit mask.
    orders,
    /// Order of the folio.
    order,
    /// Flags of [`folio`].
    folio_flags,
    /// Present pages of the block: mapped, or for a file, cached.
    nr_present,
    /// Touched page of the file.
    index,
    /// File size in pages.
    file_pages,
    /// Minimum order of the file's folios.
    min_order,
    /// Maximum order of the file's folios.
    max_order,
    /// Readahead window of the open file.
    ra_pages,
    /// Miss counter of the open file.
    misses,
    /// One of [`cause`].
    cause,
    /// First page of the kernel's own window.
    own_start,
    /// Pages of that window; 0 = only the touched page.
    own_pages,
    /// Pages after the marker of that window.
    own_ahead,
    /// Folio order of that window.
    own_order,
    /// The kernel's own answer if it is a single number.
    own,
    /// log2 of a base page's bytes.
    page_shift,
    /// Order of the folio that one PMD entry maps.
    pmd_order,
    /// Pages of memory.
    nr_pages,
    /// Free pages of memory.
    nr_free,
    /// Low watermark in pages: background reclaim starts below it.
    low,
    /// High watermark in pages: background reclaim stops there.
    high,
    /// Reclaim requests so far.
    nr_reclaims,
    /// Free pages of swap space.
    swap_free,
    /// Page limit of the cgroup (at [`Point::Victim`], the folio's); all ones without a limit.
    group_max,
    /// Pages that the cgroup uses.
    group_pages,
    ;
    /// Number of the cgroup (at [`Point::Victim`] and for a folio, the folio's); 0 = the root.
    group,
    /// Private and shared memory of the cgroup in pages, without swapped pages.
    group_anon,
    /// Pages of shared memory of the cgroup; only at [`Point::Interval`].
    group_shmem,
    /// Nanoseconds for which memory stalled the cgroup so far ([`crate::core::stall`]).
    group_stall_ns,
    /// Nanoseconds on the policy's clock at the latest [`Point::Interval`].
    clock_ns,
    /// Number of the folio, from 1 on: stays the same while it is cached, and is reused afterwards.
    folio,
    /// Number of the file, from 1 on.
    file,
    /// Pages that reclaim still needs, or that the read call asks for.
    wanted,
}

/// A window to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page of the file.
    pub start: u64,
    /// Length in pages.
    pub nr_pages: u64,
    /// Pages after the marker, which triggers the next window; 0 = no marker.
    pub nr_ahead: u64,
    /// Order of its folios.
    pub order: u64,
}

/// Answer of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Keep the kernel's own choice.
    Own,
    /// A number, whose meaning depends on the point.
    Value(u64),
    /// Only at [`Point::Window`].
    Window(Window),
}

/// Why a policy failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy failed at {}: {message}", point.name())]
pub struct PolicyError {
    /// Point of the failed call.
    pub point: Point,
    /// Error text.
    pub message: String,
}

/// A policy with its state. The same questions in the same order get the same answers.
pub trait Policy: fmt::Debug + Send {
    /// Whether the policy answers at `point`; called once per point.
    fn handles(&self, point: Point) -> bool;

    /// Answers at the point of `context`.
    ///
    /// # Errors
    /// Fails if the policy cannot answer, now or ever again.
    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError>;

    /// Steps of the last answer, besides one for the question. They depend only on the questions.
    fn nr_steps(&self) -> u64 {
        0
    }

    /// Most bytes that the policy may hold; called once.
    fn state_bytes(&self) -> u64 {
        0
    }

    /// Nanoseconds between two calls at [`Point::Interval`]; called once.
    fn interval_ns(&self) -> u64 {
        INTERVAL_NS
    }
}
