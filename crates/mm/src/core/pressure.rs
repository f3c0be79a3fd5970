//! State that reclaim and compaction keep between runs (docs/behaviour G.5, I.9).
//!
//! Corresponds to: `compaction_deferred`, `defer_compaction`, `compaction_defer_reset`.
//!
//! Owns failure counts and the deferral of compaction. Does not evict ([`crate::reclaim`]).

use super::swap::Swap;
use super::watermarks::Watermarks;
use super::zswap::Zswap;
use crate::rules::Rules;
use crate::rules::reclaim::CostRule;
use crate::units::{GroupId, Order};

/// `vm.swappiness`, out of 200: how cheap it is to bring back an anonymous page.
pub(crate) const SWAPPINESS: u64 = 60;
/// After this many failures in a row, compaction skips 2^6 requests between two attempts.
const DEFER_SHIFT_MAX: u32 = 6;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pressure {
    pub(crate) watermarks: Watermarks,
    pub(crate) swap: Option<Swap>,
    pub(crate) zswap: Zswap,
    pub(crate) target: GroupId,
    pub(crate) nr_requests: u64,
    pub(crate) schedule: Schedule,
    pub(crate) nr_shadows: usize,
    pub(crate) nr_failures: u32,
    pub(crate) deferral: Deferral,
    /// Whether the flusher was woken: it writes all dirty folios when the current request ends.
    pub(crate) wants_flush: bool,
    pub(crate) nr_idle_looks: u32,
    /// Whether this is reclaim's last full scan before it gives up.
    pub(crate) is_last_look: bool,
    pub(crate) nr_kept: u64,
    /// Reclaim for a program's own `MADV_PAGEOUT`.
    pub(crate) is_advised: bool,
    pub(crate) cost: CostRule,
}

/// When processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Each before every request for reclaim.
    #[default]
    Unknown,
    /// When the caller says so ([`crate::memory::Memory::switch_to`]).
    Given,
}

impl Pressure {
    pub(crate) fn new(rules: &Rules, watermarks: Watermarks, nr_slots: u64) -> Self {
        let (swap, zswap) =
            (Swap::new(rules.page, nr_slots, rules.reclaim.slot_choice), Zswap::new(&rules.zswap));
        Self { watermarks, swap, zswap, cost: rules.reclaim.cost, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deferral {
    nr_considered: u32,
    shift: u32,
    order: Option<Order>,
}

impl Deferral {
    pub(crate) fn defers(&mut self, order: Order) -> bool {
        if self.order.is_none_or(|failed| order < failed) {
            return false;
        }
        self.nr_considered += 1;
        self.nr_considered < 1 << self.shift
    }

    pub(crate) fn failed(&mut self, order: Order) {
        self.nr_considered = 0;
        self.shift = (self.shift + 1).min(DEFER_SHIFT_MAX);
        self.order = Some(self.order.map_or(order, |failed| failed.min(order)));
    }

    pub(crate) fn succeeded(&mut self, order: Order) {
        if self.order.is_some_and(|failed| order >= failed) {
            *self = Self::default();
        }
    }
}
