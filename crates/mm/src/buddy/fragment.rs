//! A zone's initial state: all free, or fragmented to a target.
//!
//! A fragmented zone models a machine that has run for a while. Some page frames are pinned (never
//! freed) and placed so that large blocks are rare. The target is the unusable index (I.10) at one
//! order. Memory is divided into aligned groups of `2^order` pages. With S pages per group, P
//! pinned and F free pages in total, an index u needs `(u * F + P) / S` broken groups. They are
//! drawn at random without replacement. Each has one run of pinned pages at a random position that
//! can wrap around the group's end; all runs have (almost) the same length. At `order`, the index
//! is exact except for rounding and pages after the last whole group. At larger orders it is at
//! least as high; at smaller orders it falls quickly. The pins are unmovable pages; pageblocks stay
//! movable.

use serde::{Deserialize, Serialize};

use crate::units::Order;

use super::random::Random;
use super::{Buddy, BuddyError, MigrateType};

/// Page frames in use, in thousandths, unless the target needs more pins.
const USED_PERMILLE: u64 = 100;

/// Page frames pinned from the start. Equal values pin the same page frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fragmentation {
    /// Seed of the pattern.
    pub seed: u64,
    /// Pinned share of all page frames, in thousandths: 0 ..= 999.
    pub used_permille: u32,
    /// Order to which the target applies.
    pub order: Order,
    /// Target of [`Buddy::unusable_index`] at `order`, in thousandths: 0 ..= 1000.
    pub unusable_permille: u32,
}

struct FragmentPlan {
    groups: u64,
    broken: u64,
    pinned: u64,
}

impl Fragmentation {
    /// The target with as few pinned page frames as possible: a tenth, or one pin per broken group
    /// if that is more. With p of memory pinned, u unusable and groups of S pages, that is `p >= u
    /// / (S - 1 + u)`.
    ///
    /// ```
    /// use largefolio_mm::buddy::Fragmentation;
    /// use largefolio_mm::units::Order;
    /// let used = |order, permille| Fragmentation::at(Order::new(order), permille, 1).used_permille;
    /// assert_eq!([used(9, 800), used(4, 800), used(2, 800), used(1, 1000)], [100, 100, 211, 501]);
    /// ```
    #[must_use]
    pub fn at(order: Order, unusable_permille: u32, seed: u64) -> Self {
        let unusable = u64::from(unusable_permille);
        let below = (1000 * (order.nr_pages() - 1) + unusable).max(1);
        let needed = 1000 * unusable / below + 1;
        let used_permille = needed.max(USED_PERMILLE) as u32;
        Self { seed, used_permille, order, unusable_permille }
    }

    fn plan(&self, nr_pages: u64, max_order: Order) -> Result<FragmentPlan, BuddyError> {
        let group = self.order.nr_pages();
        let nr_groups = nr_pages / group;
        if self.used_permille > 999 || self.unusable_permille > 1000 || self.order > max_order {
            return Err(self.error(
                "pass 0..=999 permille used, 0..=1000 permille unusable and a buddy order",
            ));
        }
        let nr_pinned = nr_pages * u64::from(self.used_permille) / 1000;
        let nr_unusable = (nr_pages - nr_pinned) * u64::from(self.unusable_permille) / 1000;
        let nr_broken = (nr_unusable + nr_pinned).div_ceil(group);
        if nr_broken > nr_groups {
            return Err(self.error("memory has too few whole groups: lower either value"));
        }
        if nr_broken > nr_pinned {
            return Err(self.error("each broken group needs a pinned page: raise used_permille"));
        }
        Ok(FragmentPlan { groups: nr_groups, broken: nr_broken, pinned: nr_pinned })
    }

    const fn error(&self, why: &'static str) -> BuddyError {
        BuddyError::Fragmentation {
            used_permille: self.used_permille,
            unusable_permille: self.unusable_permille,
            order: self.order,
            why,
        }
    }
}

impl Buddy {
    pub(super) fn free_at_boot(&mut self) {
        self.lists.set_fresh(self.nr_pages);
        self.free_run_at_boot(self.max_order.round_down(self.nr_pages), self.nr_pages);
    }

    pub(super) fn fragment_at_boot(&mut self, target: Fragmentation) -> Result<(), BuddyError> {
        let plan = target.plan(self.nr_pages, self.max_order)?;
        let group = target.order.nr_pages();
        let mut random = Random(target.seed);
        let mut nr_left = plan.broken;
        let mut pins_left = plan.pinned;
        let mut free_from = 0;
        for nr in 0..plan.groups {
            // Selection sampling: each remaining group is equally likely to be broken.
            if random.below(plan.groups - nr) >= nr_left {
                continue;
            }
            let len = pins_left.div_ceil(nr_left);
            nr_left -= 1;
            pins_left -= len;
            for (first, end) in wrapped_run(nr * group, group, random.below(group), len) {
                self.free_run_at_boot(free_from, first);
                self.pin(first, end);
                free_from = end;
            }
        }
        self.free_run_at_boot(free_from, self.nr_pages);
        Ok(())
    }

    /// Puts a maximal run of free pages on the movable lists, as aligned blocks in page frame
    /// order, each at the tail.
    fn free_run_at_boot(&mut self, first: u64, end: u64) {
        let mut pfn = first;
        while pfn < end {
            let order = Order::alignment_of(pfn).min(Order::floor_of(end - pfn));
            let order = order.min(self.max_order);
            self.lists.push_back(pfn, order, MigrateType::Movable);
            pfn += order.nr_pages();
        }
    }

    fn pin(&mut self, first: u64, end: u64) {
        for pfn in first..end {
            self.allocated.set(pfn, Order::ZERO);
        }
        self.nr_allocated += end - first;
    }
}

/// The page frames `start .. start + len` of a group, wrapped, as ascending ranges.
fn wrapped_run(base: u64, group: u64, start: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let wrapped = (start + len).saturating_sub(group);
    let head = (base, base + wrapped);
    let rest = (base + start, base + (start + len).min(group));
    [head, rest].into_iter().filter(|(first, end)| first < end)
}
