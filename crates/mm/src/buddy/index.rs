//! Fragmentation indices (docs/behaviour I.9, I.10), in thousandths, rounded down as in Linux.
//!
//! Corresponds to: `fragmentation_index`, `unusable_free_index`.

use crate::units::Order;

use super::Buddy;

impl Buddy {
    /// Why a request of `order` fails: near 0 if memory is short, near 1000 if it is fragmented.
    /// With F free pages in B blocks: `1000 - (1000 + F * 1000 / 2^order) / B`. -1000 if the
    /// request would succeed, 0 without a free block.
    #[must_use]
    pub fn fragmentation_index(&self, order: Order) -> i32 {
        if self.nr_suitable_pages(order) > 0 {
            return -1000;
        }
        let nr_blocks: u64 = self.orders().map(|of| self.nr_free_of(of)).sum();
        if nr_blocks == 0 {
            return 0;
        }
        let requests = self.nr_free_pages() * 1000 / order.nr_pages();
        1000 - ((1000 + requests) / nr_blocks) as i32
    }

    /// Free pages in blocks smaller than `order`, in thousandths; 1000 if no page is free.
    #[must_use]
    pub fn unusable_index(&self, order: Order) -> u32 {
        match self.nr_free_pages() {
            0 => 1000,
            nr_free => ((nr_free - self.nr_suitable_pages(order)) * 1000 / nr_free) as u32,
        }
    }

    fn nr_suitable_pages(&self, order: Order) -> u64 {
        let nr_pages = |of: Order| self.nr_free_of(of) * of.nr_pages();
        self.orders().filter(|&of| of >= order).map(nr_pages).sum()
    }
}
