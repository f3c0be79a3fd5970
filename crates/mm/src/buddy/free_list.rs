//! Free blocks: one doubly linked list per order and migrate type.
//!
//! A block is linked through the state of its first page frame. `tags` holds the order and list of
//! each free block.

use crate::units::Order;

use super::migrate::MigrateType;

const NR_ORDERS: usize = 14;
const _: () = assert!(NR_ORDERS == FreeLists::MAX_ORDER_LIMIT.get() as usize + 1);

/// First page frame of a block plus one. 0 ends a list, so zeroed state is empty.
type Link = u32;

/// Next and previous block. An array, because the allocator zeroes integer arrays lazily, but not
/// structs: 2 MB instead of 133 MB resident for 64 GiB of 4 KiB pages.
type Node = [Link; 2];

#[derive(Clone, Copy, Debug, Default)]
struct List {
    head: Link,
    tail: Link,
    nr_blocks: u64,
}

#[derive(Clone, Debug)]
pub(super) struct FreeLists {
    lists: [[List; MigrateType::NR]; NR_ORDERS],
    /// By type: bit k is set if the list of order k is not empty.
    nonempty: [u32; MigrateType::NR],
    nodes: Vec<Node>,
    /// 0 = no free block starts here; otherwise [`tag_of`].
    tags: Vec<u8>,
    /// Page frames `start .. end` are movable blocks of `max_order` that were never allocated. They
    /// are the tail of that list, in ascending order, and have no state.
    fresh: std::ops::Range<u64>,
    max_order: Order,
}

const TAG_FREE: u8 = 0x80;
const TAG_TYPE_SHIFT: u32 = 5;
const TAG_ORDER_MASK: u8 = 0x1f;

const fn tag_of(order: Order, migrate_type: MigrateType) -> u8 {
    TAG_FREE | (migrate_type as u8) << TAG_TYPE_SHIFT | order.get()
}

impl FreeLists {
    /// Largest `max_order` of any modelled kernel: 13 with 64 KiB pages (docs/behaviour 0.4).
    pub(super) const MAX_ORDER_LIMIT: Order = Order::new(13);

    pub(super) fn new(nr_pages: u64, max_order: Order) -> Self {
        Self {
            lists: [[List::default(); MigrateType::NR]; NR_ORDERS],
            nonempty: [0; MigrateType::NR],
            nodes: vec![[0; 2]; nr_pages as usize],
            tags: vec![0; nr_pages as usize],
            fresh: 0..0,
            max_order,
        }
    }

    pub(super) fn set_fresh(&mut self, end: u64) {
        self.fresh = 0..self.max_order.round_down(end);
        self.refresh_mask(self.max_order, MigrateType::Movable);
    }

    pub(super) fn nr_blocks(&self, order: Order, of: MigrateType) -> u64 {
        let is_fresh_list = order == self.max_order && of == MigrateType::Movable;
        let nr_fresh = if is_fresh_list { self.fresh_blocks() } else { 0 };
        self.list(order, of).nr_blocks + nr_fresh
    }

    fn fresh_blocks(&self) -> u64 {
        (self.fresh.end - self.fresh.start) >> self.max_order.get()
    }

    #[inline]
    pub(super) fn smallest(&self, order: Order, of: MigrateType) -> Option<Order> {
        let orders = self.nonempty[of.index()] >> order.get();
        (orders != 0).then(|| order.raised(orders.trailing_zeros() as u8))
    }

    pub(super) fn has(&self, order: Order, of: MigrateType) -> bool {
        self.nonempty[of.index()] >> order.get() & 1 == 1
    }

    pub(super) fn head(&self, order: Order, of: MigrateType) -> Option<u64> {
        match self.list(order, of).head {
            0 if self.has(order, of) => Some(self.fresh.start),
            0 => None,
            link => Some(u64::from(link - 1)),
        }
    }

    #[inline]
    pub(super) fn block_at(&self, pfn: u64) -> Option<(Order, MigrateType)> {
        let tag = self.tags[pfn as usize];
        if tag & TAG_FREE == 0 {
            return None;
        }
        let of = MigrateType::ALL[(tag >> TAG_TYPE_SHIFT & 3) as usize];
        Some((Order::new(tag & TAG_ORDER_MASK), of))
    }

