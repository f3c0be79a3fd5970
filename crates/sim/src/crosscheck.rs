//! Recordings of real kernels, replayed and compared.
//!
//! ```text
//!   text --parse--> Recording --replay under its kernel's rules--> Verdict
//!                 header, body
//! ```
//!
//! A recording says what was done, step by step, and what the kernel did after each step
//! (`recordings/README.md` has the formats). The replay does the same steps in the memory manager
//! under the rules of that kernel. Everything that a kernel shows is compared; [`Aspect`] is the
//! list. There are two kinds of recordings, and each is a [`RecordingBody`] below one header:
//!
//! - [`files`]: what touches, reads and writes do to the page cache, by a probe or a real program;
//! - [`processes`]: what a few processes have mapped after each step of a random program.
//!
//! Owns the reading, the replay and the comparison. Does not record: that is the job of
//! `largefolio-linux`.
//!
//! Invariants:
//! - I1: a recording is outside data. Parsing allocates in proportion to the text, and a replay
//!   never indexes by a number it did not check.
//! - I2: nothing that the kernel *decided* enters the replay. Of recordings of files, two things
//!   that no rule determines are taken: which reads were complete (`files/timing`,
//!   `FileSteps::takes_io_in_flight`), and what XFS has reserved before a write, since it may have
//!   written back.

mod difference;
mod error;
pub mod files;
mod library;
pub mod processes;
mod recording;
mod text;
mod verdict;

pub use difference::{Aspect, Difference, Location};
pub use error::CheckError;
pub use library::{LibraryError, read_all};
pub use recording::{Recording, RecordingBody, RecordingHeader, rules_of_release};
pub use text::{Pairs, ParseError, Parsed};
pub use verdict::{NotCompared, Verdict};
