//! Two equal stretches of memory on huge pages, as the kernel's own view of memory is.

use std::ptr;

use rustix::io;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// Size and alignment of a huge page.
const HUGE_BYTES: usize = 2 << 20;

pub(crate) struct Arena {
    to: &'static mut [u8],
    from: &'static mut [u8],
}

impl Arena {
    /// Two stretches of `len` bytes, which live as long as the program.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        Ok(Self { to: stretch(len)?, from: stretch(len)? })
    }

    pub(crate) fn to(&mut self) -> &mut [u8] {
        self.to
    }

    pub(crate) fn both(&mut self) -> (&mut [u8], &[u8]) {
        (self.to, self.from)
    }

    /// What units of `len` begin at, each once, in no order a prefetcher knows.
    pub(crate) fn walk(&self, len: usize) -> impl FnMut() -> usize + use<> {
        let nr_units = 1 << (self.to.len() / len).ilog2();
        let mut at = 0usize;
        move || {
            at = at.wrapping_add(0x9e37_79b1) & (nr_units - 1);
            at * len
        }
    }
}

fn stretch(len: usize) -> io::Result<&'static mut [u8]> {
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    let whole = len + HUGE_BYTES;
    // SAFETY: a new mapping at no fixed address.
    let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), whole, flags, MapFlags::PRIVATE) }?;
    let base = base.cast::<u8>();
    let start = base.wrapping_add(base.align_offset(HUGE_BYTES));
    // SAFETY: inside the new mapping; the advice changes no content.
    unsafe { mm::madvise(start.cast(), len, Advice::LinuxHugepage) }?;
    // SAFETY: mapped, zeroed by the kernel, never unmapped, and known to nobody else.
    let stretch = unsafe { std::slice::from_raw_parts_mut(start, len) };
    stretch.fill(1);
    Ok(stretch)
}