    #[inline]
    pub(super) fn buddy_at(&self, pfn: u64, order: Order) -> Option<MigrateType> {
        let tag = *self.tags.get(pfn as usize)?;
        let is_match = tag & (TAG_FREE | TAG_ORDER_MASK) == TAG_FREE | order.get();
        is_match.then(|| MigrateType::ALL[(tag >> TAG_TYPE_SHIFT & 3) as usize])
    }

    #[inline]
    pub(super) fn pop_front(&mut self, order: Order, of: MigrateType) -> Option<u64> {
        let pfn = self.head(order, of)?;
        if self.list(order, of).head == 0 {
            self.fresh.start += order.nr_pages();
            self.refresh_mask(order, of);
        } else {
            self.remove(pfn, order, of);
        }
        Some(pfn)
    }

    #[inline]
    pub(super) fn push_front(&mut self, pfn: u64, order: Order, of: MigrateType) {
        let link = pfn as Link + 1;
        let list = &mut self.lists[order.get() as usize][of.index()];
        let next = std::mem::replace(&mut list.head, link);
        list.nr_blocks += 1;
        match next {
            0 => list.tail = link,
            _ => self.nodes[next as usize - 1][1] = link,
        }
        self.nodes[pfn as usize] = [next, 0];
        self.tags[pfn as usize] = tag_of(order, of);
        self.nonempty[of.index()] |= 1 << order.get();
    }

    pub(super) fn push_back(&mut self, pfn: u64, order: Order, of: MigrateType) {
        assert!(order < self.max_order || self.fresh.is_empty(), "a block after fresh ones");
        let link = pfn as Link + 1;
        let list = &mut self.lists[order.get() as usize][of.index()];
        let prev = std::mem::replace(&mut list.tail, link);
        list.nr_blocks += 1;
        match prev {
            0 => list.head = link,
            _ => self.nodes[prev as usize - 1][0] = link,
        }
        self.nodes[pfn as usize] = [0, prev];
        self.tags[pfn as usize] = tag_of(order, of);
        self.nonempty[of.index()] |= 1 << order.get();
    }

    #[inline]
    pub(super) fn remove(&mut self, pfn: u64, order: Order, of: MigrateType) {
        debug_assert_eq!(self.tags[pfn as usize], tag_of(order, of), "not a free block: {pfn}");
        let [next, prev] = self.nodes[pfn as usize];
        let list = &mut self.lists[order.get() as usize][of.index()];
        list.nr_blocks -= 1;
        match next {
            0 => list.tail = prev,
            _ => self.nodes[next as usize - 1][1] = prev,
        }
        match prev {
            0 => list.head = next,
            _ => self.nodes[prev as usize - 1][0] = next,
        }
        self.tags[pfn as usize] = 0;
        self.refresh_mask(order, of);
    }

    /// First page frames of a list, head first; fresh blocks last.
    pub(super) fn blocks(&self, order: Order, of: MigrateType) -> impl Iterator<Item = u64> + '_ {
        let is_fresh_list = order == self.max_order && of == MigrateType::Movable;
        let fresh = if is_fresh_list { self.fresh.clone() } else { 0..0 };
        let linked = std::iter::successors(as_pfn(self.list(order, of).head), |&pfn| {
            as_pfn(self.nodes[pfn as usize][0])
        });
        // One block more than counted is enough to expose a cycle.
        let nr_max = self.list(order, of).nr_blocks as usize + 1;
        linked.take(nr_max).chain(fresh.step_by(self.max_order.nr_pages() as usize))
    }

    pub(super) fn is_linked(&self, order: Order, of: MigrateType) -> bool {
        let list = self.list(order, of);
        let mut prev = 0;
        let mut nr_blocks = 0;
        let mut link = list.head;
        while link != 0 && nr_blocks < list.nr_blocks {
            let [next, node_prev] = self.nodes[link as usize - 1];
            if node_prev != prev {
                return false;
            }
            nr_blocks += 1;
            prev = link;
            link = next;
        }
        link == 0 && prev == list.tail && nr_blocks == list.nr_blocks
    }

    fn list(&self, order: Order, of: MigrateType) -> &List {
        &self.lists[order.get() as usize][of.index()]
    }

    #[inline]
    fn refresh_mask(&mut self, order: Order, of: MigrateType) {
        if self.nr_blocks(order, of) == 0 {
            self.nonempty[of.index()] &= !(1 << order.get());
        } else {
            self.nonempty[of.index()] |= 1 << order.get();
        }
    }
}

fn as_pfn(link: Link) -> Option<u64> {
    link.checked_sub(1).map(u64::from)
}
