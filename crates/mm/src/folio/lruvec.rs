//! What one group keeps for reclaim beside its lists.
//!
//! Answers to: `struct lruvec`, `lru_note_cost`, `workingset_age_nonresident`.
//!
//! Owns the pages a group is charged for, what evictions cost by kind of memory, the clock of
//! evictions and what refaults said. Does not own limits ([`crate::core::groups`]) nor the order of
//! the lists ([`super::lru`]).

use std::collections::BTreeSet;

use super::generations::Generations;
use super::link::List;
use super::list_id::{Age, ListId, LruKind, NR_LISTS, nr_of_kind};
use crate::units::{MmId, Vpn};

/// What a group did under pressure; pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Pages that reclaim looked at.
    pub pgscan: u64,
    /// Pages that reclaim freed.
    pub pgsteal: u64,
    /// Pages that came back after they were evicted, by kind.
    pub refaults: [u64; 2],
    /// Of those: soon enough to become active.
    pub activated: [u64; 2],
    /// Of those: had been active when they were evicted.
    pub restored: [u64; 2],
}

/// The group's counters as reclaim sees them.
///
/// A processor collects what changes, and the group sums it up when somebody asks after enough has
/// changed (`memcg_rstat_updated`, `mem_cgroup_flush_stats`). Between two sums reclaim goes by the
/// old sizes of lists where it asks for a group's counters; how much of a list it scans goes by the
/// exact size.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    nr_pages: [u64; NR_LISTS],
    activated: [u64; 2],
    /// Changes that the processor has collected.
    nr_collected: u64,
    /// Changes since the last sum.
    nr_changed: u64,
    /// Whether there was a sum.
    was_summed: bool,
}

/// Where nobody sums up at a look, it is done every two seconds. There is no clock here: after so
/// many changes per page of the group, which is a second or two of reading at full speed.
const CHANGES_PER_PAGE: u64 = 16;
/// Changes that a processor collects before the group hears of them, and that the group lets pass
/// before a sum (`MEMCG_CHARGE_BATCH`, with one processor).
const CHANGES_MAX: u64 = 64;

impl Seen {
    fn note(&mut self, nr: u64) {
        self.nr_collected += nr;
        if self.nr_collected >= CHANGES_MAX {
            self.nr_changed += std::mem::take(&mut self.nr_collected);
        }
    }
}

/// PMD ranges of processes in which enough entries were young that a walk looks at them.
///
/// There are two sets, as a kernel has two filters: a walk that adds a generation goes by the one of
/// the youngest, and notes for the next. A generation that was added without a walk leaves both as
/// they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorthWalking {
    /// `None`: all ranges.
    sets: [Option<BTreeSet<(MmId, Vpn)>>; 2],
}

impl WorthWalking {
    /// A walk begins that adds a generation after `max_seq`.
    pub(crate) fn begin_walk(&mut self, max_seq: u64) {
        self.sets[Self::at(max_seq + 1)] = Some(BTreeSet::new());
    }

    /// Whether that walk looks at a range.
    pub(crate) fn has(&self, max_seq: u64, mm: MmId, first: Vpn) -> bool {
        self.sets[Self::at(max_seq)].as_ref().is_none_or(|ranges| ranges.contains(&(mm, first)))
    }

    /// A range was found to be worth it, by the walk before generation `seq` or by a look around an
    /// entry while that is the youngest.
    pub(crate) fn note(&mut self, seq: u64, mm: MmId, first: Vpn) {
        if let Some(ranges) = &mut self.sets[Self::at(seq)] {
            ranges.insert((mm, first));
        }
    }

    const fn at(seq: u64) -> usize {
        (seq % 2) as usize
    }
}

/// The lists of a group, and what is kept beside them.
#[derive(Clone, Debug)]
pub struct Lruvec {
    pub(super) lists: [List; NR_LISTS],
    nr_charged: u64,
    peak: u64,
    /// What evictions cost lately, by kind.
    costs: [u64; 2],
    /// Pages that left the inactive lists, by eviction or activation (`nonresident_age`).
    pub(crate) clock: u64,
    /// `counters.activated` when reclaim last ended.
    pub(crate) activated_before: [u64; 2],
    seen: Seen,
    /// Which generations there are, where there are generations.
    pub(crate) gens: Generations,
    /// What walks of page tables look at.
    pub(crate) worth: WorthWalking,
    /// The request to reclaim for which page tables were walked last.
    pub(crate) walked_for: u64,
    /// Folios that a policy cannot keep any more ([`crate::policy`]).
    pub(crate) nr_unkeepable: u64,
    /// What happened in the group.
    pub counters: GroupCounters,
}

