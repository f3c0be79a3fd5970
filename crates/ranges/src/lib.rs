//! Large folios for the program's own memory.
//!
//! ```text
//!   Range      whole pages of the caller's memory
//!   back       advise, populate, collapse: what was done, and why not more
//!   view       smaps, pagemap, kpageflags -> which sizes the range has, and why no larger ones
//!   waste      all-zero pages in large folios
//!   split      large folios -> base pages; the kernel frees those of only zeros
//!   Reserved   aligned address space of the caller's own
//! ```
//!
//! `largefolio.h` (crate `largefolio-c`) and `largefolio.memory` in Python offer the same.
//!
//! Invariants:
//! - R1: only [`release`] and dropping a [`Reserved`] unmap memory. No other function changes
//!   memory's contents, so each may be called on any address, while other threads write to it or
//!   unmap it.
//! - R2: nothing here allocates, keeps state, leaves a descriptor open, or raises a signal. A
//!   descriptor of `/proc/self` belongs to the process that opened it, so each call opens its own;
//!   after a fork, the child sees its own memory.
//! - R3: an unprivileged process cannot see folios below the PMD size. Numbers that are not
//!   visible are `None`, never 0.
//! - R4: nothing here indexes, unwraps or divides by a number from outside, so it does not panic, as
//!   the preloaded libraries require.
//! - R5: a call that a seccomp filter denies returns its error.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(test)]
extern crate std;

mod area;
mod back;
mod fd;
mod files;
mod folios;
mod pages;
mod range;
mod reason;
mod reserve;
pub mod rules;
mod scan;
mod settings;
mod split;
pub mod sys;
mod text;
mod view;
mod waste;

pub use back::{Advice, Backed, Collapsed, Options, advise, back, collapse};
pub use fd::Fd;
pub use range::{Range, blocks};
pub use reason::Reason;
pub use reserve::{Reserved, release};
pub use scan::{Region, Wanted, category, scan};
pub use settings::{NR_ORDERS, ProcessThp, Settings};
pub use split::{Split, split};
pub use sys::{Errno, Result, block_bytes, page_bytes};
pub use text::{field, number};
pub use view::{View, view};
pub use waste::{Waste, waste};
