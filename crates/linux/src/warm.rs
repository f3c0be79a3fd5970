//! `folio warm`: refills a file's page cache with the largest folios that its filesystem supports.
//!
//! The kernel chooses a folio's size when pages enter the cache, so a file that was read in small
//! pieces stays in small folios. folio drops these (only clean, unmapped pages can be dropped) and
//! reads them again through a mapping advised `MADV_HUGEPAGE`. Afterwards, large entries map the
//! file in every ordinary mapping at a matching address (`docs/behaviour` B.4.6, B.6.3).
//!
//! ```text
//!   look     which blocks are already in one PMD folio                    (residency)
//!   evict    sync, then POSIX_FADV_DONTNEED of the other blocks
//!   try      one block: do filesystem and memory provide a folio?
//!   fill     MADV_HUGEPAGE + MADV_POPULATE_READ; the end in the next largest sizes
//!   look
//! ```
//!
//! A shorter file gets the largest folios that fit into it. If a PMD entry maps more than is useful
//! (arm64 with 16K and 64K pages), contpte blocks and larger folios count (`by_size`).
//!
//! Invariants:
//! - W1: neither the file's contents nor its modification times change: dirty pages are written
//!   first.
//! - W2: blocks in a PMD folio are not touched. If the first block tried gets none, the rest is not
//!   touched either. A part whose folios are counted by size is not touched if all of it is large.
//! - W3: the file is opened for reading and never executed.

pub mod libraries;

mod by_size;
mod cool;
mod file;
mod refill;
pub(crate) mod refusal;
mod users;

pub use cool::cool;
pub use file::{Part, Warm, WarmError, Warmed};
pub use refusal::WarmRefusal;
pub use users::Users;
