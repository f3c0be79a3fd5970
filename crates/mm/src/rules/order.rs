//! File folio orders that were proposed in the discussion of series 000; no kernel has them
//! (K.1.4).
//!
//! Owns the values. Each names the file that implements it.

use serde::{Deserialize, Serialize};

use crate::units::{Order, PageSize};

/// Proposals besides a fixed order for executable memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderRules {
    /// Whether a file's smallest folio is a limit or a preference (`core/soft.rs`).
    pub min: MinOrder,
    /// Smallest folio that a fault in an executable mapping reads, in bytes; 0 = the file's
    /// (`fault/readahead.rs`). A preference: if memory has no such folio, the fault uses base pages.
    pub exec_min_bytes: u64,
    /// Window and folio size in bytes that mapping a file for execution sets in the open file's
    /// readahead state; 0 = unchanged (`map.rs`).
    pub mmap_state_bytes: u64,
    /// Whether the order of executable memory follows memory pressure (`fault/readahead.rs`).
    pub pressure: PressureOrder,
}

/// Meaning of a file's smallest order when no block of it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MinOrder {
    /// A limit, as for block sizes above the base page: the read fails.
    #[default]
    Hard,
    /// A preference: the same pages are read as base pages.
    Soft,
}

/// Whether executable memory is read in smaller folios when memory is short or fragmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PressureOrder {
    /// No: the kernel compacts for the fixed order and uses base pages if that fails.
    #[default]
    Ignored,
    /// Yes: uses the largest order, up to the fixed one, that is free above the low watermark.
    Followed,
}

impl OrderRules {
    /// Smallest order of executable mappings with base pages of `page`, at most `max`.
    #[must_use]
    pub fn exec_min(&self, page: PageSize, max: Order) -> Order {
        page.order_of_bytes(self.exec_min_bytes).min(max)
    }

    /// Order that mapping a file for execution sets in its readahead state.
    #[must_use]
    pub fn mmap_state(&self, page: PageSize) -> Option<Order> {
        (self.mmap_state_bytes > 0).then(|| page.order_of_bytes(self.mmap_state_bytes))
    }
}
