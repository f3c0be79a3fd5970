//! Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst).

pub(crate) const PRESENT: u64 = 1 << 63;
pub(crate) const SWAPPED: u64 = 1 << 62;
/// A file page or shared memory.
pub(crate) const OF_FILE: u64 = 1 << 61;
/// A marker of `MADV_GUARD_INSTALL`, which also has [`SWAPPED`] set (Linux 6.15).
pub(crate) const GUARD: u64 = 1 << 58;
/// Write-protected by userfaultfd: a page, or a marker in place of one.
pub(crate) const PROTECTED: u64 = 1 << 57;
/// No other process maps the page.
pub(crate) const EXCLUSIVE: u64 = 1 << 56;
/// Written since the bits were last cleared.
pub(crate) const SOFT_DIRTY: u64 = 1 << 55;
pub(crate) const PFN_MASK: u64 = (1 << 55) - 1;
