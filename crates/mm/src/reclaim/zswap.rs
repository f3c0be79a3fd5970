//! Where swapped-out pages go: nowhere if they are zero, into zswap, or to the device (docs/behaviour
//! P.7).
//!
//! Corresponds to: `swap_writepage`, `zswap_store`, `shrink_memcg`, `shrink_worker`,
//! `zswap_writeback_entry`.
//!
//! ```text
//!   all zero? ---> noted
//!   zswap on? ---> group below its limit? ---> pool below its limit? ---> every page compresses?
//!      |             | no: write one back        | no: shrink the pool      | yes: stored
//!      v             v    or refuse              v    and refuse            v no: refused
//!   may the group write? ---> the device, else the folio stays
//! ```
//!
//! Differs: the kernel's worker shrinks a full pool a little later, on a CPU that is free; here it
//! runs immediately. The dynamic shrinker (`shrinker_enabled`) is not modelled. Shared memory that is
//! written back does not stay in the swap cache.

use crate::core::zswap::ToPool;
use crate::folio::Content;
use crate::folio::FolioId;
use crate::folio::lru::LruKind;
use crate::folio::lruvec::Work;
use crate::memory::Memory;
use crate::rules::reclaim::{CostRule, SwapDevice, ZeroPages};
use crate::rules::zswap::{Incompressible, ZswapFolios, ZswapShrink};
use crate::units::{GroupId, Order, PageIndex, SwapSlot};

/// Looks without a page written before the pool's worker gives up (`MAX_RECLAIM_RETRIES`).
const NR_FAILURES_MAX: u32 = 16;
/// A page of zeroes compresses to next to nothing.
const ZERO_PAGE_BYTES: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// In zswap, or noted to be zero.
    InMemory,
    /// Written to the device.
    OnDevice,
    /// The folio must stay: zswap refused it, and its group may not write to the device.
    Nowhere,
}

/// The pages of a folio and their slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct SwappedPages {
    pub(super) first: SwapSlot,
    pub(super) nr: u64,
    pub(super) group: GroupId,
    /// The first page's place in its area; `None` for shared memory.
    pub(super) index: Option<PageIndex>,
}

impl SwappedPages {
    fn slots(&self) -> impl Iterator<Item = SwapSlot> + use<> {
        let first = self.first;
        (0..self.nr).map(move |by| first.plus(by))
    }
}

impl Memory {
    /// Chooses where the content of used slots goes.
    pub(super) fn place_swapped(&mut self, pages: SwappedPages) -> Placed {
        let placed = self.store_swapped(&pages);
        if placed != Placed::Nowhere && self.rules.reclaim.cost == CostRule::Counters {
            self.core.note_work(pages.group, LruKind::Anon, Work::io(pages.nr));
        }
        placed
    }

    fn store_swapped(&mut self, pages: &SwappedPages) -> Placed {
        let is_noted = self.rules.reclaim.zero_pages == ZeroPages::Noted
            && pages.slots().all(|slot| self.content_of(slot) == Content::Zero);
        if let Some(swap) = &mut self.core.pressure.swap {
            pages.slots().for_each(|slot| swap.set_noted(slot, is_noted));
        }
        if !is_noted && self.store_in_zswap(pages) {
            self.core.counters.reclaim.zswpout += pages.nr;
            return Placed::InMemory;
        }
        pages.slots().for_each(|slot| self.core.take_from_pool(slot));
        if is_noted {
            self.core.counters.reclaim.swpout_zero += pages.nr;
            return Placed::InMemory;
        }
        if self.rules.zswap.enabled && !self.may_write_back(pages.group) {
            return Placed::Nowhere;
        }
        self.core.counters.reclaim.pswpout += pages.nr;
        Placed::OnDevice
    }

    /// Whether reclaim finds a folio still being written, so that it stays in the swap cache.
    pub(super) fn is_write_awaited(&self, placed: Placed) -> bool {
        let is_slow = self.rules.reclaim.swap_device == SwapDevice::Disk;
        placed == Placed::OnDevice && is_slow && self.core.pressure.is_advised
    }

    fn content_of(&self, slot: SwapSlot) -> Content {
        let swap = self.core.pressure.swap.as_ref();
        swap.and_then(|swap| swap.stored(slot)).map_or(Content::Zero, |stored| stored.content)
    }

    fn may_write_back(&self, group: GroupId) -> bool {
        // Kernels with one list for all groups have no `memory.zswap.writeback`.
        let has_setting = self.rules.zswap.shrink != ZswapShrink::Oldest;
        group == GroupId::ROOT || self.rules.zswap.writeback || !has_setting
    }

    /// Stores all pages or refuses; then the pool may hold some of them.
    fn store_in_zswap(&mut self, pages: &SwappedPages) -> bool {
        let rules = self.rules.zswap;
        if !rules.enabled || pages.nr > 1 && rules.folios == ZswapFolios::BasePages {
            return false;
        }
        if self.is_group_full(pages.group) && !self.shrink_group_pool(pages.group) {
            return false;
        }
        if self.is_pool_full() {
            return false;
        }
        (0..pages.nr).all(|by| {
            let (slot, index) = (pages.first.plus(by), pages.index.map(|index| index.plus(by)));
            let Some(bytes) = self.compressed_bytes(slot, index, pages.group) else { return false };
            let (group, list) = (pages.group, self.pool_list(pages.group));
            self.core.add_to_pool(ToPool { slot, index, group, list, bytes })
        })
    }

