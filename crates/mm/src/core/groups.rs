//! Control groups: what they may take, and what became of that.
//!
//! Answers to: `struct mem_cgroup`, `consume_stock`, `refill_stock`.
//!
//! Each folio of a file or of a process is charged to one group: the one that the process was in
//! which brought it about. Owns limits, events and the stock. Does not own the pages charged
//! ([`crate::folio::lruvec`]) nor what a charge above a limit reclaims
//! (`crate::reclaim::charge`).
//!
//! ```text
//!   charge --> stock of the processor has it? --> done
//!                | no
//!              64 pages more within max? --------> done, the rest is stock
//!                | no
//!              the pages asked for within max? --> done
//!                | no
//!              reclaim in the group, and again
//! ```
//!
//! Differs: groups have no parents but the root. Page tables and the kernel's own memory are not
//! charged.

use crate::folio::lruvec::Lruvec;
use crate::rules::anon::Effort;
use crate::units::GroupId;

/// Pages that a processor takes from a limit at a time (`MEMCG_CHARGE_BATCH`).
pub(crate) const STOCK_PAGES: u64 = 64;

/// How hard a charge tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeEffort {
    /// As it is: large folios without direct reclaim.
    None,
    /// One round, and another without stock: what is read ahead (`__GFP_NORETRY`).
    Once,
    /// Until nothing comes of it.
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

/// What a group may take, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// `memory.max`: never more; [`GroupLimits::NONE`] = any.
    pub max: u64,
    /// `memory.high`: who takes more reclaims before he goes on.
    pub high: u64,
    /// `memory.low`: others' reclaim leaves it that much, if it finds enough elsewhere.
    pub low: u64,
    /// `memory.min`: others' reclaim leaves it that much.
    pub min: u64,
}

impl GroupLimits {
    /// A limit that is none.
    pub const NONE: u64 = u64::MAX;

    /// `memory.max` of `pages`, and nothing else.
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
    /// Times that somebody reclaimed because of `high`.
    pub high: u64,
    /// Times that reclaim took from what `low` protects.
    pub low: u64,
    /// Charges that failed although everything was tried.
    pub oom: u64,
}

/// A group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What it may take.
    pub limits: GroupLimits,
    /// What came of the limits.
    pub events: GroupEvents,
}

/// A group and its folios, to look at.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    /// Limits and events.
    pub group: &'a Group,
    /// Pages charged, and what reclaim did.
    pub vec: &'a Lruvec,
}

/// All groups.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    list: Vec<Group>,
    /// Who is charged for what is allocated now.
    current: GroupId,
    /// Whether the present group has a limit.
    is_limited: bool,
    /// The group whose pages the processor has in stock, and how many.
    stock: (GroupId, u64),
    /// Pages charged above `high` since the last look.
    pub(crate) nr_over_high: u64,
    /// The last charge failed: the group is out of memory.
    pub(crate) is_oom: bool,
    /// Where reclaim for the machine goes on.
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

    /// What is allocated from now on is charged to `id`.
    #[inline]
    pub(crate) fn enter(&mut self, id: GroupId) {
        if self.current != id {
            self.current = id;
            self.set_limited();
        }
    }

    /// Limits of a group change.
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

    /// Whether charges of the present group have to ask.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Pages of a group that are in stock: charged, and not used.
    pub(crate) fn stock_of(&self, id: GroupId) -> u64 {
        if self.stock.0 == id { self.stock.1 } else { 0 }
    }

    /// Takes a charge out of the stock; whether it had enough.
    pub(crate) fn consume_stock(&mut self, id: GroupId, nr_pages: u64) -> bool {
        let has_enough = self.stock_of(id) >= nr_pages;
        if has_enough {
            self.stock.1 -= nr_pages;
        }
        has_enough
    }

    /// Puts what was charged beyond the need into the stock.
    pub(crate) fn refill_stock(&mut self, id: GroupId, nr_pages: u64) {
        let nr_pages = self.stock_of(id) + nr_pages;
        self.stock = (id, if nr_pages > STOCK_PAGES { 0 } else { nr_pages });
    }

    /// Gives back what is in stock.
    pub(crate) fn drain_stock(&mut self) {
        self.stock.1 = 0;
    }
}
