//! Our own address space, and the kernel's view of it.

use core::ffi::c_int;
use core::ptr;

use super::{Errno, Fd, Result, block_bytes, call, i32_word};

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

pub(crate) fn advise(address: usize, len: usize, advice: Advice) -> Result<()> {
    // SAFETY: neither advice changes what the memory holds.
    unsafe { call(libc::SYS_madvise, [address, len, advice as usize, 0, 0, 0]) }.map(drop)
}

#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Advice {
    /// Map pages as a read would, with an error instead of a signal (Linux 5.14).
    PopulateRead = 22,
    Collapse = 25,
}

/// Argument of the `PAGEMAP_SCAN` ioctl (Linux 6.7).
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    nr_regions: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 0xc060_6610;
const PAGE_IS_HUGE: u64 = 1 << 6;

impl Fd {
    /// Returns the bytes of `address..address + len` that PMD entries map. `self` is a descriptor
    /// of `/proc/self/pagemap`.
    pub(crate) fn large_bytes(&self, address: usize, len: usize) -> Result<usize> {
        let mut regions = [Region { start: 0, end: 0, categories: 0 }; 16];
        let end = address as u64 + len as u64;
        let mut start = address as u64;
        let mut found = 0;
        while start < end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: 0,
                start,
                end,
                walk_end: 0,
                regions: regions.as_mut_ptr().addr() as u64,
                nr_regions: regions.len() as u64,
                max_pages: 0,
                inverted: 0,
                mask: PAGE_IS_HUGE,
                any_of: 0,
                returned: PAGE_IS_HUGE,
            };
            let arguments = [self.0, PAGEMAP_SCAN, (&raw mut scan).addr(), 0, 0, 0];
            // SAFETY: `scan` is the ioctl's argument and points to `regions`; both outlive the
            // call.
            let nr = unsafe { call(libc::SYS_ioctl, arguments) }?;
            found +=
                regions.iter().take(nr).fold(0, |sum, region| sum + (region.end - region.start));
            if scan.walk_end <= start {
                break;
            }
            start = scan.walk_end;
        }
        Ok(usize::try_from(found).unwrap_or(0))
    }
}
