//! Random operation sequences, compared with the naive twin of `testkit` and validated after each
//! step. Every allocation returns the same page frame, and all lists hold the same blocks in the
//! same order.

use largefolio_testkit::buddy::NaiveBuddy;
use proptest::prelude::*;

use super::super::{Buddy, MigrateType};
use super::{list, small};
use crate::units::{Order, Pfn};

#[derive(Clone, Debug)]
pub(super) struct Pair {
    buddy: Buddy,
    naive: NaiveBuddy,
    pub(super) live: Vec<(u64, u8)>,
}

impl Pair {
    pub(super) fn new(nr_pages: u64, max_order: u8, pageblock_order: u8) -> Self {
        Self {
            buddy: small(nr_pages, max_order, pageblock_order),
            naive: NaiveBuddy::new(nr_pages as usize, max_order, pageblock_order),
            live: Vec::new(),
        }
    }

    pub(super) fn alloc(&mut self, order: u8, of: MigrateType) {
        let got = self.buddy.alloc(Order::new(order), of).map(|pfn| pfn.0);
        assert_eq!(got, self.naive.alloc(order, of as usize), "alloc {order} {of:?}");
        self.live.extend(got.map(|pfn| (pfn, order)));
        self.compare();
    }

    pub(super) fn free(&mut self, which: usize) {
        let (pfn, order) = self.live.swap_remove(which);
        self.buddy.free(Pfn(pfn), Order::new(order));
        self.naive.free(pfn, order);
        self.compare();
    }

    fn free_half(&mut self, which: usize) {
        let (pfn, order) = self.live[which];
        let Some(half) = order.checked_sub(1) else { return self.free(which) };
        self.live[which] = (pfn, half);
        self.live.push((pfn + (1 << half), half));
        self.free(self.live.len() - 1);
    }

    fn compare(&self) {
        self.buddy.validate().unwrap();
        let Self { buddy, naive, .. } = self;
        assert_eq!(buddy.nr_free_pages(), naive.nr_free());
        for order in 0..=buddy.max_order().get() {
            for of in MigrateType::ALL {
                assert_eq!(list(buddy, order, of), naive.list(order, of as usize));
            }
            let order_ = Order::new(order);
            assert_eq!(buddy.fragmentation_index(order_), naive.fragmentation_index(order));
            assert_eq!(buddy.unusable_index(order_), naive.unusable_index(order));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(u8, usize),
    Free(usize),
    FreeHalf(usize),
}

fn step(max_order: u8) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..=max_order, 0..3_usize).prop_map(|(order, of)| Step::Alloc(order, of)),
        4 => (0..2_u8, 0..3_usize).prop_map(|(order, of)| Step::Alloc(order, of)),
        5 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::FreeHalf),
    ]
}

fn world() -> impl Strategy<Value = (u64, u8, u8, Vec<Step>)> {
    (1..6_u8).prop_flat_map(|max_order| {
        let nr_pages = 1..(8_u64 << max_order);
        (nr_pages, Just(max_order), 0..=max_order, prop::collection::vec(step(max_order), 1..120))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(2000)))]

    #[test]
    fn the_zone_equals_its_naive_twin((nr_pages, max_order, pageblock_order, steps) in world()) {
        let mut pair = Pair::new(nr_pages, max_order, pageblock_order);
        for step in steps {
            let nr_live = pair.live.len();
            match step {
                Step::Alloc(order, of) => pair.alloc(order, MigrateType::ALL[of]),
                Step::Free(which) if nr_live > 0 => pair.free(which % nr_live),
                Step::FreeHalf(which) if nr_live > 0 => pair.free_half(which % nr_live),
                Step::Free(_) | Step::FreeHalf(_) => {}
            }
        }
    }
}
