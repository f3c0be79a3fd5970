//! How far the lists are scanned: priorities, cgroups, and the balance between the lists.
//!
//! Corresponds to: `do_try_to_free_pages`, `shrink_node`, `shrink_node_memcgs`, `shrink_lruvec`,
//! `get_scan_count`, `prepare_scan_control`, `mem_cgroup_calculate_protection`.
//!
//! Differs: a global pass visits at most 64 cgroups, and the next pass continues after them; in a
//! kernel, background reclaim visits all cgroups. All cgroups share one queue of deferred splits.

use crate::core::pressure::SWAPPINESS;
use crate::core::stall::StallCosts;
use crate::core::swap::Swap;
use crate::folio::lru::{Age, ListId, LruKind};
use crate::memory::Memory;
use crate::rules::reclaim::{CostRule, DeferredQueue, FailedScan, GroupStats};
use crate::units::GroupId;

/// The first pass scans 1 / 2^12 of a list; each further pass twice as much (`DEF_PRIORITY`).
pub(super) const PRIORITY_FIRST: u32 = 12;
pub(super) const BATCH_PAGES: u64 = 32;
/// Full passes without success before reclaim gives up.
const NR_SWEEPS_MAX: u32 = 3;
const NR_GROUPS_MAX: u32 = 64;
/// Objects per call of a shrinker (`SHRINK_BATCH`).
const SHRINK_BATCH: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaimer {
    Kswapd,
    Direct,
    Group,
}

#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts about a request: independent of each other"
)]
pub(super) struct Scan {
    pub(super) who: Reclaimer,
    pub(super) target: GroupId,
    nr_wanted: u64,
    pub(super) nr_freed: u64,
    pub(super) priority: u32,
    may_deactivate: [bool; 2],
    /// Enough inactive file memory exists: scan nothing else.
    is_trimming: bool,
    has_spared: bool,
    takes_low: bool,
    has_left_low: bool,
    takes_kept: bool,
    pub(super) nr_file_taken: u64,
    pub(super) nr_dirty: u64,
}

impl Scan {
    fn new(who: Reclaimer, target: GroupId, nr_wanted: u64) -> Self {
        Self {
            who,
            target,
            nr_wanted,
            nr_freed: 0,
            priority: PRIORITY_FIRST,
            may_deactivate: [false; 2],
            is_trimming: false,
            has_spared: false,
            takes_low: false,
            has_left_low: false,
            takes_kept: false,
            nr_file_taken: 0,
            nr_dirty: 0,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.nr_freed >= self.nr_wanted
    }
}

type Goals = [(ListId, u64); 4];

impl Memory {
    /// Reclaims, and counts the wait of the process that needs the memory.
    pub(super) fn shrink(&mut self, who: Reclaimer, target: GroupId, nr_wanted: u64) -> u64 {
        let nr_before = self.core.counters.reclaim.pgscan_direct;
        let nr_freed = self.shrink_lists(who, target, nr_wanted);
        if who != Reclaimer::Kswapd {
            let nr_examined = self.core.counters.reclaim.pgscan_direct - nr_before;
            let StallCosts { examined_ns, freed_ns, .. } = self.core.stalls.costs;
            let ns = nr_examined.saturating_mul(examined_ns);
            let ns = ns.saturating_add(nr_freed.saturating_mul(freed_ns));
            self.core.stalls.add(self.core.groups.current(), ns);
        }
        nr_freed
    }

    fn shrink_lists(&mut self, who: Reclaimer, target: GroupId, nr_wanted: u64) -> u64 {
        let mut scan = Scan::new(who, target, nr_wanted);
        self.core.pressure.target = target;
        self.core.pressure.nr_requests += 1;
        self.core.pressure.nr_kept = 0;
        let (mut nr_sweeps, mut is_forced) = (0, false);
        let mut repeats =
            who != Reclaimer::Kswapd && self.rules.reclaim.failed_scan == FailedScan::Repeats;
        loop {
            self.shrink_by_priority(&mut scan, is_forced);
            nr_sweeps += 1;
            if scan.nr_freed > 0 {
                break;
            }
            if std::mem::take(&mut repeats) {
                continue;
            }
            // Nothing else was left: scan the active lists, whatever their size.
            if scan.has_spared && !is_forced {
                is_forced = true;
            } else if scan.has_left_low && !scan.takes_low {
                scan.takes_low = true;
            } else if self.core.pressure.nr_kept > 0 && !scan.takes_kept {
                scan.takes_kept = true;
            } else if who == Reclaimer::Group || nr_sweeps >= NR_SWEEPS_MAX {
                break;
            }
        }
        self.core.pressure.target = GroupId::ROOT;
        if std::mem::take(&mut self.core.pressure.wants_flush) {
            self.flush_dirty();
        }
        scan.nr_freed
    }

