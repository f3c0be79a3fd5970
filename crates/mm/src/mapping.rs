//! The page cache of one file: which folio holds which index.
//!
//! ```text
//!   index   0    1    2    3    4    5    6    7    8 ...
//!         +----+----+----+----+----+----+----+----+---
//!         | o0 | o0 | order 1 | order 2           | -      one folio never crosses a multiple
//!         +----+----+----+----+----+----+----+----+---     of its own size
//! ```
//!
//! Owns the tree of folios ([`tree`]), the searches over it ([`search`]), what a filesystem does
//! ([`disk`]), space that it reserves for writes ([`reserve`]), a file's writers against its huge
//! folios ([`gate`]), what evicted pages left (`shadows`) and what is said about one file
//! ([`Mapping`]). Does not allocate folios and starts no I/O.
//!
//! Invariants (docs/behaviour L.1):
//! - I1: a folio's index is a multiple of its number of pages.
//! - I2: folios do not overlap.
//! - I3: an order lies within the mapping's [`OrderRange`], except for the
//!   [`Mapping::nr_collapsed`] folios that collapse made, and base pages where the smallest order is
//!   a preference.
//! - I4: a control names only exec orders that the mapping has.

pub mod disk;
pub mod gate;
pub mod reserve;
pub mod search;
pub(crate) mod shadows;
pub mod tree;

use crate::mapping::gate::Gate;
use crate::rules::OrderRange;
use crate::rules::sizes::FileOrders;
use crate::units::PageRange;
use crate::units::{GroupId, Order, PageIndex, PageSize, SwapSlot};
use disk::Disk;
use reserve::Reservations;
use shadows::Shadows;
use std::collections::{BTreeMap, BTreeSet};
use tree::Tree;

/// What speaks for huge folios of shared memory (docs/behaviour H.6.5 d).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeSwitch {
    /// `shmem_enabled`: memfd and shared anonymous memory.
    ShmemEnabled,
    /// The option `huge=` of a mounted tmpfs, never by default.
    Mount,
}

/// Place of a file among those that have dirty folios: its group, and when it got there.
pub(crate) type Turn = (GroupId, u64);

/// The page cache of one file.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Which folio holds which index.
    pub tree: Tree,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Orders the filesystem allows here.
    pub orders: OrderRange,
    /// Base page, where the smallest of these orders is a preference rather than a limit (K.1.4).
    pub soft_min: Option<PageSize>,
    /// Those of them that reads and writes may use, where a control says so (K.1.4).
    pub control: FileOrders,
    /// Whether the pages belong to shared memory (tmpfs, memfd) rather than to a disk file.
    pub is_shmem: bool,
    /// Of shared memory: what speaks for its huge folios.
    pub huge_switch: HugeSwitch,
    /// Whether it is the memory behind a shared anonymous mapping: gone with its last mapping.
    pub is_anon_shared: bool,
    /// Whether nothing is in storage: an absent page is a page of zeroes, and a fault fills it with
    /// a base page (`shmem_enabled` = never).
    pub is_zero_filled: bool,
    /// Folios larger than the filesystem makes itself: collapse put them here (H.3.1).
    pub nr_collapsed: u64,
    /// What its filesystem does.
    pub disk: Disk,
    /// What the file has and what is reserved for written data, on a filesystem that cuts writes by it (XFS).
    pub reservations: Option<Reservations>,
    /// Huge folios of a mapping without large folios, and who has the file open for writing.
    pub gate: Gate,
    /// What evicted pages left behind.
    pub(crate) shadows: Shadows,
    /// Pages of shared memory that are in swap space.
    pub swapped: BTreeMap<PageIndex, SwapSlot>,
    /// First pages of the folios that differ from storage.
    pub(crate) dirty: BTreeSet<PageIndex>,
    /// Since when there are any, among all files.
    pub(crate) dirty_turn: Option<Turn>,
}

