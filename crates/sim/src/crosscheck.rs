//! Recordings of real kernels, replayed and compared folio for folio.
//!
//! ```text
//!   text --parse--> Recording --Replay--> what the model does --compare--> Verdict --> Summary
//!                    (kernel)                 (rules)                     (one)       (many)
//! ```
//!
//! A recording says what a program did, step by step, and what the kernel did after each step
//! (`recordings/README.md` has the format). The replay does the same steps in the memory manager
//! under the rules of that kernel. Everything a tracepoint or a page map shows is compared;
//! [`Aspect`] is the list.
//!
//! Owns the reading, the replay and the comparison. Does not record: that is the running kernel's
//! floor.
//!
//! Invariants:
//! - I1: a recording is outside data. Parsing allocates in proportion to the text, and a replay
//!   never indexes by a number it did not check.
//! - I2: nothing of what the kernel *decided* flows into the replay. Two things that no rule
//!   determines are taken from a recording: which reads were complete (`timing`,
//!   [`Recording::takes_io_in_flight`]), and what XFS has reserved before a write, since it may
//!   have written back.

pub mod files;
mod library;
pub mod processes;
mod summary;

pub use files::{
    Action, AreaEnd, AreaSpec, Aspect, Difference, EntryLine, FolioRun, Header, Hit, NotCompared,
    ParseError, Recording, ReplayError, Run, State, Step, Verdict, WindowLine, check, kernel_of,
};
pub(crate) use library::read_texts;
pub use library::{LibraryError, read_all};
pub use summary::{KernelRow, Summary};