    fn shrink_by_priority(&mut self, scan: &mut Scan, is_forced: bool) {
        for priority in (0..=PRIORITY_FIRST).rev() {
            scan.priority = priority;
            self.core.pressure.is_last_look = priority == 0 || scan.takes_kept;
            if priority == 0 && scan.nr_freed == 0 {
                self.end_keeping(scan.target);
            }
            self.prepare_scan(scan, is_forced);
            self.shrink_groups(scan);
            self.shrink_others(scan.target, priority);
            if scan.is_done() {
                break;
            }
        }
        self.core.pressure.is_last_look = false;
        let vec = self.core.folios.lru_mut().vec_mut(scan.target);
        vec.activated_before = LruKind::ALL.map(|kind| vec.activated_seen(kind));
    }

    /// Calls the shrinkers. Pages that they free do not count as reclaimed.
    fn shrink_others(&mut self, target: GroupId, priority: u32) {
        let is_hidden =
            self.rules.reclaim.deferred_queue == DeferredQueue::Listed && !self.rules.zswap.charged;
        if target == GroupId::ROOT || !is_hidden {
            self.shrink_queue(priority);
        }
        if priority == 0 {
            let _ = self.shrink_huge_zero();
        }
    }

    fn shrink_queue(&mut self, priority: u32) {
        let queue = &self.core.deferred;
        let share = QueueShare::new(queue.len() as u64, queue.nr_put_off, priority);
        self.core.deferred.nr_put_off = share.nr_put_off;
        if share.nr_to_scan > 0 {
            let _ = self.shrink_deferred(share.nr_to_scan as usize);
        }
    }

    fn prepare_scan(&mut self, scan: &mut Scan, is_forced: bool) {
        let group_stats = self.rules.reclaim.group_stats;
        let vec = self.core.folios.lru_mut().vec_mut(scan.target);
        match group_stats {
            // Global reclaim uses exact counts.
            _ if scan.target == GroupId::ROOT => vec.flush(),
            GroupStats::AtThreshold => vec.flush_if_needed(),
            GroupStats::Periodic => vec.flush_if_old(),
        }
        if self.rules.reclaim.cost == CostRule::Counters {
            vec.count_costs();
        }
        for kind in LruKind::ALL {
            let vec = self.core.folios.lru().vec(scan.target);
            // Refaulted pages became active, so the active ones may be colder: let them compete.
            let has_activated = vec.activated_seen(kind) != vec.activated_before[kind as usize];
            scan.may_deactivate[kind as usize] =
                is_forced || has_activated || self.is_inactive_low(scan.target, kind);
        }
        let inactive = self.core.nr_listed(scan.target, ListId::new(LruKind::File, Age::Inactive));
        scan.is_trimming =
            inactive >> scan.priority > 0 && !scan.may_deactivate[LruKind::File as usize];
    }

    fn is_inactive_low(&self, group: GroupId, kind: LruKind) -> bool {
        let [inactive, active] = [Age::Inactive, Age::Active]
            .map(|age| self.core.nr_listed(group, ListId::new(kind, age)));
        let gib = (inactive + active) << self.rules.page.shift() >> 30;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }

    fn shrink_groups(&mut self, scan: &mut Scan) {
        if scan.target != GroupId::ROOT {
            self.shrink_lruvec(scan, scan.target);
            return;
        }
        let nr_groups = self.core.groups.nr();
        for _ in 0..nr_groups.min(NR_GROUPS_MAX) {
            let group = GroupId(self.core.groups.cursor % nr_groups);
            self.core.groups.cursor = (group.0 + 1) % nr_groups;
            self.shrink_lruvec(scan, group);
            if nr_groups > 1 && scan.is_done() {
                break;
            }
        }
    }

