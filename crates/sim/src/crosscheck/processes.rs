//! Copy-on-write held against a real kernel: random programs of a few processes.
//!
//! ```text
//!   seed --generate--> Program --probe/cow.c--> Recording (what the kernel has after each step)
//!                         |                         |
//!                         +------Replay (rules)-----+--check--> Verdict
//! ```
//!
//! Owns the programs, their text, the reading of what a kernel answered, the replay and the
//! comparison. Runs nothing on a kernel: that is the running kernel's floor.
//!
//! Invariants:
//! - I1: a recording is outside data. Parsing allocates in proportion to the text, and a replay
//!   never indexes by a number it did not check.
//! - I2: nothing of what the kernel decided flows into the replay.

#![expect(
    clippy::cast_possible_truncation,
    reason = "pages of a window, and what is counted in them, are at most 8192: checked in `parse`"
)]

mod compare;
mod generate;
mod parse;
mod program;
mod recording;
mod replay;
mod world;

pub use compare::{Aspect, CheckError, Difference, Verdict, check, kernel_of};
pub use generate::{Options, Topic, generate};
pub use parse::ParseError;
pub use program::{
    Access, Advice, FileKind, How, NR_PAGES_MAX, NR_SLOTS, Op, OwnFile, Program, Range, Rights,
    Sharing, Source, Step,
};
pub use recording::{Answer, Change, Header, Recording, Run, read_all};
pub use world::{Page, PageState, World};
