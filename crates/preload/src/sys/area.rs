//! Our own address space, and the kernel's view of it.

use core::ffi::c_int;
use core::ptr;

use largefolio_ranges::sys::{call, i32_word};
use largefolio_ranges::{Wanted, category, scan};

use super::{Errno, Fd, Result, block_bytes};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mapping {
    Fill,
    Look,
    /// To run: as the loader maps text, with its pages mapped immediately.
    Text,
}

impl Mapping {
    pub(super) const fn numbers(self) -> (usize, c_int) {
        match self {
            Self::Fill => ((libc::PROT_READ | libc::PROT_WRITE) as usize, libc::MAP_SHARED),
            Self::Look => (libc::PROT_READ as usize, libc::MAP_PRIVATE),
            Self::Text => (
                (libc::PROT_READ | libc::PROT_EXEC) as usize,
                libc::MAP_PRIVATE | libc::MAP_POPULATE,
            ),
        }
    }
}

/// Address space of our own. It is inaccessible until something is mapped over it, unless it is
/// private memory.
#[derive(Debug)]
pub(crate) struct Area {
    address: usize,
    len: usize,
}

impl Area {
    pub(crate) fn reserve(len: usize) -> Result<Self> {
        Self::map(len, libc::PROT_NONE)
    }

    pub(crate) fn memory(len: usize) -> Result<Self> {
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn map(len: usize, protection: c_int) -> Result<Self> {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
        let arguments = [0, len, i32_word(protection), flags, usize::MAX, 0];
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing of ours.
        let address = unsafe { call(libc::SYS_mmap, arguments) }?;
        Ok(Self { address, len })
    }

    pub(crate) fn reserve_blocks(len: usize) -> Result<Self> {
        Self::reserve(len.checked_add(block_bytes()).ok_or(Errno(libc::ENOMEM))?)
    }

    pub(crate) const fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn first_block(&self) -> usize {
        (self.address + block_bytes() - 1) & !(block_bytes() - 1)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = ptr::with_exposed_provenance_mut::<u8>(self.address);
        // SAFETY: the mapping is zeroed memory of `len` bytes that only this value refers to.
        unsafe { core::slice::from_raw_parts_mut(start, self.len) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping and nothing refers to it.
        let _ = unsafe { call(libc::SYS_munmap, [self.address, self.len, 0, 0, 0, 0]) };
    }
}

/// Returns whether the `len` bytes at `one` and at `other` are equal.
///
/// # Safety
/// Both are mapped and readable.
pub(crate) unsafe fn is_same(one: usize, other: usize, len: usize) -> bool {
    let (one, other) = (ptr::with_exposed_provenance(one), ptr::with_exposed_provenance(other));
    // SAFETY: by the caller's promise. No reference is made, because the bytes may be shared.
    unsafe { libc::memcmp(one, other, len) == 0 }
}

impl Fd {
    /// Returns the bytes of `address..address + len` that PMD entries map. `self` is a descriptor
    /// of `/proc/self/pagemap`.
    pub(crate) fn large_bytes(&self, address: usize, len: usize) -> Result<usize> {
        let mut found = 0;
        let wanted = Wanted { any_of: category::HUGE, returned: category::HUGE };
        scan(self.raw(), address as u64..(address + len) as u64, wanted, |region| {
            found += region.end - region.start;
        })?;
        Ok(usize::try_from(found).unwrap_or(0))
    }
}
