//! Memory in huge pages, like the kernel's own mapping of memory.

use std::ptr;

use rustix::mm::{self, Advice, MapFlags, ProtFlags, munmap};

use super::super::anon::{BenchError, failed};

const HUGE_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub struct Arena {
    to: Stretch,
    from: Stretch,
}

impl Arena {
    /// Allocates a destination of `len_bytes` and a source of `source_bytes`, each at least a huge
    /// page, and populates them.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(len_bytes: usize, source_bytes: usize) -> Result<Self, BenchError> {
        Ok(Self { to: Stretch::new(len_bytes)?, from: Stretch::new(source_bytes)? })
    }

    pub fn to(&mut self) -> &mut [u8] {
        self.to.bytes_mut()
    }

    pub fn both(&mut self) -> (&mut [u8], &[u8]) {
        (self.to.bytes_mut(), self.from.bytes())
    }

    /// Returns the starts of all units of `len_bytes`, each once, in an order that a prefetcher
    /// cannot predict.
    pub fn walk(&self, len_bytes: usize) -> impl FnMut() -> usize + use<> {
        let nr_units = 1 << (self.to.len_bytes / len_bytes).max(1).ilog2();
        let mut at = 0usize;
        move || {
            at = at.wrapping_add(0x9e37_79b1) & (nr_units - 1);
            at * len_bytes
        }
    }
}

#[derive(Debug)]
struct Stretch {
    start: *mut u8,
    len_bytes: usize,
    mapped: (*mut u8, usize),
}

impl Stretch {
    fn new(len_bytes: usize) -> Result<Self, BenchError> {
        let len_bytes = len_bytes.max(HUGE_BYTES);
        let (prot, whole) = (ProtFlags::READ | ProtFlags::WRITE, len_bytes + HUGE_BYTES);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), whole, prot, MapFlags::PRIVATE) }
            .map_err(failed("mmap"))?
            .cast::<u8>();
        let start = base.wrapping_add(base.align_offset(HUGE_BYTES));
        let mut stretch = Self { start, len_bytes, mapped: (base, whole) };
        // SAFETY: inside the new mapping; the advice does not change contents.
        unsafe { mm::madvise(start.cast(), len_bytes, Advice::LinuxHugepage) }
            .map_err(failed("madvise"))?;
        stretch.bytes_mut().fill(1);
        Ok(stretch)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and zeroed by the kernel for the lifetime of `self`, which the slice
        // borrows.
        unsafe { std::slice::from_raw_parts(self.start, self.len_bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len_bytes) }
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        let (base, len) = self.mapped;
        // SAFETY: unmaps the mapping made by `new`; nothing refers to it.
        let _ = unsafe { munmap(base.cast(), len) };
    }
}
