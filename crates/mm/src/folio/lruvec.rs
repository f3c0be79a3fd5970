//! A group's reclaim state other than its lists.
//!
//! Corresponds to: `struct lruvec`, `lru_note_cost`, `workingset_age_nonresident`.
//!
//! Owns the charged pages, the cost of evictions by kind of memory, the eviction clock and the
//! refault counters. Does not own limits ([`crate::core::groups`]) or the lists' order
//! ([`super::lru`]).

use std::collections::BTreeSet;

use super::generations::Generations;
use super::link::List;
use super::list_id::{Age, ListId, LruKind, NR_LISTS, nr_of_kind};
use crate::rules::reclaim::CostRule;
use crate::units::{MmId, Vpn};

/// A group's reclaim counters, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Pages that reclaim scanned.
    pub pgscan: u64,
    /// Pages that reclaim freed.
    pub pgsteal: u64,
    /// Pages that returned after eviction, by kind.
    pub refaults: [u64; 2],
    /// Of those, pages that returned soon enough to become active.
    pub activated: [u64; 2],
    /// Of those, pages that were active at eviction.
    pub restored: [u64; 2],
}

/// Pages that add to the cost of reclaim (docs/behaviour P.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Written, or read back soon after eviction.
    pub(crate) nr_io: u64,
    /// Scanned without being reclaimed.
    pub(crate) nr_rotated: u64,
}

/// A page that is written or read back costs as much as examining a batch in vain.
const IO_COST: u64 = 32;

impl Work {
    pub(crate) const fn io(nr_io: u64) -> Self {
        Self { nr_io, nr_rotated: 0 }
    }

    const fn cost(self) -> u64 {
        self.nr_io * IO_COST + self.nr_rotated
    }

    const fn plus(self, other: Self) -> Self {
        Self { nr_io: self.nr_io + other.nr_io, nr_rotated: self.nr_rotated + other.nr_rotated }
    }

    const fn since(self, before: Self) -> Self {
        Self { nr_io: self.nr_io - before.nr_io, nr_rotated: self.nr_rotated - before.nr_rotated }
    }
}

/// The group's counters as reclaim sees them.
///
/// A processor collects changes. The group flushes them on request after enough changes
/// (`memcg_rstat_updated`, `mem_cgroup_flush_stats`). Until then, reclaim uses the old list sizes
/// for decisions, but exact sizes for how much of a list to scan.
#[derive(Clone, Copy, Debug, Default)]
struct FlushedStats {
    nr_pages: [u64; NR_LISTS],
    activated: [u64; 2],
    work: [Work; 2],
    nr_collected: u64,
    nr_changed: u64,
    was_summed: bool,
}

/// Kernels without a flush at each check flush every two seconds. The model has no clock: it
/// flushes after this many changes per page of the group, about one or two seconds of reading at
/// full speed.
const CHANGES_PER_PAGE: u64 = 16;
/// Changes that a processor collects before it passes them to the group, and changes in the group
/// before a flush (`MEMCG_CHARGE_BATCH`, with one processor).
const CHANGES_MAX: u64 = 64;

impl FlushedStats {
    fn note(&mut self, nr: u64) {
        self.nr_collected += nr;
        if self.nr_collected >= CHANGES_MAX {
            self.nr_changed += std::mem::take(&mut self.nr_collected);
        }
    }
}

/// PMD ranges with enough young entries for a walk to examine them.
///
/// There are two sets, like a kernel's two filters. A walk that adds a generation uses the youngest
/// generation's set and fills the next one. Adding a generation without a walk changes neither.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorthWalking {
    /// `None`: all ranges.
    sets: [Option<BTreeSet<(MmId, Vpn)>>; 2],
}

impl WorthWalking {
    pub(crate) fn begin_walk(&mut self, max_seq: u64) {
        self.sets[Self::at(max_seq + 1)] = Some(BTreeSet::new());
    }

    pub(crate) fn has(&self, max_seq: u64, mm: MmId, first: Vpn) -> bool {
        self.sets[Self::at(max_seq)].as_ref().is_none_or(|ranges| ranges.contains(&(mm, first)))
    }

    /// Adds a range, found either by the walk that adds generation `seq`, or around an accessed
    /// entry while that generation is the youngest.
    pub(crate) fn note(&mut self, seq: u64, mm: MmId, first: Vpn) {
        if let Some(ranges) = &mut self.sets[Self::at(seq)] {
            ranges.insert((mm, first));
        }
    }

    const fn at(seq: u64) -> usize {
        (seq % 2) as usize
    }
}

/// A group's lists and its other reclaim state.
#[derive(Clone, Debug)]
pub struct Lruvec {
    pub(super) lists: [List; NR_LISTS],
    nr_charged: u64,
    peak: u64,
    costs: [u64; 2],
    work: [Work; 2],
    /// The part of the work that the costs contain.
    costed: [Work; 2],
    /// Pages that left the inactive lists by eviction or activation (`nonresident_age`).
    pub(crate) clock: u64,
    pub(crate) activated_before: [u64; 2],
    flushed: FlushedStats,
    pub(crate) gens: Generations,
    pub(crate) worth: WorthWalking,
    /// The reclaim request that last walked page tables.
    pub(crate) walked_for: u64,
    /// Folios that a policy can no longer keep ([`crate::policy`]).
    pub(crate) nr_unkeepable: u64,
    /// Reclaim counters.
    pub counters: GroupCounters,
}

impl Default for Lruvec {
    fn default() -> Self {
        Self {
            lists: [List::EMPTY; NR_LISTS],
            nr_charged: 0,
            peak: 0,
            costs: [0; 2],
            work: [Work::default(); 2],
            costed: [Work::default(); 2],
            clock: 0,
            activated_before: [0; 2],
            flushed: FlushedStats::default(),
            gens: Generations::default(),
            worth: WorthWalking::default(),
            walked_for: 0,
            nr_unkeepable: 0,
            counters: GroupCounters::default(),
        }
    }
}

