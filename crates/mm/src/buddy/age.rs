//! Ageing: what other programs did to memory before the traced one starts.
//!
//! A seeded workload. Each round frees a quarter of the blocks in use, drawn at random, and then
//! allocates until fifteen sixteenths of the zone are in use again. Every request draws a size from
//! [`Ageing::orders`] and is served, by memory, as
//!
//! | share | mobility | blocks |
//! |---|---|---|
//! | 10/16 | movable | one folio of that size, or the next smaller size that is free |
//! | 4/16 | movable | base pages |
//! | 1/16 | unmovable | kernel memory, orders 0 to 3 |
//! | 1/16 | reclaimable | kernel caches, orders 0 to 3 |
//!
//! At the end random movable blocks go until half of the zone is free. What is left belongs to
//! programs that go on: it is pinned, as the pins of `fragment` are. So the sizes that a kernel uses
//! decide which holes it finds later (docs/design/reclaim.md, "Memory that has aged").
//!
//! The shares are choices, not measurements. Differs: nothing is reclaimed or compacted while
//! memory ages, and blocks go at random, not in the order of their use: a kernel does better.
//!
//! Work: at most one step for each page of the zone and round.

use crate::counters::NR_ORDERS;
use crate::rules::anon::Orders;
use crate::units::{Order, Pfn};

use super::random::Random;
use super::{Buddy, MigrateType};

/// Sixteenths of the zone in use when a round ends.
const FULL_SIXTEENTHS: u64 = 15;
/// One block in so many goes in each round.
const FREED_OF: u64 = 4;
/// Sixteenths of the requests, by memory, that are served in base pages.
const BASE_SIXTEENTHS: u64 = 4;
/// Sixteenths that are unmovable, and as many that are reclaimable.
const KERNEL_SIXTEENTHS: u64 = 1;
/// Largest order of kernel memory, and one more.
const NR_KERNEL_ORDERS: u64 = 4;

/// How memory is worn down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// Seed of the workload.
    pub seed: u64,
    /// Rounds; 0 leaves memory as it is.
    pub rounds: u32,
    /// Sizes of the folios that programs ask for; order 0 in it means nothing.
    pub orders: Orders,
}

/// Folios that one round asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundOfAgeing {
    /// Requests by order, those that came down from a larger order included.
    pub nr_asked: [u64; NR_ORDERS],
    /// Requests that found a free block.
    pub nr_got: [u64; NR_ORDERS],
}

/// A block in use.
#[derive(Clone, Copy)]
struct Block {
    pfn: Pfn,
    order: Order,
    of: MigrateType,
}

/// The workload in the middle of it.
struct Wear<'a> {
    buddy: &'a mut Buddy,
    random: Random,
    /// Sizes, largest first.
    orders: Vec<Order>,
    live: Vec<Block>,
    round: RoundOfAgeing,
}

impl Buddy {
    /// Wears memory down; what each round asked for.
    pub fn age(&mut self, ageing: Ageing) -> Vec<RoundOfAgeing> {
        let max = self.max_order;
        let orders = ageing.orders.descending().filter(|&of| of > Order::ZERO && of <= max);
        let orders: Vec<Order> = orders.collect();
        if orders.is_empty() || ageing.rounds == 0 {
            return Vec::new();
        }
        let (random, round) = (Random(ageing.seed), RoundOfAgeing::default());
        let mut wear = Wear { buddy: self, random, orders, live: Vec::new(), round };
        let mut rounds = Vec::new();
        for _ in 0..ageing.rounds {
            wear.free_some();
            wear.fill();
            rounds.push(std::mem::take(&mut wear.round));
        }
        wear.free_half();
        rounds
    }
}

impl Wear<'_> {
    fn free_some(&mut self) {
        let live = std::mem::take(&mut self.live);
        for block in live {
            if self.random.below(FREED_OF) == 0 {
                self.buddy.free(block.pfn, block.order);
            } else {
                self.live.push(block);
            }
        }
    }

    fn fill(&mut self) {
        let target = self.buddy.nr_pages / 16 * FULL_SIXTEENTHS;
        while self.buddy.nr_allocated < target {
            let nr = self.random.below(self.orders.len() as u64);
            let order = self.orders[nr as usize];
            let share = self.random.below(16);
            if share < KERNEL_SIXTEENTHS {
                self.take_kernel(order, MigrateType::Unmovable);
            } else if share < 2 * KERNEL_SIXTEENTHS {
                self.take_kernel(order, MigrateType::Reclaimable);
            } else if share < 2 * KERNEL_SIXTEENTHS + BASE_SIXTEENTHS {
                self.take_base(order.nr_pages());
            } else {
                self.take_folio(nr as usize);
            }
        }
    }

    /// A folio of the size with this number or of the next smaller that is free; else base pages.
    fn take_folio(&mut self, nr: usize) {
        let wanted = self.orders[nr];
        for at in nr..self.orders.len() {
            let order = self.orders[at];
            self.round.nr_asked[usize::from(order.get())] += 1;
            if self.take(order, MigrateType::Movable) {
                self.round.nr_got[usize::from(order.get())] += 1;
                return;
            }
        }
        self.take_base(wanted.nr_pages());
    }

    fn take_base(&mut self, nr_pages: u64) {
        for _ in 0..nr_pages {
            self.take(Order::ZERO, MigrateType::Movable);
        }
    }

    /// As much kernel memory as a folio of `order` has.
    fn take_kernel(&mut self, order: Order, of: MigrateType) {
        let mut left = order.nr_pages();
        while left > 0 {
            let drawn = Order::new(self.random.below(NR_KERNEL_ORDERS) as u8);
            let order = drawn.min(Order::floor_of(left));
            if !self.take(order, of) {
                self.take(Order::ZERO, of);
            }
            left -= order.nr_pages();
        }
    }

    fn take(&mut self, order: Order, of: MigrateType) -> bool {
        let Some(pfn) = self.buddy.alloc(order, of) else { return false };
        self.live.push(Block { pfn, order, of });
        true
    }

    /// Frees random movable blocks until half of the zone is free.
    fn free_half(&mut self) {
        let target = self.buddy.nr_pages / 2;
        let mut movable: Vec<Block> = std::mem::take(&mut self.live);
        movable.retain(|block| block.of == MigrateType::Movable);
        while self.buddy.nr_allocated > target && !movable.is_empty() {
            let nr = self.random.below(movable.len() as u64) as usize;
            let block = movable.swap_remove(nr);
            self.buddy.free(block.pfn, block.order);
        }
    }
}
