//! zswap's pool: compressed pages by slot (docs/behaviour P.7).
//!
//! Corresponds to: `struct zswap_entry`, `zswap_list_lru`, `zswap_total_pages`.
//!
//! ```text
//!   slot --> [ bytes | group | page ]     oldest of a group first: [ seen ][ new ][ new ]
//!                 |                                                  ^ written back
//!                 v                                                         ^ passed over once
//!   as many pages as these sizes need
//! ```
//!
//! Owns which slots the pool holds, their order, and the frames they take. Does not choose what to
//! store or to write back (`crate::reclaim::zswap`); the bytes are in [`crate::ram`].
//!
//! Differs: the pool's pages are always as full as possible; zsmalloc frees a group of pages only
//! when it is empty.
//!
//! Invariants:
//! - I1: a slot in the pool is in use, and is in the order of its group once.
//! - I2: the counts by size and by group agree with the slots.

use std::collections::BTreeMap;

use super::Core;
use crate::buddy::MigrateType;
use crate::rules::zswap::{ZswapPool, ZswapRules};
use crate::units::{GroupId, Order, PageIndex, PageSize, Pfn, SwapSlot};

/// A compressed page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pooled {
    /// The page's place in its area; `None` for shared memory.
    pub(crate) index: Option<PageIndex>,
    /// The folio's group, which pays.
    pub(crate) group: GroupId,
    /// The group in whose order it is.
    list: GroupId,
    pub(crate) bytes: u64,
    /// Not passed over yet.
    is_new: bool,
    place: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Zswap {
    pool: ZswapPool,
    slots: BTreeMap<SwapSlot, Pooled>,
    order: BTreeMap<(GroupId, u64), SwapSlot>,
    nr_by_bytes: BTreeMap<u64, u64>,
    bytes_by_group: BTreeMap<GroupId, u64>,
    frames: Vec<Pfn>,
    next_place: u64,
    /// Full since it last had room below the threshold.
    pub(crate) was_full: bool,
    /// Whether it was ever on.
    pub(crate) was_on: bool,
    pub(crate) cursor: u32,
}

impl Zswap {
    pub(crate) fn new(rules: &ZswapRules) -> Self {
        Self { pool: rules.pool, was_on: rules.enabled, ..Self::default() }
    }

    pub(crate) fn nr_stored(&self) -> u64 {
        self.slots.len() as u64
    }

    pub(crate) fn bytes_of(&self, group: GroupId) -> u64 {
        self.bytes_by_group.get(&group).copied().unwrap_or(0)
    }

    pub(crate) fn oldest_of(&self, list: GroupId) -> Option<SwapSlot> {
        self.order.range((list, 0)..=(list, u64::MAX)).next().map(|(_, &slot)| slot)
    }

    pub(crate) fn get(&self, slot: SwapSlot) -> Option<&Pooled> {
        self.slots.get(&slot)
    }

    pub(crate) fn nr_pages(&self) -> u64 {
        self.frames.len() as u64
    }

    fn nr_pages_needed(&self, page: PageSize) -> u64 {
        let pages_of = |(&bytes, &nr): (&u64, &u64)| {
            if bytes == 0 {
                return 0;
            }
            let zspage = self.pool.zspage(page, bytes);
            nr.div_ceil(zspage.nr_objects) * zspage.nr_pages
        };
        self.nr_by_bytes.iter().map(pages_of).sum()
    }

    fn insert(&mut self, ToPool { slot, index, group, list, bytes }: ToPool) {
        let _ = self.take(slot);
        let pooled = Pooled { index, group, list, bytes, is_new: true, place: self.next_place };
        self.next_place += 1;
        self.order.insert((pooled.list, pooled.place), slot);
        *self.nr_by_bytes.entry(pooled.bytes).or_default() += 1;
        *self.bytes_by_group.entry(pooled.group).or_default() += pooled.bytes;
        self.slots.insert(slot, pooled);
    }

    fn take(&mut self, slot: SwapSlot) -> Option<Pooled> {
        let pooled = self.slots.remove(&slot)?;
        self.order.remove(&(pooled.list, pooled.place));
        if let Some(nr) = self.nr_by_bytes.get_mut(&pooled.bytes) {
            *nr -= 1;
        }
        if let Some(bytes) = self.bytes_by_group.get_mut(&pooled.group) {
            *bytes -= pooled.bytes;
        }
        Some(pooled)
    }

    /// Passes over a new page: it becomes the youngest. Returns whether the page was new.
    pub(crate) fn pass_over(&mut self, slot: SwapSlot) -> bool {
        let Some(pooled) = self.slots.get_mut(&slot).filter(|pooled| pooled.is_new) else {
            return false;
        };
        self.order.remove(&(pooled.list, pooled.place));
        (pooled.is_new, pooled.place) = (false, self.next_place);
        self.next_place += 1;
        self.order.insert((pooled.list, pooled.place), slot);
        true
    }

    pub(crate) fn validate(&self, is_used: impl Fn(SwapSlot) -> bool) -> bool {
        let mut by_bytes = BTreeMap::<u64, u64>::new();
        let mut by_group = BTreeMap::<GroupId, u64>::new();
        for pooled in self.slots.values() {
            *by_bytes.entry(pooled.bytes).or_default() += 1;
            *by_group.entry(pooled.group).or_default() += pooled.bytes;
        }
        let agrees = |(slot, pooled): (&SwapSlot, &Pooled)| {
            is_used(*slot) && self.order.get(&(pooled.list, pooled.place)) == Some(slot)
        };
        self.slots.iter().all(agrees)
            && self.order.len() == self.slots.len()
            && self.nr_by_bytes.iter().all(|(bytes, nr)| by_bytes.get(bytes).unwrap_or(&0) == nr)
            && self.bytes_by_group.iter().all(|(id, sum)| by_group.get(id).unwrap_or(&0) == sum)
    }
}

/// A page to store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToPool {
    pub(crate) slot: SwapSlot,
    pub(crate) index: Option<PageIndex>,
    pub(crate) group: GroupId,
    pub(crate) list: GroupId,
    pub(crate) bytes: u64,
}

impl Core {
    /// Adds a compressed page. Returns false, without changes, if no memory is free for it.
    pub(crate) fn add_to_pool(&mut self, new: ToPool) -> bool {
        self.pressure.zswap.insert(new);
        let is_added = self.resize_pool();
        if !is_added {
            self.take_from_pool(new.slot);
        }
        is_added
    }

    /// Removes a slot's page, if the pool holds it.
    pub(crate) fn take_from_pool(&mut self, slot: SwapSlot) {
        if self.pressure.zswap.take(slot).is_some() {
            let _ = self.resize_pool();
        }
    }

    fn resize_pool(&mut self) -> bool {
        let nr_needed = self.pressure.zswap.nr_pages_needed(self.page);
        while self.pressure.zswap.nr_pages() > nr_needed {
            let Some(pfn) = self.pressure.zswap.frames.pop() else { break };
            self.buddy.free(pfn, Order::ZERO);
        }
        while self.pressure.zswap.nr_pages() < nr_needed {
            let Some(pfn) = self.buddy.alloc(Order::ZERO, MigrateType::Unmovable) else {
                return false;
            };
            self.pressure.zswap.frames.push(pfn);
        }
        true
    }
}
