//! Address space of the caller's own, aligned so that large folios fit.

use core::ffi::CStr;

use crate::range::Range;
use crate::settings::Settings;
use crate::sys::{self, Errno, Result, page_bytes};

/// The kernel's limit, the zero included.
const NAME_BYTES_MAX: usize = 80;
const ALIGN_BYTES_MAX: usize = 1 << 40;

/// Private memory, all zeros until it is written. It takes no memory before that, and is unmapped
/// when this is dropped.
#[derive(Debug)]
pub struct Reserved {
    start: usize,
    len: usize,
}

impl Reserved {
    /// Reserves `len` bytes, rounded up to whole pages. Without `align`, the start is aligned for
    /// the largest folio that fits and that the kernel gives now. The name appears in
    /// `/proc/PID/maps` as `[anon:NAME]` (Linux 5.17 with `CONFIG_ANON_VMA_NAME`, without effect
    /// elsewhere).
    ///
    /// # Errors
    /// `EINVAL` if `len` is 0, `align` is not a power of two, or the name has a character that the
    /// kernel does not accept or 80 bytes; `ENOMEM` if there is no such address space.
    pub fn new(len: usize, align: Option<usize>, name: Option<&CStr>) -> Result<Self> {
        let page = page_bytes();
        let is_power =
            align.is_none_or(|align| align.is_power_of_two() && align <= ALIGN_BYTES_MAX);
        if len == 0 || !is_power || !name.is_none_or(is_name) {
            return Err(Errno(libc::EINVAL));
        }
        let len = len.checked_next_multiple_of(page).ok_or(Errno(libc::ENOMEM))?;
        let align = align.map_or_else(|| alignment(len), |align| align.max(page));
        let whole = len.checked_add(align - page).ok_or(Errno(libc::ENOMEM))?;
        let address = sys::map(whole)?;
        let start = address.checked_next_multiple_of(align).ok_or(Errno(libc::ENOMEM))?;
        let trimmed = trim(address, start).and_then(|()| trim(start + len, address + whole));
        let reserved = Self { start, len };
        trimmed?;
        if let Some(name) = name {
            // A kernel without names is no reason to refuse memory.
            let _ = sys::name(start, len, name);
        }
        Ok(reserved)
    }

    #[must_use]
    pub const fn range(&self) -> Range {
        Range::of_pages(self.start, self.start + self.len)
    }

    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.start)
    }

    /// In whole pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the address. The caller unmaps the memory with [`release`].
    #[must_use]
    pub fn into_raw(self) -> *mut u8 {
        let start = self.as_ptr();
        core::mem::forget(self);
        start
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; pointers into it must not outlive it (`as_ptr`).
        let _ = unsafe { sys::unmap(self.start, self.len) };
    }
}

/// Unmaps memory.
///
/// # Safety
/// Every page that `start..start + len` touches is the caller's, and nothing refers to it: the kernel
/// rounds the length up, so that the length of a reservation releases all of it.
///
/// # Errors
/// `EINVAL` if `start` is not the start of a page.
pub unsafe fn release(start: usize, len: usize) -> Result<()> {
    // SAFETY: by the caller's promise.
    unsafe { sys::unmap(start, len) }
}

fn trim(from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    // SAFETY: a part of the new mapping that nothing refers to.
    unsafe { sys::unmap(from, to - from) }
}

/// Returns the largest folio size that fits into `len` bytes and that advised memory gets. If it
/// gets none, takes the PMD size as the limit: the settings can change.
fn alignment(len: usize) -> usize {
    let page = page_bytes();
    let largest = Settings::read().ok().and_then(|settings| settings.largest_bytes(true));
    let largest = largest.unwrap_or_else(|| sys::block_bytes(page));
    let fits = len.checked_ilog2().map_or(page, |order| 1 << order);
    largest.min(fits).max(page)
}

fn is_name(name: &CStr) -> bool {
    let name = name.to_bytes();
    let is_accepted = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\\`$[]".contains(byte);
    name.len() < NAME_BYTES_MAX && name.iter().all(is_accepted)
}
