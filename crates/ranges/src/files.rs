//! The files outside the process that the library reads.

use core::ffi::CStr;

pub(crate) const SMAPS: &CStr = c"/proc/self/smaps";
pub(crate) const MAPS: &CStr = c"/proc/self/maps";
pub(crate) const PAGEMAP: &CStr = c"/proc/self/pagemap";
/// Needs root.
pub(crate) const KPAGEFLAGS: &CStr = c"/proc/kpageflags";
pub(crate) const THP: &CStr = c"/sys/kernel/mm/transparent_hugepage";
