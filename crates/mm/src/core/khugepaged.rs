//! What khugepaged keeps: its clock, and where its scan stands (docs/behaviour H.6.5).
//!
//! Owns nothing that a scan decides ([`crate::collapse`]).

use crate::units::{MappingId, MmId, Vpn};

/// Where the scan stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Khugepaged {
    /// Its clock in nanoseconds, from 0.
    pub(crate) now_ns: u64,
    /// When it wakes next.
    pub(crate) wake_ns: u64,
    /// Processes to scan, in the order they came.
    pub(crate) mms: Vec<MmId>,
    /// The one being examined; `None` between two passes over all of them.
    pub(crate) at: Option<usize>,
    /// First page of that process that was not examined yet.
    pub(crate) next: Vpn,
    /// Pages examined since it woke.
    pub(crate) nr_scanned: u64,
    /// Files that it began to write back in this waking.
    pub(crate) flushed: Vec<MappingId>,
    /// Entries of the last block that were examined, or what it counts for instead.
    pub(crate) nr_examined: u64,
    /// Passes begun since it woke.
    pub(crate) nr_passes: u32,
    /// Whether it has slept because memory was short since it woke.
    pub(crate) has_slept: bool,
}
