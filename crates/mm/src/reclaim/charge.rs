//! Charging a cgroup, and reclaim at its limits (docs/behaviour P.1).
//!
//! Corresponds to: `try_charge_memcg`, `mem_cgroup_handle_over_high`, `reclaim_high`.
//!
//! Invariants:
//! - I1: memory is charged before its folio is allocated; a caller that uses another folio during
//!   the charge holds a reference to that folio.

use super::effort::COSTLY_ORDER;
use super::scan::{BATCH_PAGES, Reclaimer};
use crate::core::groups::{ChargeEffort, GroupLimits, GroupView, STOCK_PAGES};
use crate::core::pressure::Schedule;
use crate::core::{InsertRefusal, NewFolio};
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::rules::reclaim::ZapRule;
use crate::units::{GroupId, MmId};

/// Rounds of reclaim before a charge fails (`MAX_RECLAIM_RETRIES`).
const NR_RETRIES_MAX: u32 = 16;

impl Memory {
    /// Adds an empty cgroup, a child of the root.
    pub fn add_group(&mut self, limits: GroupLimits) -> GroupId {
        self.core.folios.lru_mut().add_group();
        self.core.groups.add(limits)
    }

    /// Changes the limits. Existing charges stay.
    pub fn set_group_limits(&mut self, group: GroupId, limits: GroupLimits) {
        self.core.groups.set_limits(group, limits);
    }

    /// Moves a process and its future children into a cgroup. Existing charges stay in the old one.
    pub fn join_group(&mut self, mm: MmId, group: GroupId) {
        let space = self.space_mut(mm);
        space.group = group;
        space.aging.is_new = true;
    }

    /// Notes that the scheduler switched to a process. Without any such call, every process counts as
    /// having run before each request for reclaim (P.3.6).
    pub fn switch_to(&mut self, mm: MmId) {
        self.core.pressure.schedule = Schedule::Given;
        self.space_mut(mm).aging.has_run = true;
    }

    /// Charges calls without a process (reads, writes, advice) to this cgroup from now on.
    pub fn enter_group(&mut self, group: GroupId) {
        self.core.groups.enter(group);
    }

    /// Attributes calls without a process to `mm` from now on.
    pub fn enter(&mut self, mm: MmId) {
        let group = self.space(mm).group;
        self.core.groups.enter(group);
        self.core.buddy.enter(mm);
    }

    /// Pages charged to a cgroup: its folios, its compressed pages, and the processor's stock
    /// (`memory.current`).
    #[must_use]
    pub fn group_usage(&self, group: GroupId) -> u64 {
        let nr_charged = self.core.folios.lru().vec(group).nr_charged();
        nr_charged + self.nr_pages_pooled(group) + self.core.groups.stock_of(group)
    }

    fn nr_pages_pooled(&self, group: GroupId) -> u64 {
        if !self.rules.zswap.charged {
            return 0;
        }
        self.core.pressure.zswap.bytes_of(group).div_ceil(self.rules.page.bytes())
    }