impl Default for Lruvec {
    fn default() -> Self {
        Self {
            lists: [List::EMPTY; NR_LISTS],
            nr_charged: 0,
            peak: 0,
            costs: [0; 2],
            clock: 0,
            activated_before: [0; 2],
            seen: Seen::default(),
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
        self.seen.note(nr_pages);
        self.peak = self.peak.max(self.nr_charged);
    }

    pub(super) fn uncharge(&mut self, nr_pages: u64) {
        self.nr_charged -= nr_pages;
        self.seen.note(nr_pages);
    }

    /// A counter of the group changed by `nr`.
    #[inline]
    pub(crate) fn note_change(&mut self, nr: u64) {
        self.seen.note(nr);
    }

    /// Sums the counters up if enough has changed (`mem_cgroup_flush_stats`).
    pub(crate) fn flush_if_needed(&mut self) {
        if self.seen.nr_changed > CHANGES_MAX {
            self.flush();
        }
    }

    /// Sums the counters up if it was long ago.
    pub(crate) fn flush_if_old(&mut self) {
        let limit = CHANGES_PER_PAGE * self.nr_charged.max(CHANGES_MAX);
        if !self.seen.was_summed || self.seen.nr_changed > limit {
            self.flush();
        }
    }

    /// Sums the counters up.
    pub(crate) fn flush(&mut self) {
        self.seen = Seen {
            nr_pages: self.lists.map(|list| list.nr_pages),
            activated: self.counters.activated,
            nr_collected: 0,
            nr_changed: 0,
            was_summed: true,
        };
    }

    /// Pages on a list of the group when its counters were last summed up.
    pub(crate) const fn nr_seen(&self, list: ListId) -> u64 {
        self.seen.nr_pages[list.at()]
    }

    /// Pages that came back hot, as far as the counters were summed up.
    pub(crate) const fn activated_seen(&self, kind: LruKind) -> u64 {
        self.seen.activated[kind as usize]
    }

    /// Pages of its folios.
    #[must_use]
    pub const fn nr_charged(&self) -> u64 {
        self.nr_charged
    }

    /// The most it was charged for.
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// Pages on a list of the group.
    #[must_use]
    pub const fn nr_pages(&self, list: ListId) -> u64 {
        self.lists[list.at()].nr_pages
    }

    /// Pages on the lists of a kind.
    #[must_use]
    pub fn nr_of_kind(&self, kind: LruKind) -> u64 {
        nr_of_kind(&self.lists.map(|list| list.nr_pages), kind)
    }

    /// Pages of `kind` were brought back, or examined for nothing (`lru_note_cost`): what costs
    /// outweighs a quarter of the lists fades.
    pub(crate) fn note_cost(&mut self, kind: LruKind, cost: u64) {
        self.costs[kind as usize] += cost;
        if self.costs[0] + self.costs[1] > self.seen.nr_pages.iter().sum::<u64>() / 4 {
            self.costs = self.costs.map(|cost| cost / 2);
        }
    }

    /// Weights of anonymous and file memory when lists are scanned: what costs less to evict
    /// weighs more.
    pub(crate) fn weights(&self, swappiness: u64) -> [u64; 2] {
        let sum = self.costs[0] + self.costs[1];
        let [anon, file] = self.costs.map(|cost| sum + cost);
        let total = anon + file;
        [swappiness * (total + 1) / (anon + 1), (200 - swappiness) * (total + 1) / (file + 1)]
    }

    /// Whether the inactive list of a kind holds too little (`inactive_is_low`): half, and less of
    /// it where there are many GiB.
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
        vec.note_cost(LruKind::File, 1000);
        let [anon, file] = vec.weights(60);
        assert!(anon > 60 && file < anon * 140 / 60, "{anon} {file}");
        vec.note_cost(LruKind::File, 1);
        assert_eq!(vec.costs, [0, 500]);
    }
}
