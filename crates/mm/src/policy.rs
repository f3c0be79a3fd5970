//! Policies: programs that answer where a kernel decides.
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
//! Owns the points, what a policy sees and what it may answer. Does not own which answers can be
//! honoured: that is checked where each point
//! is (`fault/decide.rs`, `collapse/khugepaged.rs`, `reclaim/victim.rs`). A policy is a preference, as a BPF
//! program of a kernel would be: it never makes an operation fail. What it computes is work, and so is
//! what follows from its answers ([`crate::core::work`]): who limits work may end with it.
//!
//! Differs: in no kernel. Proposed for anonymous memory.

use std::fmt;

/// Words of a [`Context`].
pub const NR_CONTEXT_WORDS: usize = NR_NAME_WORDS + NR_FIELDS + NR_FREE;
/// Words that hold the name of a program, 16 bytes as `comm`.
const NR_NAME_WORDS: usize = 2;
/// Orders of free blocks: those that a folio can have.
pub const NR_FREE: usize = 14;

/// Where a kernel decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// A fault on private memory: which orders to try.
    AnonOrder,
    /// A fault on a mapped file whose page is absent, or that reaches the marker: what to read.
    Window,
    /// A fault that loads from a mapped file: how many pages around it to map.
    Around,
    /// khugepaged found a block: which orders to collapse it to.
    Collapse,
    /// A store to a large private folio that is mapped read-only: keep it or copy the page.
    Write,
    /// Reclaim is about to evict a folio.
    Victim,
}

impl Point {
    /// All points, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::AnonOrder, Self::Window, Self::Around, Self::Collapse, Self::Write, Self::Victim];

    /// Name in results and of the section of an object file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnonOrder => "anon_order",
            Self::Window => "window",
            Self::Around => "around",
            Self::Collapse => "collapse",
            Self::Write => "write",
            Self::Victim => "victim",
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
    /// It maps a file.
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
    /// It holds private memory.
    pub const ANON: u64 = 1;
    /// It differs from its file or swap slot.
    pub const DIRTY: u64 = 1 << 1;
    /// Some of its pages are mapped by nobody.
    pub const PARTIAL: u64 = 1 << 2;
}

/// Why a window is to be read, [`Context::cause`].
pub mod cause {
    /// The page is absent.
    pub const COLD: u64 = 0;
    /// The page is absent, and the miss counter says that reading ahead is not worth while.
    pub const GATED: u64 = 1;
    /// The reader reached the marker of an earlier window.
    pub const MARKER: u64 = 2;
}

/// What is done with a page that is stored to: [`Answer::Value`] at [`Point::Write`].
pub mod write {
    /// The folio is kept, and becomes writable.
    pub const REUSE: u64 = 1;
    /// The page is copied to a base page; a PMD entry is split before.
    pub const COPY: u64 = 2;
}

