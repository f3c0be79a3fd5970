//! Caches the meaning of the words by which QEMU describes an access.
//!
//! A program uses about ten such words (size, direction, byte order). Two calls into QEMU per
//! access cost more than the rest of the callback.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::qemu;

/// Entries of the table, indexed by a hash of the word. A colliding word replaces the entry.
const NR_ENTRIES: usize = 64;

const MEANING_BITS: u32 = 8;

const SIZE_MASK: u8 = 0xf;
const STORE: u8 = 0x10;
/// Set in every meaning, so no entry is 0.
const KNOWN: u8 = 0x80;

const POINTER_SIZE_SHIFT: u8 = 3;
const NUMBER_SIZE_SHIFT: u8 = 2;

static ENTRIES: [AtomicU64; NR_ENTRIES] = [const { AtomicU64::new(0) }; NR_ENTRIES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    /// Returns the meaning of `info`.
    ///
    /// # Safety
    /// `info` is the handle that QEMU passed to the access callback.
    #[inline]
    pub(crate) unsafe fn of(info: u32) -> Self {
        // Size and byte order start at bit 4, the direction at bit 16.
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

    /// Returns true for a read-modify-write access too.
    #[inline]
    pub(crate) fn is_store(self) -> bool {
        self.0 & STORE != 0
    }

    pub(crate) fn size_bytes(self) -> u64 {
        1 << (self.0 & SIZE_MASK)
    }

    #[inline]
    pub(crate) fn is_load_of_pointer_size(self) -> bool {
        self.0 == KNOWN | POINTER_SIZE_SHIFT
    }

    /// Returns whether it loads 4 bytes, which may be an index.
    #[inline]
    pub(crate) fn is_load_of_number_size(self) -> bool {
        self.0 == KNOWN | NUMBER_SIZE_SHIFT
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

    /// The stand-in reports everything as an 8-byte load.
    #[test]
    fn words_that_share_an_entry_keep_their_meaning() {
        for info in [0, 1 << 20, 0x10030, 0, 0x20030, u32::MAX] {
            // SAFETY: the stand-in takes any word.
            let access = unsafe { Access::of(info) };
            assert!(access.is_load_of_pointer_size(), "{info:#x}");
        }
    }
}
