//! `folio align`: a copy of a program whose segments PMD entries can map wherever it is loaded.
//!
//! A loader places a position-independent file at a multiple of its largest `p_align` (kernel 5.10
//! for programs, glibc 2.35 for libraries). The copy asks for 2 MiB, and each segment's place in the
//! file is moved so that it agrees with its address mod 2 MiB. No address changes: code, relocations,
//! symbols and debug information stay as they are; only places in the file do.
//!
//! ```text
//!   file    |hdr|ro |text ......|ro  |data|sections, debug|      addresses 0, 1000, 4004000, 4005dd0
//!   copy    |hdr|ro |text ......|ro  |      ..      |data|sections, debug|
//!                                      padding: a hole, no storage
//! ```
//!
//! Owns the new layout ([`Layout`]) and the copy. Refuses files whose copy might behave
//! differently.
//!
//! Invariants:
//! - A1: bytes of segments and of sections are those of the file; checked by reading the copy back.
//! - A2: offset and address of a segment agree mod the alignment; a page of the copy belongs to at
//!   most one segment and its gap.
//! - A3: a damaged file is an error, and never a copy.

mod copy;
mod error;
mod layout;
mod validate;

pub use copy::{Copied, copy};
pub use error::AlignError;
pub use layout::{Layout, Piece};
