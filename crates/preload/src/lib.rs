//! The library that moves a program's text into shared large folios before `main`.
//!
//! `folio run --text remap` loads it through `LD_PRELOAD`. The page cache cannot hold some text in
//! large folios because of its filesystem, its alignment or an earlier mapping. The library maps a
//! copy in shared memory over it: 2 MiB folios under PMD entries, one copy for all processes of a
//! file. docs/design/remap.md describes the protocol and why it is safe.
//!
//! ```text
//!   constructor -> objects: any text with a whole block?
//!                  guard: must this process stay unchanged?
//!                  store: the private directory of copies, checked
//!                  remap: /proc/self/maps -> texts -> copy found or made -> compared with the text
//!                         -> mapped over it
//!                  report: one line per text, one per process
//! ```
//!
//! Invariants:
//! - P1: after any failure the original mapping stays and the program continues.
//! - P2: the library allocates nothing from the program's heap, installs no signal handler, leaves
//!   no descriptor open, prints only on request, and restores errno.
//! - P3: a process without a whole block of text makes no system call here.
//! - P4: the library cannot panic: it never indexes or unwraps, and uses only inlined functions of
//!   `core`. It needs only libc and exports nothing, which a test of `largefolio-linux` checks.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

// rustc requires a panic handler and an unwinder in a cdylib. Neither is ever called (P4).
extern crate std;

mod copy;
mod elf;
mod guard;
mod line;
mod maps;
mod objects;
mod proof;
mod remap;
mod report;
mod store;
mod superblock;
mod sys;
#[expect(dead_code, unreachable_pub, reason = "the launcher uses the rest and publishes it")]
mod wire;

use store::Store;
use wire::{REPORT_VARIABLE, Refusal, STORE_VARIABLE, VERBOSE_VARIABLE};

/// The loader calls the functions in this section before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let errno = sys::errno();
    if let Some(path) = sys::variable(STORE_VARIABLE) {
        run(path);
    }
    sys::set_errno(errno);
}

fn run(path: &core::ffi::CStr) {
    let is_verbose = sys::variable(VERBOSE_VARIABLE).is_some_and(|value| value == c"1");
    if !objects::have_blocks() {
        report::Report::new(None, is_verbose).process(Err(Refusal::Tiny), 0);
        return;
    }
    let start = sys::monotonic_ns();
    let guarded = guard::check();
    // An unknown filter could kill the process even for the calls of a report.
    let is_silent = matches!(guarded, Err(Refusal::Secure | Refusal::Seccomp));
    let store = if is_silent { Err(Refusal::StoreMissing) } else { Store::open(path) };
    let name = sys::variable(REPORT_VARIABLE);
    let file = store.as_ref().ok().zip(name).and_then(|(store, name)| store.report(name));
    let report = report::Report::new(file, is_verbose);
    let result = guarded.and_then(|()| remap::texts(store.as_ref().map_err(|why| *why)?, &report));
    report.process(result, sys::monotonic_ns().wrapping_sub(start));
}