/// What is done with a folio that reclaim chose: [`Answer::Value`] at [`Point::Victim`].
pub mod victim {
    /// It goes.
    pub const EVICT: u64 = 1;
    /// It stays for another round.
    pub const KEEP: u64 = 2;
    /// It is split, and its parts are looked at one by one.
    pub const SPLIT: u64 = 3;
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a policy sees. All numbers are 64 bits wide; pages are base pages. A field that says
        /// nothing at a point is 0 there.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Context {
            /// Name of the program that the process runs, at most 15 bytes and a 0: of its file, as far as
            /// the caller knows it ([`Memory::set_comm`](crate::memory::Memory::set_comm)).
            pub comm: [u8; 16],
            $($(#[$doc])* pub $name: u64,)*
            /// Free blocks of exactly each order.
            pub free: [u64; NR_FREE],
        }

        impl Context {
            /// Names of the numbers between `comm` and `free`, in the order of [`Context::words`].
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// The number called `name`.
            #[must_use]
            pub fn number(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// All of it as words, as a program sees it in memory.
            #[must_use]
            pub fn words(&self) -> [u64; NR_CONTEXT_WORDS] {
                let mut words = [0; NR_CONTEXT_WORDS];
                let (comm, rest) = words.split_at_mut(NR_NAME_WORDS);
                for (word, bytes) in comm.iter_mut().zip(self.comm.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                let (numbers, free) = rest.split_at_mut(NR_FIELDS);
                numbers.copy_from_slice(&[$(self.$name,)*]);
                free.copy_from_slice(&self.free);
                words
            }

            /// The same as bytes, the lowest of a word first.
            #[must_use]
            pub fn bytes(&self) -> [u8; 8 * NR_CONTEXT_WORDS] {
                let mut bytes = [0; 8 * NR_CONTEXT_WORDS];
                for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.words()) {
                    *to = word.to_le_bytes();
                }
                bytes
            }
        }

        const NR_FIELDS: usize = Context::NAMES.len();
    };
}

fields! {
    /// Number of the point in [`Point::ALL`].
    point,
    /// Number of the address space: small, and used again after its end.
    process,
    /// First page of the area.
    area_start,
    /// Page behind its last.
    area_end,
    /// Flags of [`area`].
    area_flags,
    /// Virtual page that is touched; the first of a block that khugepaged found.
    page,
    /// 1 = load, 2 = store, 3 = instruction fetch; 0 where nothing is touched.
    access,
    /// Orders that the kernel would try, as bits.
    orders,
    /// Order of the folio.
    order,
    /// Flags of [`folio`].
    folio_flags,
    /// Pages of the block that are there: mapped, or of a file cached.
    nr_present,
    /// Page of the file that is touched.
    index,
    /// Pages of the file.
    file_pages,
    /// Smallest order of the file's folios.
    min_order,
    /// Largest order of the file's folios.
    max_order,
    /// Readahead window of the open file.
    ra_pages,
    /// Its miss counter.
    misses,
    /// A number of [`cause`].
    cause,
    /// First page of the kernel's own window.
    own_start,
    /// Its pages; 0 = it would read the touched page alone.
    own_pages,
    /// Its pages behind the marker.
    own_ahead,
    /// Order it asks for.
    own_order,
    /// The kernel's own answer where it is one number: pages of fault-around, what is done with a
    /// store or a folio.
    own,
    /// log2 of the bytes of a base page.
    page_shift,
    /// Order of the folio that one PMD entry maps.
    pmd_order,
    /// Pages of memory.
    nr_pages,
    /// Free ones.
    nr_free,
    /// Free pages below which background reclaim starts.
    low,
    /// Free pages at which it ends.
    high,
    /// Requests to reclaim so far.
    nr_reclaims,
    /// Free pages of swap space.
    swap_free,
    /// Pages that the control group may take, at [`Point::Victim`] the folio's; all ones without a
    /// limit.
    group_max,
    /// Pages that it has.
    group_pages,
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page of the file.
    pub start: u64,
    /// Pages from there on.
    pub nr_pages: u64,
    /// Pages behind the marker, whose reach reads the next window; 0 = no marker.
    pub nr_ahead: u64,
    /// Order of its folios.
    pub order: u64,
}

/// What a policy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel's own choice.
    Own,
    /// A number; what it means depends on the point.
    Value(u64),
    /// At [`Point::Window`].
    Window(Window),
}

/// Why a policy cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy failed at {}: {message}", point.name())]
pub struct PolicyError {
    /// Where it was asked.
    pub point: Point,
    /// What went wrong.
    pub message: String,
}

/// A policy with its state. The same questions in the same order get the same answers.
pub trait Policy: fmt::Debug + Send {
    /// Whether it has something to say there; asked once.
    fn asks(&self, point: Point) -> bool;

    /// Its answer at the point of `context`.
    ///
    /// # Errors
    /// When it cannot answer, now or ever again.
    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError>;

    /// Steps that its last answer took, beside the one of the question ([`crate::core::work`]). They
    /// follow from the questions alone, never from the time.
    fn nr_steps(&self) -> u64 {
        0
    }

    /// Bytes that it may come to hold; asked once.
    fn state_bytes(&self) -> u64 {
        0
    }
}
