//! The page cache of one file: maps each index to its folio.
//!
//! ```text
//!   index   0    1    2    3    4    5    6    7    8 ...
//!         +----+----+----+----+----+----+----+----+---
//!         | o0 | o0 | order 1 | order 2           | -      one folio never crosses a multiple
//!         +----+----+----+----+----+----+----+----+---     of its own size
//! ```
//!
//! Owns the tree of folios ([`tree`]), the searches over it ([`search`]), filesystem traits
//! ([`disk`]), holes ([`holes`]), XFS reservations ([`reserve`]), the gate between writers and huge
//! folios ([`gate`]), shadows (`shadows`) and a file's settings ([`Mapping`]). Does not allocate
//! folios and starts no I/O.
//!
//! Invariants (docs/behaviour L.1):
//! - I1: a folio's index is a multiple of its number of pages.
//! - I2: folios do not overlap.
//! - I3: an order is within the mapping's [`OrderRange`], except in the [`Mapping::nr_above_max`]
//!   folios made by collapse or by settings for shared memory, and in base pages if the smallest
//!   order is only a preference.
//! - I4: a control names only exec orders that the mapping has.

pub mod disk;
pub mod gate;
pub mod holes;
pub mod reserve;
pub mod search;
pub(crate) mod shadows;
pub mod tree;

use crate::mapping::gate::Gate;
use crate::mempolicy::PolicyRanges;
use crate::rules::sizes::FileOrders;
use crate::rules::{Device, OrderRange};
use crate::units::PageRange;
use crate::units::{GroupId, Order, PageIndex, PageSize, SwapSlot};
use disk::Disk;
use holes::Holes;
use reserve::Reservations;
use shadows::Shadows;
use std::collections::{BTreeMap, BTreeSet};
use tree::Tree;

/// The setting that enables huge folios of shared memory (docs/behaviour Q.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeSwitch {
    /// `shmem_enabled`: memfd, shared anonymous memory and System V segments.
    ShmemEnabled,
    /// The option `huge=` of a mounted tmpfs; never by default.
    Mount,
}

/// Whether a file has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileName {
    /// It has one.
    Named,
    /// It has none: a memfd, or unlinked. In memory, it is anonymous shared memory to the areas that
    /// map it from then on (Q.1.3).
    Unnamed,
    /// It has none, and backs a shared anonymous mapping: freed with its last mapping.
    AnonShared,
}

/// A file's position in the queue of dirty files: its group, and when it entered.
pub(crate) type Turn = (GroupId, u64);

/// The page cache of one file.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The folio at each index.
    pub tree: Tree,
    /// File size in bytes.
    pub size_bytes: u64,
    /// File size in storage: up to the last byte written back, or the size set by a truncation.
    pub(crate) stored_bytes: u64,
    /// Orders that the filesystem allows.
    pub orders: OrderRange,
    /// The base page size if the smallest order is a preference rather than a limit (K.1.4).
    pub soft_min: Option<PageSize>,
    /// Orders that reads and writes can use, limited by a control (K.1.4).
    pub control: FileOrders,
    /// Whether the pages are shared memory (tmpfs, memfd) instead of a disk file.
    pub is_shmem: bool,
    /// Shared memory: nodes that its pages come from (mbind).
    pub policies: PolicyRanges,
    /// Shared memory: the setting that enables huge folios.
    pub huge_switch: HugeSwitch,
    /// Whether it has a name.
    pub name: FileName,
    /// Whether nothing is in storage: an absent page reads as zeroes, and a fault fills it with a
    /// zeroed folio (Q.2).
    pub is_zero_filled: bool,
    /// Folios larger than the filesystem's maximum: made by collapse (H.3.1), or for shared memory if
    /// its filesystem had no large folios when the file was made (Q.2.2).
    pub nr_above_max: u64,
    /// Its filesystem's traits.
    pub disk: Disk,
    /// Its device's limits.
    pub device: Device,
    /// Its pages without data in storage.
    pub holes: Holes,
    /// The file's extents and reservations, if the filesystem cuts writes by them (XFS).
    pub reservations: Option<Reservations>,
    /// Huge folios of a mapping without large folios, and the file's writers.
    pub gate: Gate,
    pub(crate) shadows: Shadows,
    /// Pages of shared memory in swap space.
    pub swapped: BTreeMap<PageIndex, SwapSlot>,
    pub(crate) dirty: BTreeSet<PageIndex>,
    pub(crate) dirty_turn: Option<Turn>,
}

impl Mapping {
    /// A file of `size_bytes` with nothing cached.
    #[must_use]
    pub fn new(size_bytes: u64, orders: OrderRange, device: Device) -> Self {
        Self {
            tree: Tree::new(),
            size_bytes,
            stored_bytes: size_bytes,
            orders,
            soft_min: None,
            control: FileOrders::KERNEL,
            is_shmem: false,
            policies: PolicyRanges::default(),
            huge_switch: HugeSwitch::ShmemEnabled,
            name: FileName::Named,
            is_zero_filled: false,
            nr_above_max: 0,
            disk: Disk::OTHER,
            device,
            holes: Holes::default(),
            reservations: None,
            gate: Gate::default(),
            shadows: Shadows::default(),
            swapped: BTreeMap::new(),
            dirty: BTreeSet::new(),
            dirty_turn: None,
        }
    }

