//! How long other tasks wait while memory is cleared and copied: the stretches between reschedule
//! points ([`largefolio_mm::ram::Stretches`]), by size and time.
//!
//! ```text
//!   time of a stretch = sum over its units   pages x page size / rate of units of that size
//! ```
//!
//! With the preemption models `none` and `voluntary`, a waiting task runs at the end of the
//! stretch. With `lazy`, it waits at most until the next tick. With `full`, it does not wait; the
//! stretch is then the longest work that the kernel does without interruption if no task is
//! waiting.
//!
//! - I1: a time is absent if the rate of one of its units is unknown; it is never 0.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::ram::{ByUnit, Stretch, Stretches};
use largefolio_mm::rules::clear::Preemption;
use serde::Serialize;

use super::price::{ns_each, ns_of, quantity};
use super::terms::{full_name, rate_of, unit_name};
use crate::machine::{Costs, UnitRate};

const QUANTILE_PERCENT: u64 = 99;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub preemption: &'static str,
    pub stretches: u64,
    pub max_bytes: u64,
    pub p99_bytes: u64,
    pub max_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// By the stretch's bytes, rounded up to a power of two.
    pub sizes: BTreeMap<u64, SizeLatency>,
    pub not_known: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeLatency {
    pub stretches: u64,
    pub max_bytes: u64,
}

impl Latency {
    #[must_use]
    pub fn new(
        stretches: &Stretches,
        preemption: Preemption,
        page_bytes: u64,
        costs: &Costs,
    ) -> Self {
        let mut not_known = BTreeSet::new();
        let mut prices = Prices { costs, page_bytes, not_known: &mut not_known };
        let (mut bytes, mut times) = (Vec::new(), Some(Vec::new()));
        let mut sizes: BTreeMap<u64, SizeLatency> = BTreeMap::new();
        for (stretch, nr) in stretches.iter() {
            let len_bytes = stretch.nr_pages() * page_bytes;
            let ns = prices.of(&stretch);
            bytes.push((len_bytes, nr));
            times = times.zip(ns).map(|(mut times, ns)| {
                times.push((ns, nr));
                times
            });
            let size = sizes.entry(len_bytes.next_power_of_two()).or_default();
            size.stretches += nr;
            size.max_bytes = size.max_bytes.max(len_bytes);
        }
        let [p99_bytes, max_bytes] = quantiles(bytes);
        let ns = times.map(quantiles);
        Self {
            preemption: preemption.name(),
            stretches: sizes.values().map(|size| size.stretches).sum(),
            max_bytes,
            p99_bytes,
            max_ns: ns.map(|[_, longest]| longest),
            p99_ns: ns.map(|[most, _]| most),
            sizes,
            not_known,
        }
    }
}

/// Returns the 99th percentile (nearest rank) and the maximum of values with their counts.
fn quantiles(mut values: Vec<(u64, u64)>) -> [u64; 2] {
    values.sort_unstable();
    let nr: u64 = values.iter().map(|&(_, nr)| nr).sum();
    let rank = nr.saturating_mul(QUANTILE_PERCENT).div_ceil(100);
    let mut nr_below = 0;
    let at_rank = values.iter().find(|&&(_, nr)| {
        nr_below += nr;
        nr_below >= rank
    });
    [at_rank.map_or(0, |&(value, _)| value), values.last().map_or(0, |&(value, _)| value)]
}

struct Prices<'a> {
    costs: &'a Costs,
    page_bytes: u64,
    not_known: &'a mut BTreeSet<String>,
}

