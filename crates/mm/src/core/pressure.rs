//! What memory pressure keeps from one look to the next (docs/behaviour G.5, I.9).
//!
//! Answers to: `lru_note_cost`, `compaction_deferred`, `defer_compaction`,
//! `compaction_defer_reset`.
//!
//! Owns what evictions cost by kind of memory, how often background reclaim failed in a row, and
//! how long compaction is put off. Does not decide what is evicted or moved ([`crate::reclaim`]).

use super::swap::Swap;
use super::watermarks::Watermarks;
use super::workingset::Clock;
use crate::buddy::BuddyError;
use crate::folio::lru::LruKind;
use crate::units::{Order, PageSize};

/// `vm.swappiness`: how much cheaper it is to bring back an anonymous page, of 200.
const SWAPPINESS: u64 = 60;
/// After this many failures in a row 2^6 requests go by between two attempts.
const DEFER_SHIFT_MAX: u32 = 6;

/// What memory pressure keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pressure {
    pub(crate) watermarks: Watermarks,
    pub(crate) clock: Clock,
    pub(crate) swap: Option<Swap>,
    /// Ranges of shadows of all files.
    pub(crate) nr_shadows: usize,
    /// Pages that were evicted for nothing, by kind, fading.
    costs: [u64; 2],
    /// Runs of background reclaim in a row that freed nothing.
    pub(crate) nr_failures: u32,
    pub(crate) deferral: Deferral,
}

impl Pressure {
    /// For a machine of `nr_pages` with `nr_slots` of swap space.
    pub(crate) fn new(
        page: PageSize,
        watermarks: Watermarks,
        nr_slots: u64,
    ) -> Result<Self, BuddyError> {
        Ok(Self { watermarks, swap: Swap::new(page, nr_slots)?, ..Self::default() })
    }

    /// Pages of `kind` were examined or evicted for nothing.
    pub(crate) fn note_cost(&mut self, kind: LruKind, nr_pages: u64) {
        self.costs[kind as usize] += nr_pages;
    }

    /// Halves the costs once they outweigh the lists.
    pub(crate) fn fade_costs(&mut self, nr_lru_pages: u64) {
        while self.costs.iter().sum::<u64>() > nr_lru_pages / 4 {
            self.costs = self.costs.map(|cost| cost / 2);
            if self.costs == [0; 2] {
                return;
            }
        }
    }

    /// Weights of anonymous and file memory when lists are scanned: what costs less to evict
    /// weighs more.
    pub(crate) fn weights(&self) -> [u64; 2] {
        let sum = self.costs[0] + self.costs[1];
        let [anon, file] = self.costs.map(|cost| sum + cost);
        let total = anon + file;
        [SWAPPINESS * (total + 1) / (anon + 1), (200 - SWAPPINESS) * (total + 1) / (file + 1)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_scanned_less() {
        let mut pressure = Pressure::default();
        assert_eq!(pressure.weights(), [60, 140]);
        pressure.note_cost(LruKind::File, 1000);
        let [anon, file] = pressure.weights();
        assert!(anon > 60 && file < anon * 140 / 60, "{anon} {file}");
        pressure.fade_costs(400);
        assert!(pressure.costs[1] <= 100);
    }
}
