//! [`clear_extent`] and [`copy_extent`]: choose a primitive and run it, with this CPU's defaults.

use crate::error::RangeError;
use crate::tuning::{Residency, Tuning};

/// Zeroes `extent` with the best primitive for its size and the hint on this CPU. Does nothing for
/// an empty one.
///
/// ```
/// # use largefolio_bulk::{Residency, clear_extent};
/// let mut bytes = vec![7; 10_000];
/// clear_extent(&mut bytes[1..9_999], Residency::NotTouched);
/// assert_eq!((bytes[0], bytes[1], bytes[9_998], bytes[9_999]), (7, 0, 0, 7));
/// ```
#[inline]
pub fn clear_extent(extent: &mut [u8], residency: Residency) {
    Tuning::host().clear_extent(extent, residency);
}

/// Zeroes `len_bytes` of mapped memory at `start`; with no bytes, any address works.
///
/// # Errors
/// [`RangeError::Wraps`] if the range extends past the end of the address space.
///
/// # Safety
/// The range is mapped for writing and nothing else reads or writes it meanwhile.
#[inline]
pub unsafe fn clear_extent_raw(
    start: *mut u8,
    len_bytes: usize,
    residency: Residency,
) -> Result<(), RangeError> {
    let clearer = Tuning::host().clearer(len_bytes, residency);
    // SAFETY: the caller's promise is the callee's.
    unsafe { clearer.clear_raw(start, len_bytes) }
}

/// Copies `from` over `to` with the best primitive for the size and the hint, which describes `to`.
///
/// # Errors
/// [`RangeError::Lengths`] if their lengths differ. Nothing is written.
#[inline]
pub fn copy_extent(to: &mut [u8], from: &[u8], residency: Residency) -> Result<(), RangeError> {
    Tuning::host().copy_extent(to, from, residency)
}

/// Copies `len_bytes` of mapped memory from `from` to `to`; with no bytes, any addresses work.
///
/// # Errors
/// [`RangeError::Overlap`] if the ranges share a byte, [`RangeError::Wraps`] if one extends past
/// the end of the address space. Nothing is written.
///
/// # Safety
/// `from` is mapped for reading and `to` for writing, and nothing else writes either or reads `to`
/// meanwhile.
#[inline]
pub unsafe fn copy_extent_raw(
    to: *mut u8,
    from: *const u8,
    len_bytes: usize,
    residency: Residency,
) -> Result<(), RangeError> {
    let copier = Tuning::host().copier(len_bytes, residency);
    // SAFETY: the caller's promise is the callee's.
    unsafe { copier.copy_raw(to, from, len_bytes) }
}
