//! Confidence in a median: the bootstrap.
//!
//! Draws as many values as there are, with replacement, and takes their median. This is repeated;
//! the interval covers the middle 95 percent of the medians. The generator has a fixed seed, so
//! equal values produce equal intervals.

use super::median_of;

/// Number of resamples. Each end of the interval is determined by 100 medians.
const NR_RESAMPLES: usize = 4_000;
const TAIL: f64 = 0.025;
/// With fewer values an interval is meaningless.
const NR_VALUES_MIN: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub n: usize,
}

impl Interval {
    /// Returns the interval of the median of `values`, `None` for fewer than three values or a NaN.
    /// Infinite values are larger than all others and can make an end of the interval infinite.
    ///
    /// ```
    /// # use largefolio_linux::measure::bootstrap::Interval;
    /// let even = Interval::of(&[0.9; 20]).unwrap();
    /// assert_eq!((even.low, even.high, even.n), (0.9, 0.9, 20));
    /// assert_eq!(Interval::of(&[1.0, 2.0]), None);
    /// ```
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.len() < NR_VALUES_MIN || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut drawn = values.to_vec();
        let mut random = Draws(0x5eed_1a29_ef01_1057);
        let mut medians: Vec<f64> = (0..NR_RESAMPLES)
            .map(|_| {
                for slot in &mut drawn {
                    *slot = values[random.below(values.len())];
                }
                median_of(&mut drawn)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of four thousand"
        )]
        let nr_left_out = (NR_RESAMPLES as f64 * TAIL) as usize;
        Some(Self {
            median: median_of(&mut values.to_vec()),
            low: medians[nr_left_out],
            high: medians[NR_RESAMPLES - 1 - nr_left_out],
            n: values.len(),
        })
    }
}

/// splitmix64: every state produces a well mixed word.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let scaled = (u128::from(word) * n as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut draws = Draws(7);
        let mut nr_covered = 0;
        for _ in 0..100 {
            // The sum of four uniform numbers in 0..1000, with median 1998.
            let value = |draws: &mut Draws| (0..4).map(|_| draws.below(1000)).sum::<usize>();
            #[expect(clippy::cast_precision_loss, reason = "below 4000")]
            let values: Vec<f64> = (0..25).map(|_| value(&mut draws) as f64).collect();
            let interval = Interval::of(&values).unwrap();
            assert!(interval.low <= interval.median && interval.median <= interval.high);
            nr_covered += usize::from(interval.low <= 1998.0 && 1998.0 <= interval.high);
        }
        assert!((85..=100).contains(&nr_covered), "{nr_covered} of 100");
    }

    #[test]
    fn more_values_make_it_narrower() {
        let width = |n: usize| {
            let mut draws = Draws(3);
            #[expect(clippy::cast_precision_loss, reason = "below 1000")]
            let values: Vec<f64> = (0..n).map(|_| draws.below(1000) as f64).collect();
            let interval = Interval::of(&values).unwrap();
            interval.high - interval.low
        };
        assert!(width(200) < width(20) / 2.0);
    }

    #[test]
    fn numbers_that_are_none_have_no_interval_and_infinite_ones_are_the_largest() {
        assert_eq!(Interval::of(&[1.0, f64::NAN, 1.0]), None);
        let of = |nr_infinite: usize| {
            let mut values = [1.0; 20];
            values[..nr_infinite].fill(f64::INFINITY);
            let interval = Interval::of(&values).unwrap();
            (interval.low.is_finite(), interval.median.is_finite(), interval.high.is_finite())
        };
        assert_eq!(of(1), (true, true, true));
        assert_eq!(of(9), (true, true, false));
        assert_eq!(of(19), (false, false, false));
    }
}
