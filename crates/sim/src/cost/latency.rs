//! How long others wait while memory is cleared and copied: the stretches between two reschedule
//! points, by size and in time.
//!
//! Owns the distribution. Does not own the stretches ([`largefolio_mm::ram::Stretches`]) or the
//! rates ([`crate::machine`]).
//!
//! ```text
//!   time of a stretch = sum over its units   pages x page size / rate of units of that size
//! ```
//!
//! Under the models `none` and `voluntary` a task that wants the processor waits for the end of the
//! stretch. Under `lazy` it waits for the next tick at most, under `full` it need not wait: the
//! stretch is then what the kernel does in one go if nobody asks.
//!
//! - I1: a time is absent where the rate of one of its units is not known; it is never 0.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::ram::{ByUnit, Stretch, Stretches};
use largefolio_mm::rules::clear::Preemption;
use serde::Serialize;

use super::price::{ns_each, ns_of, quantity};
use super::terms::{full_name, rate_of, unit_name};
use crate::machine::{Costs, UnitRate};

/// The quantile shown beside the longest, in hundredths.
const QUANTILE_PERCENT: u64 = 99;

/// Stretches of clearing and copying without a reschedule point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Preemption model of the kernel.
    pub preemption: &'static str,
    /// How many stretches there were.
    pub stretches: u64,
    /// The longest, in bytes.
    pub max_bytes: u64,
    /// 99 of 100 are not longer, in bytes.
    pub p99_bytes: u64,
    /// The longest in nanoseconds; absent where a rate is not known.
    pub max_ns: Option<u64>,
    /// 99 of 100 take no longer; absent where a rate is not known.
    pub p99_ns: Option<u64>,
    /// By bytes of the stretch, rounded up to a power of two.
    pub sizes: BTreeMap<u64, SizeLatency>,
    /// Rates that are needed and not known, by their name in the machine file.
    pub not_known: BTreeSet<String>,
}

/// The stretches of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeLatency {
    /// How many.
    pub stretches: u64,
    /// The longest, in bytes.
    pub max_bytes: u64,
}

impl Latency {
    /// The distribution of `stretches` of base pages of `page_bytes` on a machine with these costs.
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

/// The 99th percentile, by nearest rank, and the largest of values that come so many times each;
/// 0 where there are none.
fn quantiles(mut values: Vec<(u64, u64)>) -> [u64; 2] {
    values.sort_unstable();
    let nr: u64 = values.iter().map(|&(_, nr)| nr).sum();
    let rank = nr.saturating_mul(QUANTILE_PERCENT).div_ceil(100);
    let mut seen = 0;
    let at_rank = values.iter().find(|&&(_, nr)| {
        seen += nr;
        seen >= rank
    });
    [at_rank.map_or(0, |&(value, _)| value), values.last().map_or(0, |&(value, _)| value)]
}

/// The rates of a machine, and which were missing.
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
    use largefolio_mm::ram::Work;
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
            stretches.plan(Work::Clear, &plan);
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
        // 509 pages in one go at the rate of 2M, the three near ones at that of 4K.
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
