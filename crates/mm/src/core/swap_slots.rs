//! Free slots of swap space (docs/behaviour P.5.1).
//!
//! Corresponds to: `cluster_alloc_swap_entry`, `alloc_swap_scan_cluster`, `free_cluster`.
//!
//! ```text
//!   [ cluster of order 0 ][ cluster of order 4 ][ free ][ free ] ..
//!     used used . used .    16 used  16 free
//!              next ^               ^ next
//! ```
//!
//! A cluster has as many slots as a PMD block has pages. It serves folios of one order until all
//! its slots are free again. Each order allocates in this sequence:
//! 1. after the slots it took last, in the same cluster;
//! 2. from a free cluster;
//! 3. from another of its clusters with room.
//!
//! From 6.18, 3 comes before 2. The first slot of the swap space holds its header, so base pages begin in
//! the first cluster, after the header. Before, they begin in the second cluster; the model leaves out the
//! first.
//!
//! Base pages finally also use leftover slots in clusters of other orders.
//!
//! Does not own the contents of used slots ([`super::swap`]).
//!
//! Invariants:
//! - I1: a cluster counts its used slots. A cluster with no used slots is queued as free or fresh.

use std::collections::{BTreeMap, VecDeque};

use crate::rules::reclaim::SlotChoice;
use crate::units::{Order, SwapSlot};

#[derive(Clone, Debug)]
struct Cluster {
    is_used: Vec<bool>,
    nr_used: u64,
    order: Order,
}

#[derive(Clone, Debug)]
pub(super) struct Slots {
    clusters: BTreeMap<u64, Cluster>,
    order: Order,
    first_fresh: u64,
    /// Clusters that became free again, oldest first.
    free: VecDeque<u64>,
    next: Vec<Option<SwapSlot>>,
    choice: SlotChoice,
    nr_all: u64,
    /// Without the header.
    nr_used: u64,
}

type SlotRange = (u64, u64);

impl Cluster {
    fn find(&self, from: u64, nr: u64) -> Option<u64> {
        let is_free = |first: &u64| {
            let slots = *first as usize..(first + nr) as usize;
            self.is_used.get(slots).is_some_and(|slots| slots.iter().all(|is_used| !is_used))
        };
        let first = from.next_multiple_of(nr);
        (first..self.is_used.len() as u64).step_by(nr as usize).find(is_free)
    }
}

impl Slots {
    /// `nr_all` free slots in clusters of `order`. The last cluster can be smaller.
    pub(super) fn new(order: Order, nr_all: u64, choice: SlotChoice) -> Self {
        let next = vec![None; usize::from(order.get()) + 1];
        let (clusters, free) = (BTreeMap::new(), VecDeque::new());
        let mut slots =
            Self { clusters, order, first_fresh: 0, free, next, choice, nr_all, nr_used: 0 };
        if choice == SlotChoice::UsedFirst && nr_all > 0 {
            slots.add_header();
        }
        slots
    }

    fn add_header(&mut self) {
        self.nr_all += 1;
        let mut is_used = vec![false; self.len_of(0) as usize];
        is_used[0] = true;
        self.clusters.insert(0, Cluster { is_used, nr_used: 1, order: Order::ZERO });
        self.first_fresh = 1;
    }

    fn nr_header(&self) -> u64 {
        u64::from(self.choice == SlotChoice::UsedFirst).min(self.nr_all)
    }

    pub(super) fn nr_free(&self) -> u64 {
        self.nr_all - self.nr_used - self.nr_header()
    }

    pub(super) const fn nr_used(&self) -> u64 {
        self.nr_used
    }

    pub(super) fn alloc(&mut self, order: Order) -> Option<SwapSlot> {
        if order > self.order {
            return None;
        }
        let (number, first) = self.find(order)?;
        let nr = order.nr_pages();
        let len = self.len_of(number);
        if !self.clusters.contains_key(&number) {
            self.free.retain(|&other| other != number);
            self.first_fresh = self.first_fresh.max(number + 1);
        }
        let new = || Cluster { is_used: vec![false; len as usize], nr_used: 0, order };
        let cluster = self.clusters.entry(number).or_insert_with(new);
        cluster.is_used[first as usize..(first + nr) as usize].fill(true);
        cluster.nr_used += nr;
        self.nr_used += nr;
        let slot = SwapSlot((number << self.order.get()) + first);
        self.next[usize::from(order.get())] = Some(slot.plus(nr));
        Some(slot)
    }

    fn len_of(&self, number: u64) -> u64 {
        self.order.nr_pages().min(self.nr_all - (number << self.order.get()))
    }

