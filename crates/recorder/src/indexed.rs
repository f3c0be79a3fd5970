//! Links between the load of an index and the later reference to the element it selects.
//!
//! Owns the last loaded numbers, and a table of instructions with the address of each one's last new
//! page and the numbers that were loaded before it. A number is an index if the differences of
//! numbers and of addresses have the same ratio twice in a row:
//!
//! ```text
//!   mov (%rdx,%rax),%eax     address      number before   difference of both
//!                            d + 64 x 7         7
//!                            d + 64 x 2         2          64 x -5, -5  -> factor 64
//!                            d + 64 x 9         9          64 x  7,  7  -> the same: linked
//! ```
//!
//! [`crate::named`] does the same for addresses.
//!
//! Invariants:
//! - N1: a row is pending, or 0: every flush calls [`Indexed::clear`].
//! - N2: a number that is loaded again keeps its first row.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::wire::LINK_MAX;

/// Instructions, one per hash of an address.
const NR_ENTRIES: usize = 64;
/// Last numbers, the newest first: an element may contain a key and the next index.
const NR_NUMBERS: usize = 2;
/// Smaller numbers are flags and counters more often than indices.
const LOWEST: u64 = 64;
const END: u64 = 1 << 40;
/// Largest element in bytes.
const FACTOR_MAX: i64 = 1 << 16;

struct Number {
    value: AtomicU64,
    row: AtomicU64,
}

struct Entry {
    pc: AtomicU64,
    addr: AtomicU64,
    numbers: [AtomicU64; NR_NUMBERS],
    factor: AtomicU64,
}

pub(crate) struct Indexed {
    last: [Number; NR_NUMBERS],
    entries: [Entry; NR_ENTRIES],
}

/// Only the owner changes a cell, so this needs no locked instruction: four of them in
/// [`Indexed::link`] made recordings of sort take 1.25 times the CPU time.
fn replace(cell: &AtomicU64, value: u64) -> u64 {
    let before = cell.load(Relaxed);
    cell.store(value, Relaxed);
    before
}

/// Returns whether a loaded number may be an index.
#[inline]
pub(crate) const fn is_index(value: u64) -> bool {
    value.wrapping_sub(LOWEST) < END - LOWEST
}

impl Indexed {
    /// Notes that row `row` loaded `value`.
    #[inline]
    pub(crate) fn note(&self, value: u64, row: u32) {
        if is_index(value) {
            self.note_index(value, row);
        }
    }

    fn note_index(&self, value: u64, row: u32) {
        let [newest, before] = &self.last;
        let newest_value = newest.value.load(Relaxed);
        if value == newest_value || value == before.value.load(Relaxed) {
            return;
        }
        before.value.store(newest_value, Relaxed);
        before.row.store(newest.row.load(Relaxed), Relaxed);
        newest.value.store(value, Relaxed);
        newest.row.store(row.into(), Relaxed);
    }

    /// Returns the distance from `end`, the row about to be added for the instruction at `pc`, back
    /// to the row that loaded the index of `addr`; or 0.
    pub(crate) fn link(&self, pc: u64, addr: u64, end: u32) -> u64 {
        let numbers = [0, 1].map(|nr: usize| self.last[nr].value.load(Relaxed));
        if numbers[0] == 0 {
            return 0;
        }
        let hash = (pc ^ pc >> 6).to_le_bytes()[0];
        let Some(entry) = self.entries.get(usize::from(hash) % NR_ENTRIES) else { return 0 };
        let before = [0, 1].map(|nr: usize| replace(&entry.numbers[nr], numbers[nr]));
        let moved = addr.wrapping_sub(replace(&entry.addr, addr)).cast_signed();
        let is_same = replace(&entry.pc, pc) == pc;
        let factor = entry.factor.load(Relaxed).cast_signed();
        let difference = |nr: usize| numbers[nr].wrapping_sub(before[nr]).cast_signed();
        let is_linked = |nr: usize| {
            factor != 0 && difference(nr) != 0 && difference(nr).checked_mul(factor) == Some(moved)
        };
        if is_same && let Some(nr) = [0, 1].into_iter().find(|&nr| is_linked(nr)) {
            let distance = u64::from(end).wrapping_sub(self.last[nr].row.load(Relaxed));
            return if (1..=LINK_MAX).contains(&distance) { distance } else { 0 };
        }
        let quotient = |nr: usize| moved.checked_rem(difference(nr)) == Some(0);
        let factor = [0, 1].into_iter().find(|&nr| is_same && quotient(nr));
        let factor = factor.map_or(0, |nr| moved / difference(nr));
        let factor = if (1..=FACTOR_MAX).contains(&factor) { factor } else { 0 };
        entry.factor.store(factor.cast_unsigned(), Relaxed);
        0
    }

    /// Forgets the rows, which were sent.
    pub(crate) fn clear(&self) {
        for number in &self.last {
            number.value.store(0, Relaxed);
            number.row.store(0, Relaxed);
        }
    }
}
