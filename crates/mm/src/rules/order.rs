//! Orders of file folios that the discussion of series 000 proposed: in no kernel
//! (docs/behaviour K.1.4).
//!
//! Owns the values. Each names the file that follows it.

use serde::{Deserialize, Serialize};

use crate::units::{Order, PageSize};

/// What was proposed beside a fixed order for executable memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderRules {
    /// What the smallest folio of a file means when memory has none (`core/soft.rs`).
    pub min: MinOrder,
    /// Smallest folio that a fault in an executable mapping reads, in bytes; 0 = the file's
    /// (`fault/proposed.rs`). It is a preference: base pages come where memory has no such folio.
    pub exec_min_bytes: u64,
    /// Window and folio size that mapping a file for execution sets in the readahead state of the
    /// open file, in bytes; 0 = the state is left alone (`map.rs`).
    pub mmap_state_bytes: u64,
    /// Whether the order of executable memory follows memory pressure (`fault/proposed.rs`).
    pub pressure: PressureOrder,
}

/// What the smallest folio of a file is when no block of its order is free.
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
    /// The order is fixed: memory is compacted for it, and base pages come where that fails.
    #[default]
    Ignored,
    /// The largest order up to it that is free above the low mark without any work.
    Followed,
}

impl OrderRules {
    /// Smallest order of executable mappings with base pages of `page`, at most `max`.
    #[must_use]
    pub fn exec_min(&self, page: PageSize, max: Order) -> Order {
        page.order_of_bytes(self.exec_min_bytes).min(max)
    }

    /// Order that mapping a file for execution leaves in its readahead state.
    #[must_use]
    pub fn mmap_state(&self, page: PageSize) -> Option<Order> {
        (self.mmap_state_bytes > 0).then(|| page.order_of_bytes(self.mmap_state_bytes))
    }
}
