//! The page cache of one file: which folio holds which index.
//!
//! ```text
//!   index   0    1    2    3    4    5    6    7    8 ...
//!         +----+----+----+----+----+----+----+----+---
//!         | o0 | o0 | order 1 | order 2           | -      one folio never crosses a multiple
//!         +----+----+----+----+----+----+----+----+---     of its own size
//! ```
//!
//! Owns the tree of folios ([`tree`]), the searches over it ([`search`]), space reserved for writes
//! ([`reserve`]) and what a filesystem says about a file ([`Mapping`]). Does not allocate folios and starts no I/O.
//!
//! Invariants (BEHAVIOUR.md L.1):
//! - I1: a folio's index is a multiple of its number of pages.
//! - I2: folios do not overlap.
//! - I3: an order lies within the mapping's [`OrderRange`].

pub mod reserve;
pub mod search;
pub mod tree;

use crate::reclaim::swap::Slot;
use crate::reclaim::workingset::Shadows;
use crate::rules::OrderRange;
use crate::units::{Order, PageIndex, PageSize};
use reserve::Reservations;
use std::collections::BTreeMap;
use tree::Tree;

/// The page cache of one file.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Folios by index.
    pub tree: Tree,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Orders the filesystem allows here.
    pub orders: OrderRange,
    /// Whether the filesystem places mappings for huge pages (ext4, XFS, btrfs; B.6.3).
    pub places_aligned: bool,
    /// Whether the pages belong to shared memory (tmpfs, memfd) rather than to a disk file.
    pub is_shmem: bool,
    /// Whether it is the memory behind a shared anonymous mapping: filled with zeroes, in base
    /// pages (`shmem_enabled` = never), gone with its last mapping.
    pub is_anon_shared: bool,
    /// What is reserved for written data, on a filesystem that cuts writes by it (XFS).
    pub reservations: Option<Reservations>,
    /// What evicted pages left behind.
    pub shadows: Shadows,
    /// Pages of shared memory that are in swap space.
    pub swapped: BTreeMap<PageIndex, Slot>,
}

impl Mapping {
    /// A file of `size_bytes` with nothing cached.
    #[must_use]
    pub fn new(size_bytes: u64, orders: OrderRange) -> Self {
        Self {
            tree: Tree::new(),
            size_bytes,
            orders,
            places_aligned: false,
            is_shmem: false,
            is_anon_shared: false,
            reservations: None,
            shadows: Shadows::default(),
            swapped: BTreeMap::new(),
        }
    }

    /// Number of pages of the file, the last one maybe in part.
    #[must_use]
    pub fn nr_file_pages(&self, page: PageSize) -> u64 {
        page.pages_in(self.size_bytes)
    }

    /// Index of the last page of the file; `None` for an empty file.
    #[must_use]
    pub fn last_index(&self, page: PageSize) -> Option<PageIndex> {
        self.nr_file_pages(page).checked_sub(1).map(PageIndex)
    }

    /// Smallest folio of this mapping in pages.
    #[must_use]
    pub fn min_pages(&self) -> u64 {
        self.orders.min.nr_pages()
    }

    /// `index` rounded down to where a folio of the smallest order may start.
    #[must_use]
    pub fn align_down(&self, index: u64) -> u64 {
        self.orders.min.round_down(index)
    }

    /// Checks I1 .. I3 and the tree's own invariants; `order_of` gives a folio's index and order.
    ///
    /// # Errors
    /// Names the first folio that breaks an invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        for entry in self.tree.iter() {
            let (index, order) = (entry.index, entry.order);
            if !order.is_aligned(index.0) {
                return Err(Violation::I1 { index, order });
            }
            let is_legal = order >= self.orders.min && order <= self.orders.max;
            if !is_legal {
                return Err(Violation::I3 { index, order, range: self.orders });
            }
        }
        if let Some(Err(block)) = self.reservations.as_ref().map(Reservations::validate) {
            return Err(Violation::Reservation { block });
        }
        self.tree.validate()
    }
}

/// A broken invariant of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A folio that is not naturally aligned.
    #[error("I1: folio of {order} at index {index} is not naturally aligned")]
    I1 {
        /// Where it starts.
        index: PageIndex,
        /// Its order.
        order: Order,
    },
    /// Two folios share an index, or a slot names a folio that does not cover it.
    #[error("I2: slot at index {index} belongs to no folio")]
    I2 {
        /// The index concerned.
        index: PageIndex,
    },
    /// Reservations out of order.
    #[error("the reservation at block {block} overlaps or touches another, or is empty")]
    Reservation {
        /// First block of the second one.
        block: u64,
    },
    /// An order the filesystem does not allow.
    #[error("I3: folio of {order} at index {index} is outside {range:?}")]
    I3 {
        /// Where it starts.
        index: PageIndex,
        /// Its order.
        order: Order,
        /// What the mapping allows.
        range: OrderRange,
    },
}
