//! Allocation (docs/behaviour I.2).
//!
//! Corresponds to: `__rmqueue_smallest`, `expand`, `__free_one_page`.
//!
//! Freeing and coalescing (docs/behaviour I.4).

use crate::buddy::{Buddy, MigrateType};
use crate::units::{Order, Pfn};

impl Buddy {
    /// Allocates `2^order` page frames for pages of type `migrate_type`: the head of the smallest
    /// sufficient list of that type, otherwise by fallback (I.3). Returns `None` if no block is
    /// large enough. Uses only blocks that are free now (I.7) and ignores watermarks; see
    /// [`Buddy::try_alloc`].
    ///
    /// # Panics
    /// If `order` exceeds [`Buddy::max_order`].
    pub fn alloc(&mut self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        assert!(order <= self.max_order, "{order} is beyond max_order {}", self.max_order);
        let pfn = self
            .take_smallest(order, migrate_type)
            .or_else(|| self.claim(order, migrate_type))
            .or_else(|| self.steal(order, migrate_type))?;
        debug_assert!(!self.allocated.get(pfn), "I1: {pfn} was both free and allocated");
        self.allocated.set(pfn, order);
        if migrate_type == MigrateType::Movable {
            self.movable.set(pfn, order);
        }
        self.nr_allocated += order.nr_pages();
        Some(Pfn(pfn))
    }

    /// Whether a block of at least `order` is free.
    #[must_use]
    pub fn has_block(&self, order: Order) -> bool {
        MigrateType::ALL.into_iter().any(|of| self.lists.smallest(order, of).is_some())
    }

    /// Allocates `2^order` page frames for a migrated page, from a free block that starts in
    /// `[first, end)` and is smaller than `below` (I.11).
    pub(crate) fn take_in(
        &mut self,
        first: u64,
        end: u64,
        order: Order,
        below: Order,
    ) -> Option<Pfn> {
        let mut at = first;
        while at < end.min(self.nr_pages) {
            let Some((size, of)) = self.lists.block_at(at) else {
                at += 1;
                continue;
            };
            if size >= order && size < below {
                self.lists.remove(at, size, of);
                self.split(at, size, order, of);
                self.allocated.set(at, order);
                self.movable.set(at, order);
                self.nr_allocated += order.nr_pages();
                return Some(Pfn(at));
            }
            at += size.nr_pages();
        }
        None
    }

    pub(super) fn take_smallest(&mut self, order: Order, of: MigrateType) -> Option<u64> {
        let found_order = self.lists.smallest(order, of)?;
        let pfn = self.lists.pop_front(found_order, of)?;
        self.split(pfn, found_order, order, of);
        Some(pfn)
    }

    /// Keeps the lowest `2^to` page frames. Upper halves go to the head of the lower list.
    pub(super) fn split(&mut self, pfn: u64, from: Order, to: Order, of: MigrateType) {
        for half in (to.get()..from.get()).rev().map(Order::new) {
            self.lists.push_front(pfn + half.nr_pages(), half, of);
        }
    }
}

impl Buddy {
    /// Frees `2^order` page frames and merges them with their free buddies.
    ///
    /// Any naturally aligned part of an allocation can be freed, in any order: a split folio frees
    /// its parts one by one.
    ///
    /// # Panics
    /// If the range is not aligned, not in the zone, or not allocated (double free).
    pub fn free(&mut self, pfn: Pfn, order: Order) {
        let Pfn(pfn) = pfn;
        let is_inside = order <= self.max_order && pfn + order.nr_pages() <= self.nr_pages;
        assert!(
            is_inside && order.is_aligned(pfn),
            "cannot free {order} at {pfn}: there is no such block"
        );
        assert!(
            self.allocated.is_all_set(pfn, order),
            "cannot free {order} at {pfn}: it is already free"
        );
        self.allocated.clear(pfn, order);
        self.movable.clear(pfn, order);
        self.nr_allocated -= order.nr_pages();
        self.coalesce(pfn, order);
    }

    /// Merges a block with its buddy (`pfn xor 2^k`) while the buddy is free and of the same order,
    /// whatever its type. Puts the result at the head of the list of the freed block's type.
    ///
    /// A merge at or above the pageblock order gives the buddy's pageblocks the same type, to keep
    /// I4. Differs: Linux puts a block at the tail if its next larger buddy is free; the rules
    /// followed here (I.2, I.4) do not.
    fn coalesce(&mut self, mut pfn: u64, mut order: Order) {
        let of = self.pageblock_type(Pfn(pfn));
        while order < self.max_order {
            let buddy = pfn ^ order.nr_pages();
            let Some(buddy_type) = self.lists.buddy_at(buddy, order) else { break };
            self.lists.remove(buddy, order, buddy_type);
            if buddy_type != of && order >= self.pageblock_order {
                self.set_pageblock_types(buddy, order, of);
            }
            pfn &= buddy;
            order = order.raised(1);
        }
        self.lists.push_front(pfn, order, of);
    }
}
