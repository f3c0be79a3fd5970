//! Fallback to other migrate types (docs/behaviour I.3, as in 6.15 and later).
//!
//! Corresponds to: `__rmqueue_claim`, `__rmqueue_steal`, `find_suitable_fallback`.
//!
//! First *claim*: from the largest order downwards, take the first donor block and, if the rules
//! allow, its whole pageblock. If no claim succeeds, *steal*: take the smallest sufficient block
//! from any donor; the block's pageblock keeps its type.

use crate::units::Order;

use super::{Buddy, MigrateType};

impl Buddy {
    pub(super) fn claim(&mut self, order: Order, to: MigrateType) -> Option<u64> {
        for donor_order in (order.get()..=self.max_order.get()).rev().map(Order::new) {
            let Some(donor) = self.donor_of(donor_order, to) else { continue };
            if !self.may_claim(donor_order, to) {
                return None;
            }
            if let Some(pfn) = self.try_claim(donor_order, donor, order, to) {
                return Some(pfn);
            }
        }
        None
    }

    pub(super) fn steal(&mut self, order: Order, to: MigrateType) -> Option<u64> {
        for donor_order in (order.get()..=self.max_order.get()).map(Order::new) {
            if let Some(donor) = self.donor_of(donor_order, to) {
                let pfn = self.lists.pop_front(donor_order, donor)?;
                self.split(pfn, donor_order, order, donor);
                self.fallbacks.nr_stolen_blocks += 1;
                return Some(pfn);
            }
        }
        None
    }

    fn donor_of(&self, order: Order, to: MigrateType) -> Option<MigrateType> {
        to.donors().into_iter().find(|&donor| self.lists.has(order, donor))
    }

    /// Whether a donor block of this order justifies claiming a pageblock: it is at least half the
    /// pageblock order, or the requester would otherwise fragment many movable pageblocks.
    fn may_claim(&self, donor_order: Order, to: MigrateType) -> bool {
        donor_order.get() >= self.pageblock_order.get() / 2 || to != MigrateType::Movable
    }

    fn try_claim(
        &mut self,
        donor_order: Order,
        donor: MigrateType,
        order: Order,
        to: MigrateType,
    ) -> Option<u64> {
        if donor_order >= self.pageblock_order {
            let pfn = self.lists.pop_front(donor_order, donor)?;
            self.retag(pfn, donor_order, to);
            self.split(pfn, donor_order, order, to);
            return Some(pfn);
        }
        let head = self.lists.head(donor_order, donor)?;
        let pageblock = self.pageblock_order.round_down(head);
        if !self.is_mostly_compatible(pageblock, donor, to) {
            return None;
        }
        self.move_free_blocks(pageblock, to);
        self.retag(pageblock, self.pageblock_order, to);
        self.take_smallest(order, to)
    }

    /// Whether free and compatible pages fill at least half of the pageblock. A pageblock that
    /// extends beyond the zone is never claimed.
    fn is_mostly_compatible(&self, pageblock: u64, donor: MigrateType, to: MigrateType) -> bool {
        let nr = self.pageblock_order.nr_pages();
        if pageblock + nr > self.nr_pages {
            return false;
        }
        let nr_free = nr - self.allocated.count(pageblock, self.pageblock_order);
        let nr_movable = self.movable.count(pageblock, self.pageblock_order);
        let nr_compatible = match (donor, to) {
            (_, MigrateType::Movable) => nr_movable,
            (MigrateType::Movable, _) => nr - nr_free - nr_movable,
            _ => 0,
        };
        nr_free + nr_compatible >= nr / 2
    }

    /// Moves the free blocks of a pageblock to the tails of the lists of `to`, in page frame order,
    /// so that a claimed block is not allocated next.
    fn move_free_blocks(&mut self, pageblock: u64, to: MigrateType) {
        let end = pageblock + self.pageblock_order.nr_pages();
        let mut pfn = pageblock;
        while pfn < end {
            let Some((order, from)) = self.lists.block_at(pfn) else {
                pfn += 1;
                continue;
            };
            self.lists.remove(pfn, order, from);
            self.lists.push_back(pfn, order, to);
            pfn += order.nr_pages();
        }
    }

    fn retag(&mut self, pfn: u64, order: Order, to: MigrateType) {
        self.set_pageblock_types(pfn, order, to);
        self.fallbacks.nr_claimed_pageblocks += 1 << (order.get() - self.pageblock_order.get());
    }

    pub(super) fn set_pageblock_types(&mut self, pfn: u64, order: Order, to: MigrateType) {
        let first = (pfn >> self.pageblock_order.get()) as usize;
        let nr = 1 << (order.get() - self.pageblock_order.get());
        self.pageblocks[first..first + nr].fill(to);
    }
}