    fn is_protected(&mut self, scan: &mut Scan, group: GroupId) -> bool {
        let limits = self.core.groups.get(group).limits;
        let nr_pages = self.core.folios.lru().vec(group).nr_charged();
        if scan.target == group || limits.min.max(limits.low) == 0 {
            return false;
        }
        if nr_pages <= limits.min {
            return true;
        }
        if nr_pages <= limits.low {
            scan.has_left_low = true;
            self.core.groups.get_mut(group).events.low += u64::from(scan.takes_low);
            return !scan.takes_low;
        }
        false
    }

    pub(super) fn unprotected(&self, scan: &Scan, group: GroupId, nr_pages: u64) -> u64 {
        let limits = self.core.groups.get(group).limits;
        let protected = if scan.takes_low { limits.min } else { limits.min.max(limits.low) };
        if scan.target == group || protected == 0 {
            return nr_pages;
        }
        let nr_charged = self.core.folios.lru().vec(group).nr_charged().max(protected);
        let nr_left = u128::from(nr_pages) * u128::from(protected) / u128::from(nr_charged + 1);
        (nr_pages - nr_left as u64).max(BATCH_PAGES.min(nr_pages))
    }

    fn shrink_lruvec(&mut self, scan: &mut Scan, group: GroupId) {
        self.core.work.add_cheap(1);
        if self.is_protected(scan, group) {
            return;
        }
        let nr_left = scan.nr_wanted.saturating_sub(scan.nr_freed);
        let nr_chosen = self.shrink_chosen(scan.who, group, nr_left);
        scan.nr_freed += nr_chosen;
        if nr_chosen > 0 && scan.is_done() {
            return;
        }
        if self.core.folios.generations().is_some() {
            self.shrink_generations(scan, group);
            return;
        }
        let wanted = self.goals(scan, group);
        let mut goals = wanted;
        let mut nr_freed = 0;
        let is_proportional = scan.who == Reclaimer::Direct && scan.priority == PRIORITY_FIRST;
        let is_left = |goals: &Goals| goals[0].1 + goals[2].1 + goals[3].1 > 0;
        while is_left(&goals) {
            for (list, goal) in &mut goals {
                let nr = BATCH_PAGES.min(*goal);
                *goal -= nr;
                if nr > 0 {
                    nr_freed += self.shrink_list(scan, group, *list, nr);
                }
            }
            if nr_freed < scan.nr_wanted || is_proportional {
                continue;
            }
            // Enough is freed: the rest only keeps the proportion between the kinds.
            if !stop_smaller(&wanted, &mut goals) {
                break;
            }
        }
        scan.nr_freed += nr_freed;
        // Inactive lists that are not scanned must still be refilled.
        let shift = self.rules.page.shift();
        let vec = self.core.folios.lru().vec(group);
        if self.can_swap() && vec.is_inactive_low(LruKind::Anon, shift) {
            let list = ListId::new(LruKind::Anon, Age::Active);
            self.shrink_active(group, list, BATCH_PAGES);
        }
    }

    fn shrink_list(&mut self, scan: &mut Scan, group: GroupId, list: ListId, nr: u64) -> u64 {
        match list.age() {
            Age::Inactive => self.shrink_inactive(scan.who, group, list, nr),
            Age::Active if scan.may_deactivate[list.kind as usize] => {
                self.shrink_active(group, list, nr);
                0
            }
            Age::Active => {
                scan.has_spared = true;
                0
            }
        }
    }

    pub(super) fn can_swap(&self) -> bool {
        self.core.pressure.swap.as_ref().is_some_and(Swap::has_free)
    }

