//! Ageing: simulates what other programs did to memory before the traced program starts.
//!
//! The workload is random but seeded. Each round frees a random quarter of the used blocks, then
//! allocates until fifteen sixteenths of the zone are in use again. Each request draws a size from
//! [`Ageing::orders`]. The requests are split as follows, by amount of memory:
//!
//! |---|---|---|
//! | 10/16 | movable | one folio of that size, or the next smaller size that is free |
//! | 4/16 | movable | base pages |
//! | 1/16 | unmovable | kernel memory, orders 0 to 3 |
//! | 1/16 | reclaimable | kernel caches, orders 0 to 3 |
//!
//!
//! At the end, random movable blocks are freed until half of the zone is free. The rest belongs to
//! programs that keep running: it is pinned, as in `fragment`. The folio sizes that a kernel uses
//! therefore determine which free blocks it finds later (docs/design/reclaim.md).
//!
//! The shares are choices, not measurements. Differs: nothing is reclaimed or compacted during
//! ageing, and blocks are freed at random, not by last use. A real kernel would do better.
//!
//! Work ([`Ageing::steps`]): each round allocates and frees fewer pages than there are in the zone.
//! State: [`Ageing::state_bytes`].

use std::ops::ControlFlow;

use crate::counters::NR_ORDERS;
use crate::rules::anon::Orders;
use crate::units::{Order, Pfn};

use super::random::Random;
use super::{Buddy, MigrateType};

const FULL_SIXTEENTHS: u64 = 15;
const FREED_OF: u64 = 4;
const BASE_SIXTEENTHS: u64 = 4;
/// Sixteenths that are unmovable; as many are reclaimable.
const KERNEL_SIXTEENTHS: u64 = 1;
/// Number of orders of kernel memory, from 0.
const NR_KERNEL_ORDERS: u64 = 4;
/// Pages of a round per step: 90 ns each in a test build on a busy machine.
const PAGES_OF_STEP: u64 = 8;
/// Bytes of state per page of the zone: at worst one used block per page, in a list with up to
/// twice the needed capacity, plus the zone's own state, all of it touched.
const BYTES_OF_PAGE: u64 = 2 * size_of::<Block>() as u64 + super::BYTES_OF_PAGE;
/// Blocks taken or freed between two checks with the caller: a few milliseconds.
const NR_BLOCKS_UNCHECKED: u32 = 1 << 16;

/// How memory is aged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// Seed of the workload.
    pub seed: u64,
    /// Number of rounds; 0 leaves memory unchanged.
    pub rounds: u32,
    /// Folio sizes that programs request. Order 0 in it has no effect.
    pub orders: Orders,
}

impl Ageing {
    /// Steps to age a zone of `nr_pages`, as counted by a budget.
    ///
    /// ```
    /// use largefolio_mm::buddy::Ageing;
    /// use largefolio_mm::rules::anon::Orders;
    /// let ageing = Ageing { seed: 1, rounds: 20, orders: Orders::NONE };
    /// assert_eq!(ageing.steps(1 << 22), 20 * (1 << 19)); // 16 GiB of 4 KiB pages
    /// ```
    #[must_use]
    pub const fn steps(&self, nr_pages: u64) -> u64 {
        (nr_pages / PAGES_OF_STEP).saturating_mul(self.rounds as u64)
    }

    /// Bytes of state of a zone of `nr_pages`, including the zone itself.
    #[must_use]
    pub const fn state_bytes(&self, nr_pages: u64) -> u64 {
        if self.rounds == 0 { 0 } else { nr_pages.saturating_mul(BYTES_OF_PAGE) }
    }
}

/// Folios requested in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundOfAgeing {
    /// Requests by order, including those that fell back from a larger order.
    pub nr_asked: [u64; NR_ORDERS],
    /// Requests that found a free block.
    pub nr_got: [u64; NR_ORDERS],
}

impl RoundOfAgeing {
    /// Adds the requests of another zone's round.
    pub(crate) fn add(&mut self, other: &Self) {
        let add = |sum: &mut [u64; NR_ORDERS], more: &[u64; NR_ORDERS]| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        };
        add(&mut self.nr_asked, &other.nr_asked);
        add(&mut self.nr_got, &other.nr_got);
    }
}

#[derive(Clone, Copy)]
struct Block {
    pfn: Pfn,
    order: Order,
    of: MigrateType,
}

struct AgeingRun<'a> {
    buddy: &'a mut Buddy,
    random: Random,
    orders: Vec<Order>,
    live: Vec<Block>,
    round: RoundOfAgeing,
    stop: StopCheck<'a>,
}

struct StopCheck<'a> {
    should_stop: &'a mut dyn FnMut() -> ControlFlow<()>,
    nr_unchecked: u32,
    is_stopped: bool,
}

impl StopCheck<'_> {
    fn count_block(&mut self) {
        self.nr_unchecked += 1;
        if self.nr_unchecked == NR_BLOCKS_UNCHECKED {
            self.nr_unchecked = 0;
            self.is_stopped |= (self.should_stop)().is_break();
        }
    }
}

impl Buddy {
    /// Ages memory. Returns each round's requests.
    pub fn age(&mut self, ageing: Ageing) -> Vec<RoundOfAgeing> {
        self.age_until(ageing, &mut || ControlFlow::Continue(())).unwrap_or_default()
    }

    /// Like [`Buddy::age`]. Calls `should_stop` every few milliseconds; returns `None` if it
    /// breaks.
    pub fn age_until(
        &mut self,
        ageing: Ageing,
        should_stop: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<Vec<RoundOfAgeing>> {
        let max = self.max_order;
        let orders = ageing.orders.descending().filter(|&of| of > Order::ZERO && of <= max);
        let orders: Vec<Order> = orders.collect();
        if orders.is_empty() || ageing.rounds == 0 {
            return Some(Vec::new());
        }
        let (random, round) = (Random(ageing.seed), RoundOfAgeing::default());
        let stop = StopCheck { should_stop, nr_unchecked: 0, is_stopped: false };
        let mut run = AgeingRun { buddy: self, random, orders, live: Vec::new(), round, stop };
        let mut rounds = Vec::new();
        for _ in 0..ageing.rounds {
            run.free_some();
            run.fill();
            rounds.push(std::mem::take(&mut run.round));
            if run.stop.is_stopped {
                return None;
            }
        }
        run.free_half();
        (!run.stop.is_stopped).then_some(rounds)
    }
}

impl AgeingRun<'_> {
    fn free_some(&mut self) {
        let Self { buddy, random, live, stop, .. } = self;
        live.retain(|block| {
            stop.count_block();
            let is_kept = stop.is_stopped || random.below(FREED_OF) > 0;
            if !is_kept {
                buddy.free(block.pfn, block.order);
            }
            is_kept
        });
    }

    fn fill(&mut self) {
        let target = self.buddy.nr_pages / 16 * FULL_SIXTEENTHS;
        while self.buddy.nr_allocated < target && !self.stop.is_stopped {
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
        self.stop.count_block();
        true
    }

    fn free_half(&mut self) {
        let target = self.buddy.nr_pages / 2;
        let mut movable: Vec<Block> = std::mem::take(&mut self.live);
        movable.retain(|block| block.of == MigrateType::Movable);
        while self.buddy.nr_allocated > target && !movable.is_empty() && !self.stop.is_stopped {
            self.stop.count_block();
            let nr = self.random.below(movable.len() as u64) as usize;
            let block = movable.swap_remove(nr);
            self.buddy.free(block.pfn, block.order);
        }
    }
}
