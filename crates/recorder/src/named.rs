//! Pages that loaded values name: where the link of a row comes from.
//!
//! Owns a table from a page to the row of the load that found an address on it. A load that misses
//! the TLB holds up whatever uses its value; a row with a link says which load that is. What is
//! compared is only the page: whether the address was computed from the value is not seen.
//!
//! CPU time of recordings with links to those without, on a busy machine, n = 9 pairs: 1.045 (0.91 to
//! 1.13) for cc1 -O2, 1.047 (0.99 to 1.13) for python3. Their traces are 13% and 20% larger.
//!
//! Invariants:
//! - N1: an entry names a row of the tail that waits: [`Named::clear`] comes with each flush.
//! - N2: a value that is loaded again (it was spilled, or is read by each round of a loop) keeps
//!   its first row while that can have a link: the first load is the one that others wait for.
//! - N3: a value on the page it was loaded from is not noted: that page was just reached.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::wire::{LINK_MAX, PAGE_BITS, TAIL_ROWS, WINDOW};

/// Entries, one per remainder of a page number. Between a load and the use of its value are few
/// loads of other addresses, so few are lost to another page of the same remainder.
const NR_ENTRIES: usize = 64;

/// Bits of an entry that hold the row; the page number is above them.
const ROW_BITS: u32 = 14;
const _: () = assert!(NR_ENTRIES <= 256 && WINDOW + TAIL_ROWS < 1 << ROW_BITS);

/// Lowest address that a value may name: `mmap_min_addr`, below which lie small numbers.
const LOWEST: u64 = 1 << 16;
/// End of the addresses that programs get.
const END: u64 = 1 << 48;

/// See the module; all zero is empty.
pub(crate) struct Named {
    entries: [AtomicU64; NR_ENTRIES],
}

impl Named {
    /// Notes that the load of row `row` found `value` at `addr`; the next row will be `end`.
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

    /// How many rows before `end`, which is about to be added, a value named `page`; 0 for none.
    #[inline]
    pub(crate) fn link(&self, page: u64, end: u32) -> u64 {
        let entry = self.entry(page).load(Relaxed);
        let distance = u64::from(end).wrapping_sub(entry & ((1 << ROW_BITS) - 1));
        // N1: a row is before `end`, so the distance is at least 1. Page 0 is no entry's.
        let is_linked = entry >> ROW_BITS == page && distance <= LINK_MAX && page != 0;
        if is_linked { distance } else { 0 }
    }

    #[inline]
    fn entry(&self, page: u64) -> &AtomicU64 {
        &self.entries[usize::from(page.to_le_bytes()[0]) % NR_ENTRIES]
    }

    /// Forgets all rows.
    pub(crate) fn clear(&self) {
        for entry in &self.entries {
            entry.store(0, Relaxed);
        }
    }
}