    fn find(&self, order: Order) -> Option<SlotRange> {
        let nr = order.nr_pages();
        let of = |is: &dyn Fn(&Cluster) -> bool| {
            let mut clusters = self.clusters.iter().filter(|(_, cluster)| is(cluster));
            clusters.find_map(|(&number, cluster)| Some((number, cluster.find(0, nr)?)))
        };
        let own = || of(&|cluster| cluster.order == order);
        let next = self.find_next(order);
        let found = match self.choice {
            SlotChoice::FreeFirst => next.or_else(|| self.find_free(nr)).or_else(own),
            SlotChoice::UsedFirst => next.or_else(own).or_else(|| self.find_free(nr)),
        };
        found.or_else(|| of(&|_| order == Order::ZERO))
    }

    fn find_next(&self, order: Order) -> Option<SlotRange> {
        let next = self.next[usize::from(order.get())]?.0;
        let number = next >> self.order.get();
        let from = next - (number << self.order.get());
        if from == 0 {
            return None;
        }
        let Some(cluster) = self.clusters.get(&number) else {
            let fits = from + order.nr_pages() <= self.len_of(number);
            return fits.then_some((number, from));
        };
        let is_its_own = cluster.order == order;
        is_its_own.then(|| cluster.find(from, order.nr_pages())).flatten().map(|at| (number, at))
    }

    fn find_free(&self, nr: u64) -> Option<SlotRange> {
        let is_there = self.first_fresh << self.order.get() < self.nr_all;
        let fresh = is_there.then_some(self.first_fresh);
        let mut all = fresh.into_iter().chain(self.free.iter().copied());
        all.find(|&number| nr <= self.len_of(number)).map(|number| (number, 0))
    }

    pub(super) fn free(&mut self, slot: SwapSlot) {
        let number = slot.0 >> self.order.get();
        let Some(cluster) = self.clusters.get_mut(&number) else { return };
        cluster.is_used[(slot.0 - (number << self.order.get())) as usize] = false;
        cluster.nr_used -= 1;
        self.nr_used -= 1;
        if cluster.nr_used == 0 {
            self.clusters.remove(&number);
            self.free.push_back(number);
        }
    }

    pub(super) fn validate(&self) -> bool {
        let is_counted = |cluster: &Cluster| {
            let nr_used = cluster.is_used.iter().filter(|is_used| **is_used).count();
            cluster.nr_used > 0 && cluster.nr_used == nr_used as u64
        };
        self.clusters.values().all(is_counted)
            && self.first_fresh == (self.clusters.len() + self.free.len()) as u64
            && self.free.iter().all(|number| !self.clusters.contains_key(number))
            && self.nr_used + self.nr_header()
                == self.clusters.values().map(|cluster| cluster.nr_used).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_not_the_next_one() {
        let mut slots = Slots::new(Order::new(9), 2048, SlotChoice::FreeFirst);
        let large = slots.alloc(Order::new(4)).unwrap();
        assert_eq!(large, SwapSlot(0));
        slots.free(SwapSlot(3));
        assert_eq!(slots.alloc(Order::ZERO), Some(SwapSlot(512)));
        assert_eq!(slots.alloc(Order::ZERO), Some(SwapSlot(513)));
        slots.free(SwapSlot(512));
        assert_eq!(slots.alloc(Order::ZERO), Some(SwapSlot(514)));
        assert_eq!(slots.alloc(Order::new(4)), Some(SwapSlot(16)));
        assert!(slots.validate());
    }

    #[test]
    fn used_clusters_come_first_from_the_header_on() {
        let mut slots = Slots::new(Order::new(4), 40, SlotChoice::UsedFirst);
        assert_eq!(slots.alloc(Order::ZERO), Some(SwapSlot(1)));
        assert_eq!(slots.alloc(Order::new(2)), Some(SwapSlot(16)));
        let pages: Vec<_> = (0..15).filter_map(|_| slots.alloc(Order::ZERO)).collect();
        assert_eq!((pages[13], pages[14]), (SwapSlot(15), SwapSlot(32)));
        slots.free(SwapSlot(3));
        assert_eq!(slots.alloc(Order::ZERO), Some(SwapSlot(33)), "after the last");
        assert_eq!((slots.nr_used(), slots.nr_free()), (20, 20));
        assert!(slots.validate());
    }

    #[test]
    fn base_pages_take_the_last_slots_of_other_clusters() {
        let mut slots = Slots::new(Order::new(4), 20, SlotChoice::FreeFirst);
        assert_eq!(slots.alloc(Order::new(3)), Some(SwapSlot(0)));
        let pages: Vec<_> = std::iter::from_fn(|| slots.alloc(Order::ZERO)).collect();
        assert_eq!(pages.len(), 12);
        assert_eq!((slots.nr_free(), slots.alloc(Order::new(1))), (0, None));
        for slot in 0..20 {
            slots.free(SwapSlot(slot));
        }
        assert!(slots.validate() && slots.nr_free() == 20);
    }
}
