//! What memory pressure keeps from one look to the next (docs/behaviour G.5, I.9).
//!
//! Answers to: `compaction_deferred`, `defer_compaction`,
//! `compaction_defer_reset`.
//!
//! Owns how often background reclaim failed in a row, and how long compaction is put off. Does not decide what is evicted or moved ([`crate::reclaim`]).

use super::swap::Swap;
use super::watermarks::Watermarks;
use crate::units::{GroupId, Order, PageSize};

/// `vm.swappiness`: how much cheaper it is to bring back an anonymous page, of 200.
pub(crate) const SWAPPINESS: u64 = 60;
/// After this many failures in a row 2^6 requests go by between two attempts.
const DEFER_SHIFT_MAX: u32 = 6;

/// What memory pressure keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pressure {
    pub(crate) watermarks: Watermarks,
    pub(crate) swap: Option<Swap>,
    /// The group for which reclaim runs; the root for the machine.
    pub(crate) target: GroupId,
    /// Requests to reclaim so far.
    pub(crate) nr_requests: u64,
    /// Ranges of shadows of all files.
    pub(crate) nr_shadows: usize,
    /// Runs of background reclaim in a row that freed nothing.
    pub(crate) nr_failures: u32,
    pub(crate) deferral: Deferral,
    /// The flusher was told: it writes everything dirty when the request that told it ends.
    pub(crate) wants_flush: bool,
    /// Looks of kcompactd that pass before it compacts in advance again.
    pub(crate) nr_idle_looks: u32,
    /// Reclaim looks at everything for the last time before it gives up.
    pub(crate) is_last_look: bool,
    /// Folios that a policy kept and this request would have evicted.
    pub(crate) nr_kept: u64,
}

impl Pressure {
    /// For a machine of `nr_pages` with `nr_slots` of swap space.
    pub(crate) fn new(page: PageSize, watermarks: Watermarks, nr_slots: u64) -> Self {
        Self { watermarks, swap: Swap::new(page, nr_slots), ..Self::default() }
    }
}

/// How often compaction is put off after it failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deferral {
    nr_considered: u32,
    shift: u32,
    /// Smallest order that failed.
    order: Option<Order>,
}

impl Deferral {
    /// Whether an attempt is put off.
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