impl Prices<'_> {
    fn of(&mut self, stretch: &Stretch) -> Option<u64> {
        let costs = self.costs;
        let cleared = self.part("clear", &costs.clear, &stretch.cleared);
        let copied = self.part("copy", &costs.copy, &stretch.copied);
        Some(cleared?.saturating_add(copied?))
    }

    fn part(&mut self, name: &str, rates: &[UnitRate], pages: &ByUnit) -> Option<u64> {
        let mut sum = Some(0_u64);
        for (log2, &nr) in (0_u32..).zip(pages).filter(|&(_, &nr)| nr > 0) {
            let unit_bytes = self.page_bytes << log2;
            let rate = rate_of(rates, unit_bytes);
            if rate.is_none() {
                self.not_known.insert(full_name(&unit_name(name, rates, unit_bytes)));
            }
            let each = rate.and_then(|rate| ns_each(&quantity(rate), self.costs));
            let ns = each.map(|each| ns_of(u64::from(nr) * self.page_bytes, each));
            sum = sum.zip(ns).map(|(sum, ns)| sum.saturating_add(ns));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use largefolio_mm::ram::StretchWork;
    use largefolio_mm::rules::Arch;
    use largefolio_mm::rules::clear::{ClearOrder, ClearRules};
    use largefolio_mm::units::{Order, PageSize};

    use super::*;
    use crate::machine::UnitBytes;

    fn rate(size: u64, gb_per_s: f64) -> UnitRate {
        let source = "measured".to_owned();
        UnitRate { size: UnitBytes(size), gb_per_s, source, assumed: false, range: None }
    }

    fn latency(order: ClearOrder, preemption: Preemption, rates: Vec<UnitRate>) -> Latency {
        let rules = ClearRules { order, preemption, ..ClearRules::stock() };
        let mut stretches = Stretches::default();
        for folio in [9, 0, 0] {
            let plan = rules.plan(Arch::X86_64, PageSize::K4, Order::new(folio), 0);
            stretches.plan(StretchWork::Clear, &plan);
        }
        let costs = Costs { clear: rates, ..Costs::default() };
        Latency::new(&stretches, preemption, 4096, &costs)
    }

    #[test]
    fn a_stretch_takes_the_time_of_its_units_each_at_its_own_rate() {
        let rates = || vec![rate(4 << 10, 4.096), rate(2 << 20, 8.192)];
        let paged = latency(ClearOrder::Converging, Preemption::Voluntary, rates());
        assert_eq!((paged.stretches, paged.max_bytes, paged.max_ns), (514, 4096, Some(1_000)));
        let whole = latency(ClearOrder::Converging, Preemption::Full, rates());
        assert_eq!((whole.max_bytes, whole.max_ns), (2 << 20, Some(512_000)));
        // 509 pages in one go at the 2M rate, the three near ones at the 4K rate.
        let extents = latency(ClearOrder::Posted, Preemption::Lazy, rates());
        assert_eq!((extents.max_bytes, extents.max_ns), (2 << 20, Some(254_500 + 3_000)));
        let units = latency(ClearOrder::Posted, Preemption::None, rates());
        assert_eq!((units.max_bytes, units.max_ns), (509 * 4096, Some(254_500)));
        let largest = SizeLatency { stretches: 1, max_bytes: 509 * 4096 };
        assert_eq!(units.sizes[&(2 << 20)], largest);
        assert_eq!(units.sizes[&4096], SizeLatency { stretches: 2, max_bytes: 4096 });
    }

    #[test]
    fn a_rate_that_is_not_known_leaves_bytes_and_no_time() {
        let extents = latency(ClearOrder::Posted, Preemption::Lazy, vec![rate(4 << 10, 4.096)]);
        assert_eq!((extents.max_bytes, extents.max_ns, extents.p99_ns), (2 << 20, None, None));
        assert!(extents.not_known.contains("costs.clear of 2M"), "{:?}", extents.not_known);
    }

    #[test]
    fn the_99th_percentile_leaves_out_one_in_a_hundred() {
        assert_eq!(quantiles(vec![(7, 99), (1_000, 1)]), [7, 1_000]);
        assert_eq!(quantiles(vec![(1_000, 2), (7, 98)]), [1_000, 1_000]);
        assert_eq!(quantiles(Vec::new()), [0, 0]);
    }
}
