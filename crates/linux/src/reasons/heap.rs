//! Finds the heap that a runtime manages itself, and the code that it compiles.
//!
//! ```text
//!   reservation   | used | reserved | used | reserved |     adjoining private memory without a file
//!   heap            the reservation around the largest mapping that the process can write
//!   code            private memory that is writable and executable
//! ```
//!
//! An option for the heap affects no other mappings. No gain is promised for a garbage collector's
//! tables or for malloc's memory.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;

use super::case::Case;
use crate::census::process::Process;
use crate::proc::maps::Vma;

/// Code is advised if this many blocks are reserved for it (JDK 17, `CodeCache::page_size`).
const CODE_BLOCKS: u64 = 8;

/// Private memory without a file, used or only reserved.
fn is_nameless(vma: &Vma) -> bool {
    let name = vma.path.as_os_str().as_bytes();
    !vma.has_file() && !vma.is_shared() && (name.is_empty() || name.starts_with(b"[anon:"))
}

fn is_writable(vma: &Vma) -> bool {
    vma.prot() & libc::PROT_WRITE as u32 != 0
}

fn is_code(vma: &Vma) -> bool {
    is_nameless(vma) && vma.is_exec() && is_writable(vma)
}

fn nameless(process: &Process) -> impl DoubleEndedIterator<Item = &Vma> {
    process.mappings.iter().map(|mapping| &mapping.vma).filter(|vma| is_nameless(vma))
}

fn largest(process: &Process) -> Range<u64> {
    let writable = nameless(process).rev().filter(|vma| is_writable(vma));
    writable.max_by_key(|vma| vma.len_bytes()).map_or(0..0, |vma| vma.range.clone())
}

/// Extends a mapping by the adjoining memory: the program reserved all of it together.
fn reservation(process: &Process, range: Range<u64>) -> Range<u64> {
    let above = nameless(process)
        .fold(range.end, |end, vma| if vma.range.start == end { vma.range.end } else { end });
    let below = nameless(process).rev().fold(range.start, |start, vma| {
        if vma.range.end == start { vma.range.start } else { start }
    });
    below..above
}

pub(super) fn is_largest(case: &Case<'_>) -> bool {
    largest(case.process) == case.mapping.vma.range
}

pub(super) fn is_part(case: &Case<'_>) -> bool {
    let vma = &case.mapping.vma;
    let heap = || reservation(case.process, largest(case.process));
    is_code(vma) || is_nameless(vma) && heap().contains(&vma.range.start)
}

/// Returns the memory that compiled code gains by advice: each of its parts then starts with a
/// block. Parts that contain a block are judged like other memory.
pub(super) fn code(process: &Process, pmd_bytes: u64) -> u64 {
    let is_short = |vma: &Vma| is_code(vma) && vma.nr_whole_blocks(pmd_bytes) == 0;
    let parts = process.mappings.iter().filter(|mapping| {
        let reserved = reservation(process, mapping.vma.range.clone());
        is_short(&mapping.vma)
            && reserved.end - reserved.start >= CODE_BLOCKS.saturating_mul(pmd_bytes)
    });
    let used = parts.map(|mapping| mapping.tally.all().mapped_bytes());
    used.map(|bytes| bytes.next_multiple_of(pmd_bytes) - bytes).sum()
}

#[cfg(test)]
mod tests;
