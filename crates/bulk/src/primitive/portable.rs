//! Available on every platform: the C library's `memset` and `memcpy`, or the compiler's own.

pub(super) unsafe fn clear(start: *mut u8, len: usize) {
    if len == 0 {
        return; // The address of nothing may be anything, null included.
    }
    // SAFETY: the caller passes a range valid for writes.
    unsafe { start.write_bytes(0, len) };
}

pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    if len == 0 {
        return; // As above.
    }
    // SAFETY: the caller passes valid ranges that do not overlap.
    unsafe { to.copy_from_nonoverlapping(from, len) };
}
