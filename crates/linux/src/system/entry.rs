//! Bits of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst).

/// The page is in memory.
pub(crate) const PRESENT: u64 = 1 << 63;
/// It is in swap space.
pub(crate) const SWAPPED: u64 = 1 << 62;
/// It is of a file, or of shared memory.
pub(crate) const OF_FILE: u64 = 1 << 61;
/// A marker of `MADV_GUARD_INSTALL`, which is also [`SWAPPED`] (Linux 6.15).
pub(crate) const GUARD: u64 = 1 << 58;
/// Write-protected by userfaultfd: a page, or a marker in the place of one.
pub(crate) const PROTECTED: u64 = 1 << 57;
/// No other process maps the page.
pub(crate) const EXCLUSIVE: u64 = 1 << 56;
/// It was written since the bits were last cleared.
pub(crate) const SOFT_DIRTY: u64 = 1 << 55;
/// The PFN of a page that is in memory.
pub(crate) const PFN_MASK: u64 = (1 << 55) - 1;
