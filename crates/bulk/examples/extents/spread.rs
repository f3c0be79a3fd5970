//! Medians and quartiles.

use std::fmt;

/// Median of a sample, with its quartiles.
pub(crate) struct Spread {
    low: f64,
    pub(crate) median: f64,
    high: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values[(values.len() - 1) * part / 4];
        Self { low: at(1), median: at(2), high: at(3) }
    }

    /// Of the ratios within each round.
    pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Self {
        Self::of(over.iter().zip(under).map(|(over, under)| over / under))
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2} {:.2}]", self.median, self.low, self.high)
    }
}
