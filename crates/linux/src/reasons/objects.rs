//! Recognises arenas of `CPython`'s object allocator.
//!
//! ```text
//!   arena   1M per request (256K before 3.10); the kernel joins neighbouring arenas
//!   pool    16K (4K before 3.10), aligned, with a header at the start
//! ```
//!
//! No setting puts a block into a larger folio if it was mapped in such pieces.

use super::contents::{Contents, Words};
use crate::proc::maps::Vma;

/// Pool lengths, newest first (`POOL_SIZE` in `CPython`'s `Objects/obmalloc.c`).
const POOLS: [u64; 2] = [16 << 10, 4 << 10];
/// Object lengths are multiples of this.
const STEP: u64 = 16;
const STEPS_MAX: u64 = 32;

pub(super) fn is_arena(contents: &mut Contents, vma: &Vma) -> bool {
    POOLS.into_iter().any(|pool_bytes| {
        let at = vma.range.start.next_multiple_of(pool_bytes);
        let is_header = |words| matches!(words, Words::Read(words) if is_pool(words, pool_bytes));
        at < vma.range.end && is_header(contents.words(at))
    })
}

/// Checks for a pool header (`struct pool_header`): objects in use, three pointers, the arena's
/// number and the size class, and the offsets of the next and the last object.
fn is_pool([used, _, next, before, class, offsets]: [u64; 6], pool_bytes: u64) -> bool {
    let (low, high) = (|word: u64| word & u64::from(u32::MAX), |word: u64| word >> 32);
    let steps = high(class) + 1;
    let is_class = steps <= STEPS_MAX;
    is_class
        && high(offsets) == pool_bytes - steps * STEP
        && low(offsets) <= pool_bytes
        && low(used) <= pool_bytes / (steps * STEP)
        && next != 0
        && before != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn both(low: u64, high: u64) -> u64 {
        low | high << 32
    }

    /// From Python 3.11: 204 objects of 80 bytes, and 66 of 64.
    const FULL: [u64; 6] =
        [204, 0, 0x7f76_0000_0000, 0x7f76_0000_0010, 4 << 32, both(16368, 16304)];
    const PART: [u64; 6] =
        [66, 0x7f76_7b24_d0b0, 0x7f76_0000_0000, 0x7f76_0000_0010, 3 << 32, both(4400, 16320)];

    #[test]
    fn a_pool_is_known_by_its_header() {
        assert!(is_pool(FULL, 16 << 10) && is_pool(PART, 16 << 10));
        let old = [4, 0, 1, 1, both(7, 15), both(3888, 3840)];
        assert!(is_pool(old, 4 << 10) && !is_pool(old, 16 << 10));
        let one = |at: usize, word: u64| {
            let mut words = FULL;
            words[at] = word;
            words
        };
        for other in [
            [0; 6],
            [u64::MAX; 6],
            // A malloc request.
            [0, 0x0027_c002, 0, 0, 0, 0],
            one(0, 205),
            one(2, 0),
            one(3, 0),
            one(4, 5 << 32),
            one(4, 32 << 32),
            one(5, both(16385, 16304)),
            one(5, both(16368, 16320)),
        ] {
            assert!(!is_pool(other, 16 << 10), "{other:?}");
        }
    }
}
