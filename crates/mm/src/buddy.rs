//! The buddy allocator for one zone of page frames.
//!
//! Owns the free page frames, their blocks and lists (docs/behaviour I.1-I.4, I.6, I.9, I.10). Does
//! not own the contents of allocated frames, reclaim or compaction.
//!
//! ```text
//!  pfn  0       4       8   10  11  12          16
//!       | o2 U  | ##### |o1 |o0 |###| o2 M      |     block orders, migrate types, # allocated
//!
//!  list[order 2][Movable]  head -> 12 -> ..        LIFO: freed and split-off blocks go to the head
//! ```
//! Reading order: `migrate`, `config`, `free_list`, `bits`, `allocate`, `fallback`, `release`,
//! `watermark`, `index`, `random`, `fragment`, `age`, `validate`.
//!
//! Counting equation: `nr_free + nr_allocated == nr_pages`.
//!
//! Invariants:
//! - I1: a page frame is either free (in exactly one free block) or allocated.
//! - I2: a free block is naturally aligned, inside the zone, and not larger than `max_order`.
//! - I3: the buddy of a free block below `max_order` is not a free block of the same order.
//! - I4: a free block is on the list of its pageblocks' type.
//! - I5: the counters agree with the lists, and list links are mutual.
//!
//! Memory: 9 bytes of zeroed state per page frame, backed by the host only once touched. Blocks of
//! `max_order` that were never allocated have no state (`FreeLists::fresh`), so a new 64 GiB zone
//! costs almost nothing. Lists are linked, because allocation takes from the head and coalescing
//! removes from the middle.
//!
//! Differs: no per-CPU lists (I.5), so each free coalesces immediately. Linux holds back a batch of
//! order 0..3 and PMD-order blocks on each CPU; the batch sizes depend on the machine.

#![expect(
    clippy::cast_possible_truncation,
    reason = "page frame numbers are below 2^32, checked when a zone is made"
)]

mod age;
mod allocate;
mod bits;
mod config;
mod fallback;
mod fragment;
mod free_list;
mod index;
mod migrate;
mod random;
mod validate;
mod watermark;

#[cfg(test)]
mod tests;

pub use age::{Ageing, RoundOfAgeing};
pub(crate) use config::has_room;
pub use config::{BuddyConfig, BuddyError};
pub use fragment::Fragmentation;
pub use migrate::MigrateType;
pub use validate::Violation;
pub use watermark::WatermarkRefusal;

use crate::units::{Order, Pfn};
use bits::PageBits;
use free_list::FreeLists;

/// Bytes of state per page frame: the lists' 9, and two bits, rounded up.
const BYTES_OF_PAGE: u64 = 10;

/// Statistics of the fallback rules (docs/behaviour I.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FallbackStats {
    /// Pageblocks retagged with the requester's type.
    pub nr_claimed_pageblocks: u64,
    /// Blocks taken from another type without retagging.
    pub nr_stolen_blocks: u64,
}

/// One zone of page frames `0 .. nr_pages`.
#[derive(Clone, Debug)]
pub struct Buddy {
    lists: FreeLists,
    allocated: PageBits,
    /// Allocated page frames that were requested as movable: claiming counts them as compatible.
    movable: PageBits,
    pageblocks: Vec<MigrateType>,
    nr_pages: u64,
    nr_allocated: u64,
    max_order: Order,
    pageblock_order: Order,
    fallbacks: FallbackStats,
}

impl Buddy {
    /// A zone with all page frames free and movable, except the pinned ones of
    /// [`BuddyConfig::fragmentation`]. Lists are in ascending page frame order, as after boot.
    ///
    /// ```
    /// use largefolio_mm::buddy::{Buddy, BuddyConfig, MigrateType};
    /// use largefolio_mm::units::{Order, PageSize, Pfn};
    ///
    /// let mut buddy = Buddy::new(BuddyConfig::new(PageSize::K4, 1 << 20)).unwrap(); // 4 GiB
    /// let pfn = buddy.alloc(Order::new(9), MigrateType::Movable).unwrap();
    /// assert_eq!((pfn, buddy.nr_free_pages()), (Pfn(0), (1 << 20) - 512));
    /// // The upper half of the split block is on the list of order 9 now (I.2).
    /// assert_eq!(buddy.nr_free_of(Order::new(9)), 1);
    /// buddy.free(pfn, Order::new(9));
    /// assert_eq!(buddy.nr_free_of(Order::new(9)), 0);
    /// ```
    ///
    /// # Errors
    /// If the configuration is out of range, the host has no memory for the zone's state, or the
    /// fragmentation target cannot be met.
    pub fn new(config: BuddyConfig) -> Result<Self, BuddyError> {
        config.check()?;
        config.check_room()?;
        let nr_pageblocks = config.nr_pages.div_ceil(config.pageblock_order.nr_pages());
        let mut buddy = Self {
            lists: FreeLists::new(config.nr_pages, config.max_order),
            allocated: PageBits::new(config.nr_pages),
            movable: PageBits::new(config.nr_pages),
            pageblocks: vec![MigrateType::Movable; nr_pageblocks as usize],
            nr_pages: config.nr_pages,
            nr_allocated: 0,
            max_order: config.max_order,
            pageblock_order: config.pageblock_order,
            fallbacks: FallbackStats::default(),
        };
        match config.fragmentation {
            None => buddy.free_at_boot(),
            Some(fragmentation) => buddy.fragment_at_boot(fragmentation)?,
        }
        Ok(buddy)
    }

    /// Largest order that can be allocated.
    #[must_use]
    pub const fn max_order(&self) -> Order {
        self.max_order
    }

    /// Order of a pageblock.
    #[must_use]
    pub const fn pageblock_order(&self) -> Order {
        self.pageblock_order
    }

    /// Page frames in the zone.
    #[must_use]
    pub const fn nr_pages(&self) -> u64 {
        self.nr_pages
    }

    /// Free page frames.
    #[must_use]
    pub const fn nr_free_pages(&self) -> u64 {
        self.nr_pages - self.nr_allocated
    }

    /// Allocated page frames, including pinned ones.
    #[must_use]
    pub const fn nr_allocated_pages(&self) -> u64 {
        self.nr_allocated
    }

    /// Free blocks of exactly `order`, of all types.
    #[must_use]
    pub fn nr_free_of(&self, order: Order) -> u64 {
        MigrateType::ALL.into_iter().map(|of| self.lists.nr_blocks(order, of)).sum()
    }

    /// Type of the pageblock of `pfn`.
    ///
    /// # Panics
    /// If `pfn` is not in the zone.
    #[must_use]
    pub fn pageblock_type(&self, pfn: Pfn) -> MigrateType {
        self.pageblocks[(pfn.0 >> self.pageblock_order.get()) as usize]
    }

    /// Statistics of the fallback rules so far.
    #[must_use]
    pub const fn fallback_stats(&self) -> FallbackStats {
        self.fallbacks
    }

    fn orders(&self) -> impl DoubleEndedIterator<Item = Order> + use<> {
        (0..=self.max_order.get()).map(Order::new)
    }
}
