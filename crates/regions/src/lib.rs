//! The library that gives a program's memory advice about folios, region by region.
//!
//! `folio run --regions FILE` loads it through `LD_PRELOAD`. It is not the library of moved text:
//! that one exports nothing, and this one must replace functions to see later memory.
//!
//! ```text
//!   constructor   the next library's functions
//!                 LARGEFOLIO_REGIONS -> rules (kept in memory of our own)
//!                 /proc/self/maps -> heap, stack, memory, files -> advice
//!   mmap          the next library's function, then advice by size or by file
//!   malloc, ..    the same; and advice for the heap's new part, once it has grown
//! ```
//!
//! Invariants:
//! - G1: each function calls the next library's of the same name and returns its result, with
//!   its errno. Advice that fails changes nothing but a counter.
//! - G2: without rules, and in a process with other privileges or a sanitizer, nothing is advised.
//! - G3: the library installs no signal handler, leaves no descriptor open, and allocates nothing;
//!   the loader may, for the error of a lookup that fails.
//! - G4: it cannot panic: it does not index or unwrap.
//! - G5: the first rule that fits decides. Advice is for whole mappings or steps of the heap. Only
//!   the steps can add mappings, and their number is limited.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

// A cdylib needs a panic handler, which is never called (G4).
extern crate std;

mod advice;
mod functions;
mod next;
mod report;
mod start;

/// The loader calls the functions in this section before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start::start;