impl Mapping {
    /// A file of `size_bytes` with nothing cached.
    #[must_use]
    pub fn new(size_bytes: u64, orders: OrderRange) -> Self {
        Self {
            tree: Tree::new(),
            size_bytes,
            orders,
            soft_min: None,
            control: FileOrders::KERNEL,
            is_shmem: false,
            huge_switch: HugeSwitch::ShmemEnabled,
            is_anon_shared: false,
            is_zero_filled: false,
            nr_collapsed: 0,
            disk: Disk::OTHER,
            reservations: None,
            gate: Gate::new(),
            shadows: Shadows::default(),
            swapped: BTreeMap::new(),
            dirty: BTreeSet::new(),
            dirty_turn: None,
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

    /// Pages of `[first, end)` that were evicted: in swap space, or remembered by a shadow (H.4.1).
    #[must_use]
    pub fn nr_evicted(&self, PageRange { first, end }: PageRange) -> u64 {
        let nr_swapped = self.swapped.range(PageIndex(first)..PageIndex(end)).count() as u64;
        nr_swapped + self.shadows.nr_in(PageRange { first, end })
    }

    /// Smallest folio of this mapping in pages.
    #[must_use]
    pub fn min_pages(&self) -> u64 {
        self.orders.min.nr_pages()
    }

    /// Order below which no folio of this mapping can be.
    #[must_use]
    pub fn hard_min(&self) -> Order {
        if self.soft_min.is_some() { Order::ZERO } else { self.orders.min }
    }

    /// `index` rounded down to where a folio of the smallest order may start.
    #[must_use]
    pub fn align_down(&self, index: u64) -> u64 {
        self.orders.min.round_down(index)
    }

    /// Whether a folio of `order` here is one of those that the gate keeps apart from writers: a
    /// large one of a disk file whose filesystem makes none (H.3.1).
    #[must_use]
    pub fn is_gated(&self, order: Order) -> bool {
        order > self.orders.max && !self.orders.is_large() && !self.is_shmem
    }

    /// A folio of `order`, which the gate let in if it had to, was put here by collapse.
    pub(crate) fn collapsed(&mut self, order: Order) {
        self.nr_collapsed += u64::from(order > self.orders.max);
    }

    /// A folio of `order` is here no more.
    pub(crate) fn forgot(&mut self, order: Order) {
        self.nr_collapsed -= u64::from(order > self.orders.max);
        if self.is_gated(order) {
            self.gate.remove_thp();
        }
    }

    /// Checks I1 .. I3 and the tree's own invariants; `order_of` gives a folio's index and order.
    ///
    /// # Errors
    /// Names the first folio that breaks an invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        let mut nr_larger = 0;
        for entry in self.tree.iter() {
            let (index, order) = (entry.index, entry.order);
            if !order.is_aligned(index.0) {
                return Err(Violation::I1 { index, order });
            }
            nr_larger += u64::from(order > self.orders.max);
            if order < self.hard_min() || nr_larger > self.nr_collapsed {
                return Err(Violation::I3 { index, order, range: self.orders });
            }
        }
        if let Some(exec) = self.control.exec.filter(|&exec| exec > self.orders.max) {
            return Err(Violation::I4 { exec, range: self.orders });
        }
        let nr_thps = u64::from(self.gate.nr_thps());
        let nr_gated = if self.is_shmem { 0 } else { nr_larger };
        for (counted, found) in [(self.nr_collapsed, nr_larger), (nr_thps, nr_gated)] {
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
    #[error("I1: folio of {order} at index {index} is not naturally aligned")]
    I1 {
        /// Index of its first page.
        index: PageIndex,
        /// log2 of its pages.
        order: Order,
    },
    /// Two folios share an index, or a slot names a folio that does not cover it.
    #[error("I2: slot at index {index} belongs to no folio")]
    I2 {
        /// Index that two folios claim, or that none covers.
        index: PageIndex,
    },
    /// A control that asks for what there is not.
    #[error("I4: the control marks {exec} exec, outside {range:?}")]
    I4 {
        /// The order marked exec.
        exec: Order,
        /// What the mapping allows.
        range: OrderRange,
    },
    /// Reservations out of order.
    #[error("the reservation at block {block} overlaps or touches another, or is empty")]
    Reservation {
        /// First block of the second one.
        block: u64,
    },
    /// A count of collapsed folios that are not there.
    #[error("I3: {counted} folios are counted as collapsed, {found} are there")]
    Collapsed {
        /// Folios that are counted as collapsed.
        counted: u64,
        /// Folios larger than the filesystem makes.
        found: u64,
    },
    /// An order the filesystem does not allow.
    #[error("I3: folio of {order} at index {index} is outside {range:?}")]
    I3 {
        /// Index of its first page.
        index: PageIndex,
        /// log2 of its pages.
        order: Order,
        /// What the mapping allows.
        range: OrderRange,
    },
}