    fn goals(&self, scan: &Scan, group: GroupId) -> Goals {
        let weights = match (self.can_swap(), scan.priority) {
            (false, _) => [0, 1],
            (true, 0) => [1, 1],
            (true, _) if scan.is_trimming => [0, 1],
            (true, _) => self.core.folios.lru().vec(scan.target).weights(SWAPPINESS),
        };
        let is_fraction = weights[0] > 0 && scan.priority > 0;
        let sum = if is_fraction { weights[0] + weights[1] } else { 1 };
        ListId::ALL.map(|list| {
            let nr_pages = self.core.folios.lru().vec(group).nr_pages(list);
            let nr = self.unprotected(scan, group, nr_pages) >> scan.priority;
            (list, nr * weights[list.kind as usize] / sum)
        })
    }
}

/// How much of the queue of deferred splits one pass scans (P.2.9).
#[derive(Debug, PartialEq, Eq)]
struct QueueShare {
    nr_to_scan: u64,
    nr_put_off: u64,
}

impl QueueShare {
    /// A share by priority of twice the queue, and of what earlier passes left. Nothing if that is
    /// smaller than both the queue and a batch; then it is left to the next pass.
    fn new(nr_queued: u64, nr_put_off: u64, priority: u32) -> Self {
        if nr_queued == 0 {
            return Self { nr_to_scan: 0, nr_put_off };
        }
        let share = 2 * (nr_queued >> priority);
        let mut nr_left = ((nr_put_off >> priority) + share).min(2 * nr_queued);
        let nr_all = nr_left;
        while nr_left >= SHRINK_BATCH.min(nr_queued) {
            nr_left -= nr_left.min(SHRINK_BATCH);
        }
        let nr_to_scan = nr_all - nr_left;
        let nr_put_off = (nr_put_off + share).saturating_sub(nr_to_scan).min(2 * nr_queued);
        Self { nr_to_scan, nr_put_off }
    }
}

/// Stops the kind with less left, and limits the other to its share. Returns whether to continue.
fn stop_smaller(wanted: &Goals, goals: &mut Goals) -> bool {
    let left = |goals: &Goals, kind: usize| goals[2 * kind].1 + goals[2 * kind + 1].1;
    let (anon, file) = (left(goals, 0), left(goals, 1));
    if anon == 0 || file == 0 {
        return false;
    }
    let stopped = usize::from(file <= anon);
    let percentage = anon.min(file) * 100 / (left(wanted, stopped) + 1);
    for at in [2 * stopped, 2 * stopped + 1] {
        goals[at].1 = 0;
    }
    let other = 1 - stopped;
    for at in [2 * other, 2 * other + 1] {
        let nr_scanned = wanted[at].1 - goals[at].1;
        goals[at].1 = (wanted[at].1 * (100 - percentage) / 100).saturating_sub(nr_scanned);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_scans_the_queue_once_its_share_is_as_long() {
        let share = |nr_queued, nr_put_off, priority| {
            let QueueShare { nr_to_scan, nr_put_off } =
                QueueShare::new(nr_queued, nr_put_off, priority);
            (nr_to_scan, nr_put_off)
        };
        assert_eq!(share(1, 0, 1), (0, 0), "one folio halved");
        assert_eq!(share(1, 0, 0), (2, 0));
        assert_eq!(share(2, 0, 1), (2, 0));
        assert_eq!(share(3, 0, 1), (0, 2), "two of three: left to the next pass");
        assert_eq!(share(3, 2, 1), (3, 1));
        assert_eq!(share(1000, 0, 2), (384, 116), "three batches of 128");
        assert_eq!(share(0, 5, 0), (0, 5));
    }

    #[test]
    fn what_is_left_keeps_the_proportion_of_both_kinds() {
        let goals = |nr: [u64; 4]| [0, 1, 2, 3].map(|at| (ListId::ALL[at], nr[at]));
        let wanted = goals([100, 0, 400, 0]);
        // A third of the anonymous pages was scanned, a twelfth of the file pages.
        let mut left = goals([68, 0, 368, 0]);
        assert!(stop_smaller(&wanted, &mut left));
        // 67 of 101 were left: the file list also stops at 33 of 100, 32 of which are done.
        assert_eq!(left.map(|(_, nr)| nr), [0, 0, 132 - 32, 0]);
        assert!(!stop_smaller(&wanted, &mut left));
    }
}
