//! Whole pages between two guard pages.

use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};

/// With larger base pages the guards cannot be placed.
pub(crate) const PAGE: usize = 4096;

/// Anonymous memory; an access one byte before or after it faults.
pub(crate) struct Guarded {
    base: NonNull<u8>,
    len: usize,
}

impl Guarded {
    pub(crate) fn new(nr_pages: usize) -> Self {
        let len = nr_pages * PAGE;
        let whole = len + 2 * PAGE;
        // SAFETY: a new mapping at no fixed address.
        let base = unsafe {
            mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), MapFlags::PRIVATE)
        };
        let base = NonNull::new(base.unwrap().cast::<u8>()).unwrap();
        let guarded = Self { base, len };
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the pages between the guards, which nothing uses yet.
        unsafe { mm::mprotect(guarded.start().cast(), len, flags) }.unwrap();
        guarded
    }

    fn start(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(PAGE)
    }
}

impl Deref for Guarded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped, zeroed by the kernel, and lent out by `self` alone.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, no longer lent to anyone.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len + 2 * PAGE) };
        unmapped.unwrap();
    }
}
