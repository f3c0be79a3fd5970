//! Control groups: limits, charges and events (docs/behaviour P.1).
//!
//! Corresponds to: `struct mem_cgroup`, `consume_stock`, `refill_stock`.
//!
//! Each folio is charged to one group: the group of the process that caused its allocation. Owns
//! limits, events and the stock. Does not own the charged pages ([`crate::folio::lruvec`]), nor
//! reclaim for a charge above a limit (`crate::reclaim::charge`).
//!
//! ```text
//!   charge --> enough in the processor's stock? ---> done
//!                | no
//!              64 more pages fit below max? -------> done, the rest becomes stock
//!                | no
//!              the requested pages fit below max? -> done
//!                | no
//!              reclaim in the group, then retry
//! ```
//!
//! Differs: every group is a direct child of the root. Kernel memory is not charged.

use crate::folio::lruvec::Lruvec;
use crate::rules::anon::Effort;
use crate::units::GroupId;

/// Pages that a processor charges in advance (`MEMCG_CHARGE_BATCH`).
pub(crate) const STOCK_PAGES: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeEffort {
    /// No reclaim: large folios without direct reclaim.
    None,
    /// Two rounds of reclaim, the second without stock: readahead (`__GFP_NORETRY`).
    Once,
    /// Reclaims until it makes no more progress.
    Full,
}

impl From<Effort> for ChargeEffort {
    fn from(effort: Effort) -> Self {
        match effort {
            Effort::None | Effort::Wake => Self::None,
            Effort::Once => Self::Once,
            Effort::Direct => Self::Full,
        }
    }
}

/// A group's limits, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// `memory.max`: hard limit; [`GroupLimits::NONE`] = no limit.
    pub max: u64,
    /// `memory.high`: above it, the process that allocates must reclaim before it continues.
    pub high: u64,
    /// `memory.low`: reclaim from outside spares this much if it finds enough elsewhere.
    pub low: u64,
    /// `memory.min`: reclaim from outside always spares this much.
    pub min: u64,
}

impl GroupLimits {
    /// No limit.
    pub const NONE: u64 = u64::MAX;

    /// Only `memory.max`, in pages.
    #[must_use]
    pub const fn max(pages: u64) -> Self {
        Self { max: pages, high: Self::NONE, low: 0, min: 0 }
    }
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self::max(Self::NONE)
    }
}

/// `memory.events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupEvents {
    /// Charges that had to reclaim because of `max`.
    pub max: u64,
    /// Reclaim runs because of `high`.
    pub high: u64,
    /// Reclaim runs that took pages protected by `low`.
    pub low: u64,
    /// Charges that failed after all attempts to reclaim.
    pub oom: u64,
}

/// A control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its limits.
    pub limits: GroupLimits,
    /// Events caused by the limits.
    pub events: GroupEvents,
}

/// A read-only view of a group and its folios.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    /// Limits and events.
    pub group: &'a Group,
    /// Charged pages and reclaim statistics.
    pub vec: &'a Lruvec,
}

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    list: Vec<Group>,
    current: GroupId,
    is_limited: bool,
    /// The group that the stock belongs to, and the stock in pages.
    stock: (GroupId, u64),
    pub(crate) nr_over_high: u64,
    pub(crate) is_oom: bool,
    pub(crate) cursor: u32,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            list: vec![Group::default()],
            current: GroupId::ROOT,
            is_limited: false,
            stock: (GroupId::ROOT, 0),
            nr_over_high: 0,
            is_oom: false,
            cursor: 0,
        }
    }
}

impl Groups {
    pub(crate) fn add(&mut self, limits: GroupLimits) -> GroupId {
        self.list.push(Group { limits, events: GroupEvents::default() });
        GroupId((self.list.len() - 1) as u32)
    }

    pub(crate) fn nr(&self) -> u32 {
        self.list.len() as u32
    }

    pub(crate) fn get(&self, id: GroupId) -> &Group {
        &self.list[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.list[id.0 as usize]
    }

    #[inline]
    pub(crate) fn enter(&mut self, id: GroupId) {
        if self.current != id {
            self.current = id;
            self.set_limited();
        }
    }

    pub(crate) fn set_limits(&mut self, id: GroupId, limits: GroupLimits) {
        self.get_mut(id).limits = limits;
        self.set_limited();
    }

    fn set_limited(&mut self) {
        let limits = self.get(self.current).limits;
        self.is_limited = limits.max.min(limits.high) < GroupLimits::NONE;
    }

    pub(crate) fn current(&self) -> GroupId {
        self.current
    }

    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited
    }

    pub(crate) fn stock_of(&self, id: GroupId) -> u64 {
        if self.stock.0 == id { self.stock.1 } else { 0 }
    }

    pub(crate) fn consume_stock(&mut self, id: GroupId, nr_pages: u64) -> bool {
        let has_enough = self.stock_of(id) >= nr_pages;
        if has_enough {
            self.stock.1 -= nr_pages;
        }
        has_enough
    }

    pub(crate) fn refill_stock(&mut self, id: GroupId, nr_pages: u64) {
        let nr_pages = self.stock_of(id) + nr_pages;
        self.stock = (id, if nr_pages > STOCK_PAGES { 0 } else { nr_pages });
    }

    pub(crate) fn drain_stock(&mut self) {
        self.stock.1 = 0;
    }
}
