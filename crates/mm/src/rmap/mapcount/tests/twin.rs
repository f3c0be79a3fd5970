//! Random steps compared with the naive twin of `testkit`, in every mode, and validated after each
//! step. A failure prints the seed.

use largefolio_testkit::rmap::NaiveRmap;

use super::super::{Change, HugetlbOwners, Mapcount, MapcountRule, MapcountRules, PmdCount, Shape};
use crate::rmap::owners::{MmOwnerId, OwnerLayout};
use crate::units::Order;

const NR_STEPS: u32 = 6_500;
const NR_STEPS_OF_A_LIFE: u32 = 200;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) % u64::from(end)) as u32
    }
}

struct Pair {
    of: Shape,
    folio: Mapcount,
    naive: NaiveRmap,
    /// Three mms mapped the folio since it was last unmapped: "shared" may be false.
    is_crowded: bool,
    is_stopped: bool,
}

impl Pair {
    fn new(of: Shape, nr_mms: usize) -> Self {
        let naive = NaiveRmap::new(of.nr_pages() as usize, nr_mms);
        Self { of, folio: Mapcount::default(), naive, is_crowded: false, is_stopped: false }
    }

    fn step(&mut self, random: &mut Random) -> bool {
        let nr_mms = self.naive.mms.len() as u32;
        let (which, nr_pages) = (random.below(nr_mms) as usize, self.of.nr_pages());
        let first = random.below(nr_pages);
        let end = first + 1 + random.below(nr_pages - first);
        let pages = if random.below(3) == 0 { 0..nr_pages } else { first..end };
        let range = pages.start as usize..pages.end as usize;
        let mm = MmOwnerId::new(which as u32 + 1).unwrap();
        let (of, before) = (self.of, self.naive.clone());
        let is_large = nr_pages > 1;
        let change = match random.below(8) {
            0..3 => {
                self.naive.add_ptes(which, range);
                self.folio.add_ptes(&of, mm, pages).unwrap()
            }
            3..6 if self.naive.remove_ptes(which, range) => self.folio.remove_ptes(&of, mm, pages),
            6 if is_large && random.below(2) == 0 => {
                self.naive.mms[which].nr_pmds += 1;
                self.folio.add_pmd(&of, mm).unwrap()
            }
            6 if self.naive.mms[which].nr_pmds > 0 => {
                self.naive.mms[which].nr_pmds -= 1;
                self.folio.remove_pmd(&of, mm)
            }
            7 if self.naive.mms[which].nr_pmds > 0 => {
                self.naive.mms[which].nr_pmds -= 1;
                self.naive.add_ptes(which, 0..nr_pages as usize);
                self.folio.split_pmd(&of, mm).unwrap()
            }
            _ => return false,
        };
        self.check(&before, change);
        true
    }

    fn unmap_all(&mut self) {
        for which in 0..self.naive.mms.len() {
            let mm = MmOwnerId::new(which as u32 + 1).unwrap();
            for page in 0..self.of.nr_pages() {
                while self.naive.remove_ptes(which, page as usize..page as usize + 1) {
                    let _ = self.folio.remove_ptes(&self.of, mm, page..page + 1);
                }
            }
            while self.naive.mms[which].nr_pmds > 0 {
                self.naive.mms[which].nr_pmds -= 1;
                let _ = self.folio.remove_pmd(&self.of, mm);
            }
        }
        self.folio.validate(&self.of).unwrap();
        assert!(!self.folio.is_mapped());
        if !self.is_stopped {
            self.is_crowded = false;
        }
    }

    fn check(&mut self, before: &NaiveRmap, change: Change) {
        let Self { of, folio, naive, .. } = self;
        folio.validate(of).unwrap();
        let mapcount = naive.mapcount(of.pmd_refs());
        assert_eq!(folio.mapcount(), mapcount);
        assert_eq!(folio.entire_mapcount(), naive.nr_pmds());
        check_change(of, before, naive, change);
        for page in 0..of.nr_pages() {
            let exact = naive.nr_ptes(page as usize) + naive.nr_pmds();
            let is_exact = of.rules.counts != MapcountRule::NoPageMapcount || of.nr_pages() == 1;
            let shown = if is_exact { exact } else { average(of, naive) };
            assert_eq!(folio.page_mapcount(of, page), shown);
            assert!(!is_exact || folio.is_page_exclusive(of, page) == (exact == 1));
        }
        self.is_crowded |= naive.nr_mms() > 2;
        self.is_stopped |= of.rules.stop_above.is_some_and(|limit| mapcount > limit);
        self.check_owners(mapcount);
    }

