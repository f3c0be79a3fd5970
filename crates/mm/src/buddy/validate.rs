//! Checks a zone's invariants.

use thiserror::Error;

use crate::units::{Order, Pfn};

use super::bits::PageBits;
use super::{Buddy, MigrateType};

/// A broken invariant of a [`Buddy`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A page frame that is free twice, or free and allocated.
    #[error("I1: block {order} at {pfn} overlaps another block or an allocation")]
    I1 {
        /// First page frame of the block.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// A misplaced block.
    #[error("I2: block {order} at {pfn} is not aligned or not in the zone")]
    I2 {
        /// First page frame of the block.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// Two free buddies that were not merged.
    #[error("I3: block {order} at {pfn} and its buddy are both free")]
    I3 {
        /// First page frame of the lower block.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// A block on a list that does not match its pageblocks' type.
    #[error(
        "I4: block {order} at {pfn} is on the list for {listed:?}, but its pageblocks have \
         another type"
    )]
    I4 {
        /// First page frame of the block.
        pfn: Pfn,
        /// The block's order.
        order: Order,
        /// The type of its list.
        listed: MigrateType,
    },
    /// A counter or link that disagrees with the lists.
    #[error("I5: {what} is {counted}, but the lists contain {found}")]
    I5 {
        /// The counter or link.
        what: &'static str,
        /// Its value.
        counted: u64,
        /// The value found by a scan.
        found: u64,
    },
}

impl Buddy {
    /// Checks every invariant. The cost grows with the zone.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        let mut seen = PageBits::new(self.nr_pages);
        let mut nr_free = 0;
        for order in self.orders() {
            for of in MigrateType::ALL {
                self.check_links(order, of)?;
                for pfn in self.lists.blocks(order, of) {
                    self.check_block(pfn, order, of)?;
                    if seen.count(pfn, order) + self.allocated.count(pfn, order) > 0 {
                        return Err(Violation::I1 { pfn: Pfn(pfn), order });
                    }
                    seen.set(pfn, order);
                    nr_free += order.nr_pages();
                }
            }
        }
        let count = |bits: &PageBits| (0..self.nr_pages).filter(|&pfn| bits.get(pfn)).count();
        same("nr_free", self.nr_free_pages(), nr_free)?;
        same("nr_allocated", self.nr_allocated, count(&self.allocated) as u64)?;
        same("nr_free + nr_allocated", self.nr_pages, nr_free + self.nr_allocated)
    }

    fn check_links(&self, order: Order, of: MigrateType) -> Result<(), Violation> {
        let nr_blocks = self.lists.nr_blocks(order, of);
        same("mutual links", 1, u64::from(self.lists.is_linked(order, of)))?;
        same("nr_blocks", nr_blocks, self.lists.blocks(order, of).count() as u64)?;
        same("nonempty", u64::from(self.lists.has(order, of)), u64::from(nr_blocks > 0))
    }

    fn check_block(&self, pfn: u64, order: Order, of: MigrateType) -> Result<(), Violation> {
        if !order.is_aligned(pfn) || pfn + order.nr_pages() > self.nr_pages {
            return Err(Violation::I2 { pfn: Pfn(pfn), order });
        }
        let buddy = pfn ^ order.nr_pages();
        if order < self.max_order && self.lists.buddy_at(buddy, order).is_some() {
            return Err(Violation::I3 { pfn: Pfn(pfn.min(buddy)), order });
        }
        let step = self.pageblock_order.nr_pages() as usize;
        let mut pageblocks = (pfn..pfn + order.nr_pages()).step_by(step);
        if pageblocks.any(|pfn| self.pageblock_type(Pfn(pfn)) != of) {
            return Err(Violation::I4 { pfn: Pfn(pfn), order, listed: of });
        }
        Ok(())
    }
}

fn same(what: &'static str, counted: u64, found: u64) -> Result<(), Violation> {
    if counted == found { Ok(()) } else { Err(Violation::I5 { what, counted, found }) }
}
