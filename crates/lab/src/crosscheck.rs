//! Recordings of real kernels, replayed and compared.
//!
//! ```text
//!   text --parse--> Recording --replay under its kernel's rules--> Verdict
//!                 header, body
//! ```
//!
//! A recording lists each step of a program and the kernel's state after it (`recordings/README.md`
//! has the formats). The replay repeats the steps in the memory manager under that kernel's rules
//! and compares every [`Aspect`]. A recording has one header and a [`RecordingBody`] of one of three
//! kinds:
//!
//! - [`files`]: the effect of touches, reads and writes on the page cache, by a probe or a real
//!   program;
//! - [`processes`]: the pages that a few processes have mapped after each step of a random program;
//! - [`clears`]: the order in which a kernel zeroes new folios.
//!
//! Owns the parser, the replay and the comparison. [`record`] makes recordings, [`result`] prints
//! the comparison.
//!
//! Invariants:
//! - I1: a recording is external data. Parsing allocates in proportion to the text, and a replay
//!   checks every number before it uses it as an index.
//! - I2: no *decision* of the kernel enters the replay. For recordings of files, the replay takes
//!   two facts that no rule determines: which reads were complete (`files/timing`,
//!   `FileSteps::takes_io_in_flight`), and the space that XFS had reserved before a write, since
//!   writeback may have run.

pub mod clears;
mod decision;
mod difference;
mod error;
pub mod files;
mod library;
pub mod processes;
pub mod record;
mod recording;
pub mod result;
pub mod run;
mod text;
mod verdict;

pub use difference::{Aspect, Difference, Location};
pub use error::CheckError;
pub use library::{AnyRecording, LibraryError, read_all, read_any};
pub use recording::{Recording, RecordingBody, RecordingHeader};
pub use text::{Pairs, ParseError, Parsed};
pub use verdict::{NotCompared, Verdict};