    /// Returns the view of a cgroup.
    #[must_use]
    pub fn group(&self, group: GroupId) -> GroupView<'_> {
        GroupView { group: self.core.groups.get(group), vec: self.core.folios.lru().vec(group) }
    }

    #[inline]
    pub(crate) fn charge(&mut self, nr_pages: u64, effort: ChargeEffort) -> bool {
        !self.core.groups.is_limited() || self.charge_limited(nr_pages, effort)
    }

    /// Charges a folio and reads it into the page cache.
    ///
    /// # Errors
    /// After a refusal, only reclaimed pages have changed.
    pub(crate) fn insert(
        &mut self,
        new: NewFolio,
        effort: ChargeEffort,
    ) -> Result<FolioId, InsertRefusal> {
        if !self.charge(new.order.nr_pages(), effort) {
            return Err(InsertRefusal::Charge);
        }
        self.core.insert(new)
    }

    #[cold]
    fn charge_limited(&mut self, nr_pages: u64, effort: ChargeEffort) -> bool {
        let id = self.core.groups.current();
        let (mut nr_retries, mut is_drained) = (NR_RETRIES_MAX, false);
        let mut batch = nr_pages.max(STOCK_PAGES);
        while !self.try_charge(id, nr_pages, std::mem::replace(&mut batch, nr_pages)) {
            if effort == ChargeEffort::None {
                return false;
            }
            self.core.groups.get_mut(id).events.max += 1;
            let nr_wanted = nr_pages.max(BATCH_PAGES);
            let nr_freed = self.shrink(Reclaimer::Group, id, nr_wanted);
            if nr_freed < nr_wanted {
                self.complete_reads();
            }
            if self.margin(id) >= nr_pages {
                continue;
            }
            if !std::mem::replace(&mut is_drained, true) {
                self.core.groups.drain_stock();
                continue;
            }
            if effort == ChargeEffort::Once {
                return false;
            }
            // Reclaim made progress: retry, unless the order is too costly.
            if nr_freed > 0 && nr_pages <= COSTLY_ORDER.nr_pages() {
                continue;
            }
            if nr_retries == 0 {
                // By now the kernel's flusher would have run.
                if self.flush_dirty() {
                    continue;
                }
                return self.charge_failed(id, nr_pages);
            }
            nr_retries -= 1;
        }
        true
    }

    /// Only a base-page charge that found nothing means the cgroup is out of memory.
    fn charge_failed(&mut self, id: GroupId, nr_pages: u64) -> bool {
        if nr_pages <= COSTLY_ORDER.nr_pages() {
            self.core.groups.is_oom = true;
            self.core.groups.get_mut(id).events.oom += 1;
        }
        false
    }

    fn margin(&self, id: GroupId) -> u64 {
        self.core.groups.get(id).limits.max.saturating_sub(self.group_usage(id))
    }

    fn try_charge(&mut self, id: GroupId, nr_pages: u64, batch: u64) -> bool {
        if self.core.groups.consume_stock(id, nr_pages) {
            return true;
        }
        let margin = self.margin(id);
        let nr_charged = if batch <= margin {
            if batch > nr_pages {
                self.core.groups.refill_stock(id, batch - nr_pages);
            }
            batch
        } else if nr_pages <= margin {
            nr_pages
        } else {
            return false;
        };
        let high = self.core.groups.get(id).limits.high;
        if self.group_usage(id) + nr_pages > high {
            self.core.groups.nr_over_high += nr_charged;
        }
        true
    }

    /// Reclaims the last call's excess above `high`. A kernel does this as the call returns.
    #[inline]
    pub(crate) fn begin_call(&mut self) {
        if !self.core.cache_events.is_empty() {
            self.tell_events();
        }
        if self.core.groups.nr_over_high > 0 {
            self.reclaim_high();
        }
    }

    #[cold]
    fn reclaim_high(&mut self) {
        let id = self.core.groups.current();
        let nr_pages = std::mem::take(&mut self.core.groups.nr_over_high);
        let high = self.core.groups.get(id).limits.high;
        if self.group_usage(id) > high {
            self.core.groups.get_mut(id).events.high += 1;
            self.shrink(Reclaimer::Group, id, nr_pages.max(BATCH_PAGES));
        }
    }

    pub(crate) fn take_group_oom(&mut self) -> bool {
        std::mem::take(&mut self.core.groups.is_oom)
    }

    /// Flushes a cgroup's counters, as a read of `memory.stat` does.
    pub fn flush_group_stats(&mut self, group: GroupId) {
        self.core.folios.lru_mut().vec_mut(group).flush();
    }

    /// Drains the LRU batches, if the kernel does so when it unmaps pages (`MADV_DONTNEED`).
    pub fn zap_batches(&mut self) {
        if self.rules.reclaim.zap == ZapRule::Drains {
            self.core.drain_lru();
        }
    }

    /// Drains the per-CPU LRU batches (`lru_add_drain_all`).
    pub fn drain_batches(&mut self) {
        self.core.drain_lru();
    }

    /// Reclaims in a cgroup like a write to `memory.reclaim`. Returns the pages freed.
    pub fn reclaim_group(&mut self, group: GroupId, nr_pages: u64) -> u64 {
        self.shrink(Reclaimer::Group, group, nr_pages)
    }
}
