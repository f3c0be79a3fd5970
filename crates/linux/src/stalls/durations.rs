//! Many durations in little memory.
//!
//! Durations are counted in steps: each power of two of nanoseconds has [`STEPS`] of them, so a
//! percentile is at most 1/16 too high. Invariant D1: there are at most `64 * STEPS` counts.

use std::collections::BTreeMap;

/// Steps per power of two.
const STEPS: u32 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    counts: BTreeMap<u32, u64>,
    pub nr: u64,
    pub total_ns: u64,
    pub max_ns: u64,
}

impl Durations {
    pub fn add(&mut self, ns: u64) {
        *self.counts.entry(step_of(ns)).or_default() += 1;
        self.nr += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn extend(&mut self, other: &Self) {
        for (&step, nr) in &other.counts {
            *self.counts.entry(step).or_default() += nr;
        }
        self.nr += other.nr;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the duration that `percent` of all do not exceed; 0 without any.
    #[must_use]
    pub fn percentile_ns(&self, percent: u64) -> u64 {
        let rank = u128::from(self.nr) * u128::from(percent);
        let mut nr_below = 0_u128;
        let reached = self.counts.iter().find(|(_, nr)| {
            nr_below += u128::from(**nr);
            nr_below * 100 >= rank
        });
        reached.map_or(0, |(&step, _)| last_of(step).min(self.max_ns))
    }

    /// Returns how many are in each power of two, by its first value in nanoseconds.
    #[must_use]
    pub fn powers(&self) -> BTreeMap<u64, u64> {
        let mut powers = BTreeMap::new();
        for (&step, nr) in &self.counts {
            *powers.entry(1 << (step / STEPS)).or_default() += nr;
        }
        powers
    }
}

fn step_of(ns: u64) -> u32 {
    let ns = ns.max(1);
    let power = ns.ilog2();
    // The four bits after the leading one.
    let bits = if power >= 4 { ns >> (power - 4) } else { ns << (4 - power) };
    power * STEPS + u32::try_from(bits & u64::from(STEPS - 1)).unwrap_or(0)
}

/// Returns the longest duration of a step.
fn last_of(step: u32) -> u64 {
    let (power, bits) = (step / STEPS, u64::from(STEPS + step % STEPS));
    let next = (u128::from(bits + 1) << power >> 4).max(1);
    u64::try_from(next - 1).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_at_most_a_step_too_high(mut all in proptest::collection::vec(1_u64..1 << 50, 1..200)) {
            let (mut durations, mut half) = (Durations::default(), Durations::default());
            for (at, ns) in all.iter().enumerate() {
                if at % 2 == 0 { durations.add(*ns) } else { half.add(*ns) }
            }
            durations.extend(&half);
            all.sort_unstable();
            for percent in [1, 50, 99, 100] {
                let exact = all[(all.len() * percent).div_ceil(100) - 1];
                let found = durations.percentile_ns(percent as u64);
                prop_assert!(found >= exact && found <= exact + exact / 16, "{exact} {found}");
            }
            prop_assert_eq!(durations.total_ns, all.iter().sum::<u64>());
            prop_assert_eq!(durations.max_ns, *all.last().unwrap());
            for (from, nr) in durations.powers() {
                let in_power = all.iter().filter(|ns| (from..2 * from).contains(*ns)).count();
                prop_assert_eq!(nr, in_power as u64);
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_are_counted() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentile_ns(50), 0);
        durations.add(0);
        durations.add(u64::MAX);
        durations.add(u64::MAX);
        assert_eq!((durations.percentile_ns(1), durations.percentile_ns(100)), (1, u64::MAX));
        assert_eq!(durations.total_ns, u64::MAX);
    }
}