impl Lruvec {
    pub(super) fn charge(&mut self, nr_pages: u64) {
        self.nr_charged += nr_pages;
        self.flushed.note(nr_pages);
        self.peak = self.peak.max(self.nr_charged);
    }

    pub(super) fn uncharge(&mut self, nr_pages: u64) {
        self.nr_charged -= nr_pages;
        self.flushed.note(nr_pages);
    }

    #[inline]
    pub(crate) fn note_change(&mut self, nr: u64) {
        self.flushed.note(nr);
    }

    pub(crate) fn flush_if_needed(&mut self) {
        if self.flushed.nr_changed > CHANGES_MAX {
            self.flush();
        }
    }

    pub(crate) fn flush_if_old(&mut self) {
        let limit = CHANGES_PER_PAGE * self.nr_charged.max(CHANGES_MAX);
        if !self.flushed.was_summed || self.flushed.nr_changed > limit {
            self.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        self.flushed = FlushedStats {
            nr_pages: self.lists.map(|list| list.nr_pages),
            activated: self.counters.activated,
            work: self.work,
            nr_collected: 0,
            nr_changed: 0,
            was_summed: true,
        };
    }

    pub(crate) const fn nr_seen(&self, list: ListId) -> u64 {
        self.flushed.nr_pages[list.at()]
    }

    pub(crate) const fn activated_seen(&self, kind: LruKind) -> u64 {
        self.flushed.activated[kind as usize]
    }

    /// Pages charged to the group.
    #[must_use]
    pub const fn nr_charged(&self) -> u64 {
        self.nr_charged
    }

    /// The maximum of [`Lruvec::nr_charged()`].
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// Pages on a list of the group.
    #[must_use]
    pub const fn nr_pages(&self, list: ListId) -> u64 {
        self.lists[list.at()].nr_pages
    }

    /// Returns the pages of both lists of one kind.
    #[must_use]
    pub fn nr_of_kind(&self, kind: LruKind) -> u64 {
        nr_of_kind(&self.lists.map(|list| list.nr_pages), kind)
    }

    /// Adds the cost of reclaim (`lru_note_cost`). Halves all costs if they exceed a quarter of the
    /// lists.
    pub(crate) fn note_work(&mut self, kind: LruKind, work: Work, rule: CostRule) {
        if rule == CostRule::Nonzero && work == Work::default() {
            return;
        }
        let kind = kind as usize;
        let cost = match rule {
            CostRule::Writes => work.nr_io,
            CostRule::WritesAndRotations | CostRule::Nonzero => work.cost(),
            CostRule::Counters => {
                self.work[kind] = self.work[kind].plus(work);
                return;
            }
        };
        self.costs[kind] += cost;
        if self.costs[0] + self.costs[1] > self.cost_max() {
            self.costs = self.costs.map(|cost| cost / 2);
        }
    }

    /// Adds the costs counted since the last pass.
    pub(crate) fn count_costs(&mut self) {
        let counted = self.flushed.work;
        for (kind, before) in std::mem::replace(&mut self.costed, counted).iter().enumerate() {
            self.costs[kind] += counted[kind].since(*before).cost();
        }
        while self.costs[0] + self.costs[1] > self.cost_max() {
            self.costs = self.costs.map(|cost| cost / 2);
        }
    }

    fn cost_max(&self) -> u64 {
        self.flushed.nr_pages.iter().sum::<u64>() / 4
    }

    /// Scan weights of anonymous and file memory: the kind that is cheaper to evict weighs more.
    pub(crate) fn weights(&self, swappiness: u64) -> [u64; 2] {
        let sum = self.costs[0] + self.costs[1];
        let [anon, file] = self.costs.map(|cost| sum + cost);
        let total = anon + file;
        [swappiness * (total + 1) / (anon + 1), (200 - swappiness) * (total + 1) / (file + 1)]
    }

    /// Whether a kind's inactive list is too short (`inactive_is_low`): shorter than the active
    /// list, or from 1 GiB on, shorter than a fraction of it.
    pub(crate) fn is_inactive_low(&self, kind: LruKind, page_shift: u32) -> bool {
        let [inactive, active] =
            [Age::Inactive, Age::Active].map(|age| self.nr_seen(ListId::new(kind, age)));
        let gib = (inactive + active) << page_shift >> 30;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_scanned_less() {
        let mut vec = Lruvec::default();
        vec.lists[0].nr_pages = 4000;
        vec.flush();
        assert_eq!(vec.weights(60), [60, 140]);
        let rule = CostRule::WritesAndRotations;
        vec.note_work(LruKind::File, Work { nr_io: 31, nr_rotated: 8 }, rule);
        let [anon, file] = vec.weights(60);
        assert!(anon > 60 && file < anon * 140 / 60, "{anon} {file}");
        vec.note_work(LruKind::File, Work { nr_io: 0, nr_rotated: 1 }, rule);
        assert_eq!(vec.costs, [0, 500]);
    }

    #[test]
    fn counted_work_costs_once_it_was_summed() {
        let mut vec = Lruvec::default();
        vec.lists[0].nr_pages = 65;
        vec.flush();
        vec.note_work(LruKind::Anon, Work { nr_io: 129, nr_rotated: 129 }, CostRule::Counters);
        vec.count_costs();
        assert_eq!(vec.costs, [0, 0]);
        vec.flush();
        vec.count_costs();
        assert_eq!(vec.costs, [16, 0], "129 * 33, halved until it is at most 65 / 4");
        vec.count_costs();
        assert_eq!(vec.costs, [16, 0]);
    }
}
