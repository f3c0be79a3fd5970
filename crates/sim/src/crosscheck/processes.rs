//! Recordings of processes: what a few of them have mapped after each step of a random program.
//!
//! ```text
//!   seed --generate--> ProcessProgram --probe/cow.c--> ProgramRun (what the kernel shows)
//!                            |                          |
//!                            +----- ProgramReplay ------+--check--> Verdict
//! ```
//!
//! Programs are about fork and copy-on-write, about `MADV_COLLAPSE`, about khugepaged, or about
//! hugetlb. Runs nothing on a kernel.

#![expect(
    clippy::cast_possible_truncation,
    reason = "pages of a window, and what is counted in them, are at most 8192: checked in `parse`"
)]

mod compare;
mod generate;
mod huge;
mod khugepaged;
mod limit;
mod parse;
mod program;
mod range;
mod replay;
mod row;
mod run;
mod statistics;
mod world;

pub use generate::{ProgramOptions, Topic, generate};
pub use huge::HugePages;
pub use program::ProcessProgram;
pub use row::ProgramRow;
pub use run::{ProgramRun, Programs};
