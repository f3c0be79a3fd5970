//! `folio warm`: refills a file's page cache with the largest folios that its filesystem supports.
//!
//! The kernel chooses a folio's size when pages enter the cache. A file that was copied or read in
//! small pieces stays in small folios until its pages are evicted. folio drops the small ones (only
//! clean, unmapped pages can be dropped) and reads them again through a mapping advised
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
//! A shorter file gets the largest folios that fit into it. If a PMD entry maps more than is useful
//! (arm64 with 16K and 64K pages), contpte blocks and larger folios count (`by_size`).
//!
//! Owns the order of these steps and the report about them. [`libraries`] finds a program's files.
//!
//! Invariants:
//! - W1: neither the bytes nor the change times of the file change: dirty pages are written first.
//! - W2: blocks in a PMD folio are not touched. If the first block tried gets none, the rest is not
//!   touched either. A part whose folios are counted by size is not touched if all of it is large.
//! - W3: the file is opened for reading and never executed.

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
