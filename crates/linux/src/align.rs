//! `folio align`: copies a program so that PMD entries can map its segments at any load address.
//!
//! A loader places a position-independent file at a multiple of its largest `p_align` (Linux 5.10
//! for programs, glibc 2.35 for libraries). The copy sets it to 2 MiB and moves each segment in the
//! file until its offset agrees with its address mod 2 MiB. Addresses and code do not change.
//!
//! ```text
//!   file    |hdr|ro |text ......|ro  |data|sections, debug|      addresses 0, 1000, 4004000, 4005dd0
//!   copy    |hdr|ro |text ......|ro  |      ..      |data|sections, debug|
//!                                      padding: a hole, no storage
//! ```
//!
//! Invariants:
//! - A1: segments and sections have the same bytes as in the file, which is checked by reading the
//!   copy back.
//! - A2: a segment's offset and address agree mod the alignment. A page of the copy belongs to at
//!   most one segment and its gap.
//! - A3: a damaged file causes an error and never produces a copy.

mod copy;
mod error;
mod layout;
mod validate;

pub use copy::{Copied, copy};
pub use error::AlignError;
pub use layout::{Layout, LayoutPiece};
