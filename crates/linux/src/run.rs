//! `folio run`: starts a program with its text and heap in large folios.
//!
//! ```text
//!   Program        the ELF file that runs, and its privileges                       (program)
//!   Launch         for each file: can its text be mapped large (alignment), and is its cache
//!                  filled (crate::warm); the heap's size and the loader's variable (heap)
//!                  advice by region: the library and its rules (regions)
//!   Launch::exec   the program replaces this process, which leaves nothing
//!   Launch::watch  the program as a child: passes signals on, samples its areas
//! ```
//!
//! Any step that fails is a [`Fallback`], and the program starts as it would without folio.
//!
//! Invariants:
//! - N1: the program's arguments, streams, directory, process group and terminal are unchanged. So
//!   is its environment, except for `GLIBC_TUNABLES` with `--heap`, and for `LD_PRELOAD` and our own
//!   variables with a preloaded library. With text or heap, it does not
//!   inherit a disabled THP, and folio reports that.
//! - N2: it ends as it would without folio: same exit code, or death by the same signal.
//! - N3: a keeper ([`crate::setting`]) restores each system setting, even if this process is
//!   killed.

mod child;
mod choice;
mod fallback;
mod heap;
mod inherited;
mod program;
mod regions;
mod remap;
mod sample;

pub use child::{ChildEnd, die_of};
pub use choice::{Launch, ProgramRequest, RunError, Text, Watched, files, placed, remap_refusal};
pub use fallback::Fallback;
pub use heap::Heap;
pub use inherited::{ThpLimit, limit_thp, thp_disabled};
pub use regions::{RegionRules, RegionSum, Regions, RegionsError};
pub use sample::{Samples, Sampling};
