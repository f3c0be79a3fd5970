//! Numbers with bounds, and arithmetic on them.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    /// The likeliest value, between the other two.
    pub mid: f64,
    pub high: f64,
}

impl Interval {
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { low: value, mid: value, high: value }
    }

    /// Returns `mid`, with bounds `factor` times lower and higher.
    #[must_use]
    pub fn within(mid: f64, factor: f64) -> Self {
        Self { low: mid / factor, mid, high: mid * factor }
    }

    /// Returns the median, minimum and maximum of measured values; `None` without values.
    #[must_use]
    pub fn measured(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let mid = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some(Self { low, mid, high })
    }

    /// Multiplies by `factor`; a negative factor swaps the bounds.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let (one, other) = (self.low * factor, self.high * factor);
        Self { low: one.min(other), mid: self.mid * factor, high: one.max(other) }
    }

    /// Adds numbers with independent errors: the distances from the middle add up as squares, each
    /// side separately.
    ///
    /// ```
    /// use largefolio_sim::interval::Interval;
    /// let part = |mid: f64| Interval { low: mid - 3.0, mid, high: mid + 4.0 };
    /// let sum = Interval::sum([part(10.0), Interval { high: 23.0, ..part(20.0) }]);
    /// assert_eq!((sum.mid, sum.high), (30.0, 35.0));
    /// ```
    #[must_use]
    pub fn sum(parts: impl IntoIterator<Item = Self>) -> Self {
        let (mut mid, mut below, mut above) = (0.0, 0.0_f64, 0.0_f64);
        for part in parts {
            mid += part.mid;
            below += (part.mid - part.low).powi(2);
            above += (part.high - part.mid).powi(2);
        }
        Self { low: mid - below.sqrt(), mid, high: mid + above.sqrt() }
    }

    /// Multiplies by a factor with bounds; both are above 0.
    #[must_use]
    pub fn by(self, factor: Self) -> Self {
        let (low, high) = (self.low * factor.low, self.high * factor.high);
        Self { low, mid: self.mid * factor.mid, high }
    }

    /// Divides by `base`, which is above 0: the extremes of all quotients.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        let extremes = [self.low, self.high].map(|part| [part / base.low, part / base.high]);
        let all = extremes.as_flattened();
        Self {
            low: all.iter().copied().fold(f64::INFINITY, f64::min),
            mid: self.mid / base.mid,
            high: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    #[must_use]
    pub fn rounded(self) -> Self {
        self.rounded_to(1.0)
    }

    /// Rounds to multiples of `1 / parts`.
    #[must_use]
    pub fn rounded_to(self, parts: f64) -> Self {
        let round = |value: f64| (value * parts).round() / parts;
        Self { low: round(self.low), mid: round(self.mid), high: round(self.high) }
    }

    /// Returns whether the bounds contain 0: a difference of unknown sign.
    #[must_use]
    pub fn may_be_zero(self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_factor_turns_an_interval_round() {
        let interval = Interval { low: 1.0, mid: 2.0, high: 4.0 }.times(-3.0);
        assert_eq!(interval, Interval { low: -12.0, mid: -6.0, high: -3.0 });
    }

    #[test]
    fn a_quotient_reaches_as_far_as_its_parts_do() {
        let base = Interval { low: 5.0, mid: 10.0, high: 20.0 };
        let interval = Interval { low: -2.0, mid: 1.0, high: 4.0 }.over(base);
        assert_eq!(interval, Interval { low: -0.4, mid: 0.1, high: 0.8 });
        assert!(interval.may_be_zero());
        assert!(!Interval::exact(0.1).may_be_zero());
    }

    #[test]
    fn measured_values_have_a_median_and_bounds() {
        assert_eq!(Interval::measured(&[]), None);
        let interval = Interval::measured(&[3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(interval, Interval { low: 1.0, mid: 2.5, high: 10.0 });
    }
}
