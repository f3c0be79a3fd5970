//! Recordings of processes: the pages that a few processes have mapped after each step of a random
//! program.
//!
//! ```text
//!   seed --generate--> ProcessProgram --probe/cow.c--> ProgramRun (the kernel's state)
//!                            |                          |
//!                            +----- ProgramReplay ------+--check--> Verdict
//! ```
//!
//! The programs test fork and copy-on-write, `MADV_COLLAPSE`, khugepaged, shared memory, NUMA, swap, zswap
//! or hugetlb. This module does not run them on a kernel.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a window's pages and their counts are at most 8192: checked in `parse`"
)]

mod compare;
mod generate;
mod huge;
mod khugepaged;
mod limit;
mod nodes;
mod parse;
mod program;
mod range;
mod replay;
mod row;
mod run;
mod shmem;
mod statistics;
mod world;
mod zswap;

pub use generate::{ProgramOptions, Topic, ZswapTopic, generate};
pub use huge::HugePages;
pub use program::ProcessProgram;
pub use row::ProgramRow;
pub use run::{ProgramRun, Programs};