    /// Bytes that the pool needs for a page; `None` if it refuses the page.
    fn compressed_bytes(
        &self,
        slot: SwapSlot,
        index: Option<PageIndex>,
        group: GroupId,
    ) -> Option<u64> {
        let (rules, page) = (self.rules.zswap, self.rules.page);
        let content = self.content_of(slot);
        if content == Content::Zero {
            let is_kept_as_value = self.rules.reclaim.zero_pages == ZeroPages::Written;
            return Some(if is_kept_as_value { 0 } else { ZERO_PAGE_BYTES });
        }
        if content == Content::Incompressible
            || rules.is_incompressible(index.map_or(slot.0, |index| index.0))
        {
            let is_taken =
                rules.incompressible == Incompressible::Stored && self.may_write_back(group);
            return is_taken.then_some(page.bytes());
        }
        Some(rules.compressed_bytes(page)).filter(|bytes| rules.pool.takes(page, *bytes))
    }

    /// The list that a group's compressed pages are in.
    fn pool_list(&self, group: GroupId) -> GroupId {
        let has_own = self.rules.zswap.shrink != ZswapShrink::Oldest && self.rules.zswap.charged;
        if has_own { group } else { GroupId::ROOT }
    }

    fn is_group_full(&self, group: GroupId) -> bool {
        let rules = &self.rules.zswap;
        let Some(max) = rules.group_max_bytes.filter(|_| group != GroupId::ROOT && rules.charged)
        else {
            return false;
        };
        let shift = self.rules.page.shift();
        self.core.pressure.zswap.bytes_of(group) >> shift >= max >> shift
    }

    /// Makes room in a group that is at its limit (P.7.7).
    fn shrink_group_pool(&mut self, group: GroupId) -> bool {
        self.rules.zswap.shrink != ZswapShrink::Oldest
            && self.may_write_back(group)
            && self.look_at_oldest(self.pool_list(group))
    }

    /// Whether the pool refuses pages. It is shrunk then (P.7.8).
    fn is_pool_full(&mut self) -> bool {
        let rules = self.rules.zswap;
        let nr_pages_max = self.core.buddy.nr_pages() * u64::from(rules.max_pool_percent) / 100;
        let nr_accepted = nr_pages_max * u64::from(rules.accept_threshold_percent) / 100;
        let nr_pages = self.core.pressure.zswap.nr_pages();
        let is_over = rules.pool.is_full(nr_pages, nr_pages_max);
        let zswap = &mut self.core.pressure.zswap;
        zswap.was_full = is_over || zswap.was_full && nr_pages > nr_accepted;
        let is_full = zswap.was_full;
        self.core.counters.reclaim.pool_limit_hit += u64::from(is_over);
        match rules.shrink {
            ZswapShrink::Oldest if is_over => {
                let _ = self.look_at_oldest(GroupId::ROOT);
            }
            ZswapShrink::SecondChance | ZswapShrink::Batch if is_full => {
                self.shrink_pool(nr_accepted);
            }
            _ => {}
        }
        is_full
    }

    /// Writes back, group by group in turn, until the pool accepts pages.
    fn shrink_pool(&mut self, nr_accepted: u64) {
        let (mut nr_failures, mut nr_empty) = (0, 0);
        let nr_groups = self.core.groups.nr();
        while self.core.pressure.zswap.nr_pages() > nr_accepted && nr_empty < nr_groups {
            let zswap = &mut self.core.pressure.zswap;
            let group = GroupId(zswap.cursor % nr_groups);
            zswap.cursor = (group.0 + 1) % nr_groups;
            if zswap.oldest_of(group).is_none() || !self.may_write_back(group) {
                nr_empty += 1;
                continue;
            }
            nr_empty = 0;
            if !self.look_at_oldest(group) {
                nr_failures += 1;
                if nr_failures == NR_FAILURES_MAX {
                    break;
                }
            }
        }
    }

    /// Looks at a list's oldest pages; returns whether any was written back.
    fn look_at_oldest(&mut self, list: GroupId) -> bool {
        let rule = self.rules.zswap.shrink;
        let mut is_any_written = false;
        for _ in 0..rule.nr_seen() {
            let Some(slot) = self.core.pressure.zswap.oldest_of(list) else { break };
            self.core.work.add_cheap(1);
            if rule != ZswapShrink::Oldest && self.core.pressure.zswap.pass_over(slot) {
                continue;
            }
            if !self.write_back_pooled(slot) {
                break;
            }
            is_any_written = true;
        }
        is_any_written
    }

    /// Decompresses a page into the swap cache and writes it to the device (P.7.9).
    fn write_back_pooled(&mut self, slot: SwapSlot) -> bool {
        let Some(pooled) = self.core.pressure.zswap.get(slot).copied() else { return false };
        if self.core.cached_in(slot).is_some() {
            return false;
        }
        if let Some(index) = pooled.index {
            let current = self.core.groups.current();
            self.core.groups.enter(pooled.group);
            let id = self.core.alloc_unlisted(Order::ZERO, index);
            self.core.groups.enter(current);
            let Some(id) = id else { return false };
            self.core.add_to_swap_cache(id, slot);
            self.copy_from_slots(id, slot);
            self.enlist_last(id);
        }
        self.core.take_from_pool(slot);
        let counters = &mut self.core.counters.reclaim;
        counters.zswpwb += 1;
        counters.pswpout += 1;
        true
    }

    /// Reclaim finds the page next.
    fn enlist_last(&mut self, id: FolioId) {
        self.core.folios.enlist(id);
        self.core.drain_lru();
        self.core.folios.lru_mut().marks_mut(id).is_reclaim = true;
        self.end_wait(id);
    }
}
