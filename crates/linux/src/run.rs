//! `folio run`: a program started with its text, and its heap, on large folios.
//!
//! ```text
//!   Program        which ELF file runs, and with whose rights          (program)
//!   Launch         for each of its files: can its text be mapped large (placement), is the cache
//!                  filled so (crate::warm); the heap's size and the loader's variable (heap)
//!   Launch::exec   the program takes this process's place: nothing of ours is left
//!   Launch::watch  the program as a child: signals passed on, areas counted from time to time
//! ```
//!
//! Owns the choice and the run. If something cannot be done, that is a [`Fallback`], and the
//! program starts as it would have without folio.
//!
//! Invariants:
//! - N1: the program's arguments, streams, directory, process group and terminal are those it would
//!   have; its environment too, except for `GLIBC_TUNABLES` with `--heap`. It does
//!   not inherit a disabled THP, and folio says so.
//! - N2: it ends as it would: exit code, or death by the same signal.
//! - N3: a setting of the system is held by a keeper ([`crate::setting`]) and put back whatever
//!   ends this process; there are no temporary files.

mod child;
mod choice;
mod fallback;
mod heap;
mod inherited;
mod placement;
mod program;
mod remap;
mod sample;

pub use child::{Ended, die_of};
pub use choice::{Launch, Request, RunError, Text, Watched, placed, remap_refusal};
pub use fallback::Fallback;
pub use heap::Heap;
pub use inherited::thp_disabled;
pub use placement::{Obstacle, Placed};
pub use sample::{Samples, Sampling};
