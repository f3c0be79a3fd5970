//! The configuration of a zone.

use thiserror::Error;

use crate::units::{Order, PageSize};

use super::BYTES_OF_PAGE;
use super::fragment::Fragmentation;
use super::free_list::FreeLists;

/// Configuration of a [`super::Buddy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuddyConfig {
    /// Page frames: 1 ..= 2^32 - 1 (16 TiB of 4 KiB pages).
    pub nr_pages: u64,
    /// Largest block order, `MAX_PAGE_ORDER` (docs/behaviour 0.4).
    pub max_order: Order,
    /// Order of a pageblock, at most `max_order` (docs/behaviour 0.4; 7.2 allows less).
    pub pageblock_order: Order,
    /// Page frames pinned from the start; `None` = all free.
    pub fragmentation: Option<Fragmentation>,
}

/// Why a zone cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuddyError {
    /// Memory is empty or too large.
    #[error(
        "a zone has 1 to {} page frames, not {nr_pages}; change the memory size, which is in bytes",
        u32::MAX
    )]
    NrPages {
        /// The requested number.
        nr_pages: u64,
    },
    /// The host has no memory for the zone's state.
    #[error(
        "the model needs {} MiB of state for {nr_pages} page frames, but this host has too little \
         memory; give the machine less memory",
        bytes >> 20
    )]
    NoRoom {
        /// The requested number.
        nr_pages: u64,
        /// State for all of them.
        bytes: u64,
    },
    /// Incompatible orders.
    #[error("orders must satisfy pageblock {pageblock_order} <= max {max_order} <= {limit}")]
    Orders {
        /// Requested pageblock order.
        pageblock_order: Order,
        /// Requested largest order.
        max_order: Order,
        /// Largest possible `max_order`.
        limit: Order,
    },
    /// No placement of pinned pages meets the fragmentation target.
    #[error(
        "memory cannot be fragmented to {used_permille} permille used and {unusable_permille} \
         permille unusable at {order}: {why}"
    )]
    Fragmentation {
        /// Share of memory to pin.
        used_permille: u32,
        /// Target index.
        unusable_permille: u32,
        /// Order of the target.
        order: Order,
        /// What to change.
        why: &'static str,
    },
}

/// Tests the allocation first, because a failed one of zeroed memory would abort.
pub(crate) fn has_room(bytes: u64) -> bool {
    let mut room: Vec<u8> = Vec::new();
    let is_there = usize::try_from(bytes).is_ok_and(|nr| room.try_reserve_exact(nr).is_ok());
    // Otherwise, the compiler removes the unused allocation.
    std::hint::black_box(&room);
    is_there
}

impl BuddyConfig {
    /// `nr_pages` page frames with the orders of an arm64 or x86-64 kernel for `page`.
    #[must_use]
    pub fn new(page: PageSize, nr_pages: u64) -> Self {
        let max_order = page.max_page_order();
        let pageblock_order = page.pmd_order().min(max_order);
        Self { nr_pages, max_order, pageblock_order, fragmentation: None }
    }

    pub(super) fn check_room(&self) -> Result<(), BuddyError> {
        let (nr_pages, bytes) = (self.nr_pages, self.nr_pages * BYTES_OF_PAGE);
        if has_room(bytes) { Ok(()) } else { Err(BuddyError::NoRoom { nr_pages, bytes }) }
    }

    pub(super) fn check(&self) -> Result<(), BuddyError> {
        if self.nr_pages == 0 || self.nr_pages > u64::from(u32::MAX) {
            return Err(BuddyError::NrPages { nr_pages: self.nr_pages });
        }
        if self.pageblock_order > self.max_order || self.max_order > FreeLists::MAX_ORDER_LIMIT {
            return Err(BuddyError::Orders {
                pageblock_order: self.pageblock_order,
                max_order: self.max_order,
                limit: FreeLists::MAX_ORDER_LIMIT,
            });
        }
        Ok(())
    }
}
