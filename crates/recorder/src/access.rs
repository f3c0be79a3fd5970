//! What QEMU's word on an access says.
//!
//! Owns a table from the words that were seen to their meaning. A program has about ten of them
//! (size, direction, order of bytes), and two calls into QEMU for each access cost more than all
//! else in the callback.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::qemu;

/// Entries of the table, one per remainder of a word; another word with the same one replaces it.
const NR_ENTRIES: usize = 64;

/// Bits of an entry that hold the meaning; the word is above them.
const MEANING_BITS: u32 = 8;

/// log2 of the largest size; QEMU's functions know 16 bytes.
const SIZE_MASK: u8 = 0xf;
const STORE: u8 = 0x10;
/// Set in every meaning, so that no entry is 0.
const KNOWN: u8 = 0x80;

/// log2 of the bytes of an address.
const POINTER_SIZE_SHIFT: u8 = 3;

static ENTRIES: [AtomicU64; NR_ENTRIES] = [const { AtomicU64::new(0) }; NR_ENTRIES];

/// Direction and size of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    /// The meaning of `info`.
    ///
    /// # Safety
    /// `info` is the handle that QEMU passed to the callback of an access.
    #[inline]
    pub(crate) unsafe fn of(info: u32) -> Self {
        // Size and order of bytes are in bits 4 and up, the direction from bit 16 on.
        let index = (info >> 4 ^ info >> 14) as usize % NR_ENTRIES;
        let entry = ENTRIES[index].load(Relaxed);
        if entry >> MEANING_BITS == u64::from(info) && entry != 0 {
            return Self(entry.to_le_bytes()[0]);
        }
        // SAFETY: by the caller's promise.
        unsafe { Self::ask(info, &ENTRIES[index]) }
    }

    /// # Safety
    /// As [`Access::of`].
    #[cold]
    unsafe fn ask(info: u32, entry: &AtomicU64) -> Self {
        // SAFETY: by the caller's promise.
        let is_store = unsafe { qemu::qemu_plugin_mem_is_store(info) };
        // SAFETY: as above.
        let size_shift = unsafe { qemu::qemu_plugin_mem_size_shift(info) };
        let access = Self::new(is_store, size_shift);
        entry.store(u64::from(info) << MEANING_BITS | u64::from(access.0), Relaxed);
        access
    }

    fn new(is_store: bool, size_shift: u32) -> Self {
        let size = size_shift.to_le_bytes()[0] & SIZE_MASK;
        Self(KNOWN | size | if is_store { STORE } else { 0 })
    }

    /// Whether it writes; one that reads and writes does.
    #[inline]
    pub(crate) fn is_store(self) -> bool {
        self.0 & STORE != 0
    }

    /// Bytes.
    pub(crate) fn size_bytes(self) -> u64 {
        1 << (self.0 & SIZE_MASK)
    }

    /// Whether it is a load of 8 bytes.
    #[inline]
    pub(crate) fn is_load_of_pointer_size(self) -> bool {
        self.0 == KNOWN | POINTER_SIZE_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direction_and_size_are_told_apart() {
        for is_store in [false, true] {
            for size_shift in 0..5 {
                let access = Access::new(is_store, size_shift);
                assert_eq!((access.is_store(), access.size_bytes()), (is_store, 1 << size_shift));
                let is_pointer = !is_store && size_shift == 3;
                assert_eq!(access.is_load_of_pointer_size(), is_pointer);
            }
        }
    }

    /// The stand-in for QEMU calls everything a load of 8 bytes.
    #[test]
    fn words_that_share_an_entry_keep_their_meaning() {
        for info in [0, 1 << 20, 0x10030, 0, 0x20030, u32::MAX] {
            // SAFETY: the stand-in takes any word.
            let access = unsafe { Access::of(info) };
            assert!(access.is_load_of_pointer_size(), "{info:#x}");
        }
    }
}
