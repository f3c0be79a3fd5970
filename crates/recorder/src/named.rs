//! Links between a load and the later reference to the page its value points to.
//!
//! Owns a table from a page to the row of the load that read an address on it. A load that misses
//! the TLB delays every use of its value, and a row's link identifies this load. Only pages are
//! compared, so a link does not prove that the address was computed from the value.
//!
//! CPU time of recordings with links relative to those without, on a busy machine, n = 9 pairs:
//! 1.045 (0.91 to 1.13) for cc1 -O2, 1.047 (0.99 to 1.13) for python3. Their traces are 13% and 20%
//! larger.
//!
//! Invariants:
//! - N1: an entry refers to a pending row of the tail: every flush calls [`Named::clear`].
//! - N2: if a value is loaded again (after a spill, or in a loop), it keeps its first row as long
//!   as a link can reach it. Later uses wait for the first load.
//! - N3: a value that points to the page it was loaded from is ignored: that page was just
//!   accessed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::wire::{LINK_MAX, PAGE_BITS, TAIL_ROWS, WINDOW};

/// Entries, one per hash of a page number. Few other addresses are loaded between a load and the
/// use of its value, so collisions are rare.
const NR_ENTRIES: usize = 64;

const ROW_BITS: u32 = 14;
const _: () = assert!(NR_ENTRIES <= 256 && WINDOW + TAIL_ROWS < 1 << ROW_BITS);

/// Lowest address a value can point to (`mmap_min_addr`). Smaller values are plain numbers.
const LOWEST: u64 = 1 << 16;
const END: u64 = 1 << 48;

pub(crate) struct Named {
    entries: [AtomicU64; NR_ENTRIES],
}

impl Named {
    /// Notes that row `row`, a load at `addr`, read `value`. The next row will be `end`.
    #[inline]
    pub(crate) fn note(&self, addr: u64, value: u64, row: u32, end: u32) {
        let page = value >> PAGE_BITS;
        if value.wrapping_sub(LOWEST) >= END - LOWEST || page == addr >> PAGE_BITS {
            return;
        }
        if self.link(page, end) == 0 {
            self.entry(page).store(page << ROW_BITS | u64::from(row), Relaxed);
        }
    }

    /// Returns the distance from `end`, the row about to be added, back to the row whose value
    /// points to `page`; or 0 without such a row.
    #[inline]
    pub(crate) fn link(&self, page: u64, end: u32) -> u64 {
        let entry = self.entry(page).load(Relaxed);
        let distance = u64::from(end).wrapping_sub(entry & ((1 << ROW_BITS) - 1));
        // N1: a row is before `end`, so the distance is at least 1. No entry is for page 0.
        let is_linked = entry >> ROW_BITS == page && distance <= LINK_MAX && page != 0;
        if is_linked { distance } else { 0 }
    }

    #[inline]
    fn entry(&self, page: u64) -> &AtomicU64 {
        &self.entries[usize::from(page.to_le_bytes()[0]) % NR_ENTRIES]
    }

    pub(crate) fn clear(&self) {
        for entry in &self.entries {
            entry.store(0, Relaxed);
        }
    }
}