    fn check_owners(&self, mapcount: u32) {
        let Self { of, folio, naive, .. } = self;
        if !of.is_tracked() {
            return;
        }
        let is_shared = folio.maybe_mapped_shared(of);
        assert!(is_shared || naive.nr_mms() <= 1, "false exclusive");
        let is_exact = !self.is_crowded && !self.is_stopped;
        assert!(!is_exact || is_shared == (naive.nr_mms() == 2), "two mms are exact");
        for which in (0..naive.mms.len()).filter(|&mm| naive.mapcount_of(mm, 1) > 0) {
            let mm = MmOwnerId::new(which as u32 + 1).unwrap();
            let is_reused = folio.try_exclusive(of, mm, mapcount.into()).is_ok();
            assert!(!is_reused || naive.nr_mms() == 1, "a shared folio is written in place");
            assert!(!is_exact || is_reused == (naive.nr_mms() == 1 && mapcount > 1));
            assert!(folio.try_exclusive(of, mm, u64::from(mapcount) + 1).is_err());
        }
        let state = folio.owners(of).unwrap();
        assert_eq!(state.is_stopped, self.is_stopped);
        for slot in state.slots {
            let Some(owner) = slot.owner else { continue };
            let truth = naive.mapcount_of(owner.get() as usize - 1, of.pmd_refs());
            assert!(slot.mapcount.cast_unsigned() < truth, "over-counted: {state:?}");
        }
    }
}

fn average(of: &Shape, naive: &NaiveRmap) -> u32 {
    let (entire, nr_pages) = (naive.nr_pmds(), of.nr_pages());
    let ptes = naive.mapcount(1) - entire;
    match ptes {
        0 => entire,
        _ => ((ptes + nr_pages / 2) / nr_pages + entire).max(1),
    }
}

/// Checks the statistics: exact with page counts, all or nothing without.
fn check_change(of: &Shape, before: &NaiveRmap, after: &NaiveRmap, change: Change) {
    let nr_pages = i64::from(of.nr_pages());
    let counted = |naive: &NaiveRmap| match of.rules.counts {
        MapcountRule::NoPageMapcount if naive.mapcount(1) > 0 => nr_pages,
        MapcountRule::NoPageMapcount => 0,
        _ => i64::try_from(naive.nr_mapped_pages()).unwrap(),
    };
    assert_eq!(change.mapped_pages, counted(after) - counted(before));
    let entire = |naive: &NaiveRmap| if naive.nr_pmds() > 0 { nr_pages } else { 0 };
    assert_eq!(change.pmd_mapped_pages, entire(after) - entire(before));
    let is_removal = after.mapcount(1) < before.mapcount(1);
    let expected = match of.rules.counts {
        _ if !is_removal || of.nr_pages() == 1 => false,
        MapcountRule::NoPageMapcount => {
            after.nr_pmds() == 0 && (1..of.nr_pages()).contains(&after.mapcount(1))
        }
        _ => counted(after) < counted(before) && counted(after) > 0,
    };
    assert_eq!(change.is_partially_mapped, expected);
}

fn run(seed: u64, of: Shape, nr_mms: usize) {
    println!("SEED={seed} {of:?} mms={nr_mms}");
    let mut random = Random(seed);
    let mut pair = Pair::new(of, nr_mms);
    for nr in 1..=NR_STEPS {
        while !pair.step(&mut random) {}
        if nr % NR_STEPS_OF_A_LIFE == 0 {
            pair.unmap_all();
        }
    }
}

fn every_rule(counts: MapcountRule, layout: OwnerLayout) {
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for order in [0, 1, 2, 4] {
        for (stop_above, pmd_counts) in [
            (None, PmdCount::One),
            (None, PmdCount::AllPages),
            (Some(40), PmdCount::One),
            (Some(40), PmdCount::AllPages),
        ] {
            let hugetlb = HugetlbOwners::Untracked;
            let rules = MapcountRules { counts, stop_above, pmd_counts, hugetlb, layout };
            for nr_mms in [2, 4] {
                seed += 1;
                run(seed, Shape::new(Order::new(order), rules), nr_mms);
            }
        }
    }
}

#[test]
fn page_counts_and_the_guess_equal_the_naive_twin() {
    every_rule(MapcountRule::PerPageLikely, OwnerLayout::Bits64);
}

#[test]
fn page_counts_and_owners_equal_the_naive_twin() {
    every_rule(MapcountRule::PerPageTracked, OwnerLayout::Bits64);
    every_rule(MapcountRule::PerPageTracked, OwnerLayout::Bits32);
}

#[test]
fn counts_without_pages_equal_the_naive_twin() {
    every_rule(MapcountRule::NoPageMapcount, OwnerLayout::Bits64);
    every_rule(MapcountRule::NoPageMapcount, OwnerLayout::Bits32);
}
