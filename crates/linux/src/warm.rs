//! `folio warm`: the page cache of a file refilled with the largest folios its filesystem has.
//!
//! Folios are chosen when pages come into the cache, and stay as they are. A file that was copied
//! or read in small pieces is in small folios until its pages leave. So folio drops the small ones
//! (only clean, unmapped pages can be dropped) and reads them again through a mapping advised
//! `MADV_HUGEPAGE`. Afterwards large entries map every plain mapping at a matching address
//! (`docs/behaviour` B.4.6, B.6.3), shared by all processes as before.
//!
//! ```text
//!   look     which blocks are in one PMD folio already                    (residency)
//!   evict    sync, then POSIX_FADV_DONTNEED of the other blocks
//!   try      one block: does this filesystem, does this memory give a folio?
//!   fill     MADV_HUGEPAGE + MADV_POPULATE_READ; the end by the next largest sizes
//!   look
//! ```
//!
//! A file shorter than that gets the largest folios that fit into it. Where a PMD entry maps more
//! than pays (arm64 with 16K and 64K pages), folios of a contpte block and more count (`by_size`).
//!
//! Owns the order of these steps and what is reported about them. Does not own finding files:
//! [`libraries`] names those of a program.
//!
//! Invariants:
//! - W1: no byte of the file changes, nor its times of change: dirty pages are written, not dropped.
//! - W2: blocks in a PMD folio are left alone; where the first block tried gets none, so is the rest.
//!   A part whose folios are counted by size is left alone if all of it is large.
//! - W3: the file is opened to be read and never executed.

pub mod libraries;

mod by_size;
mod cool;
mod file;
mod refill;
mod refusal;
mod users;

pub use cool::cool;
pub use file::{Part, Warm, WarmError, Warmed};
pub use refusal::WarmRefusal;
pub use users::Users;
