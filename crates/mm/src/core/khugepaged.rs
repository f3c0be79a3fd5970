//! khugepaged's state: its clock and scan position (docs/behaviour H.6.5).
//!
//! Does not own a scan's decisions ([`crate::collapse`]).

use crate::units::{MappingId, MmId, Vpn};

#[derive(Clone, Debug, Default)]
pub(crate) struct Khugepaged {
    pub(crate) now_ns: u64,
    pub(crate) wake_ns: u64,
    pub(crate) mms: Vec<MmId>,
    pub(crate) at: Option<usize>,
    pub(crate) next: Vpn,
    pub(crate) nr_scanned: u64,
    pub(crate) flushed: Vec<MappingId>,
    /// Entries examined in the last block, or the fixed cost charged instead.
    pub(crate) nr_examined: u64,
    pub(crate) nr_passes: u32,
    pub(crate) has_slept: bool,
    /// Whether a setting has started it, and no process was on its list yet.
    pub(crate) waits: bool,
}
