//! Stretches of memory on huge pages, as the kernel's own view of memory is.

use std::ptr;

use rustix::mm::{self, Advice, MapFlags, ProtFlags, munmap};

use super::super::anon::{BenchError, failed};

/// Size and alignment of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// A destination and a source.
#[derive(Debug)]
pub struct Arena {
    to: Stretch,
    from: Stretch,
}

impl Arena {
    /// A destination of `len_bytes` and a source of `source_bytes`, each at least a huge page, in
    /// memory that the kernel has handed out.
    ///
    /// # Errors
    /// When the memory is not available.
    pub fn new(len_bytes: usize, source_bytes: usize) -> Result<Self, BenchError> {
        Ok(Self { to: Stretch::new(len_bytes)?, from: Stretch::new(source_bytes)? })
    }

    /// What is written.
    pub fn to(&mut self) -> &mut [u8] {
        self.to.bytes_mut()
    }

    /// What is written, and what is read.
    pub(super) fn both(&mut self) -> (&mut [u8], &[u8]) {
        (self.to.bytes_mut(), self.from.bytes())
    }

    /// What units of `len_bytes` begin at, each once, in an order that a prefetcher cannot guess.
    pub(super) fn walk(&self, len_bytes: usize) -> impl FnMut() -> usize + use<> {
        let nr_units = 1 << (self.to.len_bytes / len_bytes).max(1).ilog2();
        let mut at = 0usize;
        move || {
            at = at.wrapping_add(0x9e37_79b1) & (nr_units - 1);
            at * len_bytes
        }
    }
}

/// A private mapping that begins on a huge page.
#[derive(Debug)]
struct Stretch {
    start: *mut u8,
    len_bytes: usize,
    /// The whole mapping.
    mapped: (*mut u8, usize),
}

impl Stretch {
    fn new(len_bytes: usize) -> Result<Self, BenchError> {
        let len_bytes = len_bytes.max(HUGE_BYTES);
        let (prot, whole) = (ProtFlags::READ | ProtFlags::WRITE, len_bytes + HUGE_BYTES);
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), whole, prot, MapFlags::PRIVATE) }
            .map_err(failed("mmap"))?
            .cast::<u8>();
        let start = base.wrapping_add(base.align_offset(HUGE_BYTES));
        let mut stretch = Self { start, len_bytes, mapped: (base, whole) };
        // SAFETY: inside the new mapping; the advice changes no content.
        unsafe { mm::madvise(start.cast(), len_bytes, Advice::LinuxHugepage) }
            .map_err(failed("madvise"))?;
        stretch.bytes_mut().fill(1);
        Ok(stretch)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and zeroed by the kernel for as long as `self`, which borrows it.
        unsafe { std::slice::from_raw_parts(self.start, self.len_bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len_bytes) }
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        let (base, len) = self.mapped;
        // SAFETY: unmaps what `new` mapped, which nothing refers to any more.
        let _ = unsafe { munmap(base.cast(), len) };
    }
}
