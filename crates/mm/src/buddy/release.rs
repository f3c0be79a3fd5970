//! Freeing and coalescing (docs/behaviour I.4).
//!
//! Answers to: `__free_one_page`.

use crate::units::{Order, Pfn};

use super::Buddy;

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