    /// Pages in the file; the last one can be partial.
    #[must_use]
    pub fn nr_file_pages(&self, page: PageSize) -> u64 {
        page.pages_in(self.size_bytes)
    }

    /// Index of the last page of the file; `None` for an empty file.
    #[must_use]
    pub fn last_index(&self, page: PageSize) -> Option<PageIndex> {
        self.nr_file_pages(page).checked_sub(1).map(PageIndex)
    }

    /// Evicted pages of `[first, end)`: in swap space, or with a shadow (H.4.1).
    #[must_use]
    pub fn nr_evicted(&self, PageRange { first, end }: PageRange) -> u64 {
        let nr_swapped = self.swapped.range(PageIndex(first)..PageIndex(end)).count() as u64;
        nr_swapped + self.shadows.nr_in(PageRange { first, end })
    }

    /// Pages of a range that must be read from storage: those inside the file with data.
    #[must_use]
    pub fn nr_stored(&self, PageRange { first, end }: PageRange, page: PageSize) -> u64 {
        let range = PageRange { first, end: end.min(self.nr_file_pages(page)) };
        if self.is_zero_filled || range.first >= range.end {
            return 0;
        }
        range.end - range.first - self.holes.nr_in(range)
    }

    /// Pages in the mapping's smallest folio.
    #[must_use]
    pub fn min_pages(&self) -> u64 {
        self.orders.min.nr_pages()
    }

    /// Smallest order that a folio of this mapping can have.
    #[must_use]
    pub fn hard_min(&self) -> Order {
        if self.soft_min.is_some() { Order::ZERO } else { self.orders.min }
    }

    /// Rounds `index` down to a multiple of the smallest folio.
    #[must_use]
    pub fn align_down(&self, index: u64) -> u64 {
        self.orders.min.round_down(index)
    }

    /// Whether the gate keeps a folio of `order` apart from writers: a large folio of a disk file
    /// whose filesystem makes none (H.3.1).
    #[must_use]
    pub fn is_gated(&self, order: Order) -> bool {
        order > self.orders.max && !self.orders.is_large() && !self.is_shmem
    }

    /// Whether it is shared memory on a mounted tmpfs. Memfd, shared anonymous memory and System V
    /// segments are not.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.huge_switch == HugeSwitch::Mount
    }

    /// Whether it backs a shared anonymous mapping.
    #[must_use]
    pub fn is_anon_shared(&self) -> bool {
        self.name == FileName::AnonShared
    }

    /// Counts a new folio of `order`, which the gate has already admitted.
    pub(crate) fn count_inserted(&mut self, order: Order) {
        self.nr_above_max += u64::from(order > self.orders.max);
    }

    pub(crate) fn count_removed(&mut self, order: Order) {
        self.nr_above_max -= u64::from(order > self.orders.max);
        if self.is_gated(order) {
            self.gate.remove_thp();
        }
    }

    /// Checks the invariants of the mapping, its tree and its reservations.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        let mut nr_larger = 0;
        for entry in self.tree.iter() {
            let (index, order) = (entry.index, entry.order);
            if !order.is_aligned(index.0) {
                return Err(Violation::I1 { index, order });
            }
            nr_larger += u64::from(order > self.orders.max);
            if order < self.hard_min() || nr_larger > self.nr_above_max {
                return Err(Violation::I3 { index, order, range: self.orders });
            }
        }
        if let Some(exec) = self.control.exec.filter(|&exec| exec > self.orders.max) {
            return Err(Violation::I4 { exec, range: self.orders });
        }
        let nr_thps = u64::from(self.gate.nr_thps());
        let nr_gated = if self.is_shmem { 0 } else { nr_larger };
        for (counted, found) in [(self.nr_above_max, nr_larger), (nr_thps, nr_gated)] {
            if counted != found {
                return Err(Violation::Collapsed { counted, found });
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
    #[error("I1: the folio of {order} at index {index} is not naturally aligned")]
    I1 {
        /// Index of its first page.
        index: PageIndex,
        /// The folio's order.
        order: Order,
    },
    /// Two folios share an index, or a slot names a folio that does not cover it.
    #[error("I2: the slot at index {index} belongs to no folio")]
    I2 {
        /// Index that two folios claim, or that none covers.
        index: PageIndex,
    },
    /// A control that names an order the mapping does not have.
    #[error("I4: the control marks {exec} as exec, but it is outside {range:?}")]
    I4 {
        /// The order marked exec.
        exec: Order,
        /// Orders that the mapping allows.
        range: OrderRange,
    },
    /// Reservations out of order.
    #[error("the reservation at block {block} overlaps or touches another, or is empty")]
    Reservation {
        /// First block of the second reservation.
        block: u64,
    },
    /// A wrong count of collapsed folios.
    #[error("I3: {counted} folios are counted as collapsed, but {found} exist")]
    Collapsed {
        /// The counter.
        counted: u64,
        /// Folios larger than the filesystem makes.
        found: u64,
    },
    /// An order that the filesystem does not allow.
    #[error("I3: the folio of {order} at index {index} is outside {range:?}")]
    I3 {
        /// Index of its first page.
        index: PageIndex,
        /// The folio's order.
        order: Order,
        /// Orders that the mapping allows.
        range: OrderRange,
    },
}
