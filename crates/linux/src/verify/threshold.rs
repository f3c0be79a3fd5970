//! Limits for a comparison, so that machines can monitor a program over time.
//!
//! Owns limits such as `QUANTITY>+2%` and `QUANTITY<-3%`, and decides whether the rounds exceed
//! them.

use std::fmt;

use super::rounds::NR_ROUNDS_MIN;
use crate::measure::bootstrap::Interval;

const PERCENT_MAX: f64 = 1e6;

#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub quantity: String,
    /// Whether a ratio above the limit fails, or one below it.
    pub is_above: bool,
    pub percent: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdOutcome {
    Passed,
    Failed,
    Open(Undecided),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// Fewer than ten rounds have the quantity in both runs, 0 if none has.
    FewRounds {
        nr: usize,
    },
    Inside,
}

impl Threshold {
    /// Parses a limit such as `wall>+2%`.
    ///
    /// # Errors
    /// The expected syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            "expected QUANTITY>PERCENT% or QUANTITY<PERCENT%, such as wall>+2% or tps<-3%"
                .to_owned()
        };
        let at = text.find(['<', '>']).ok_or_else(expected)?;
        let (quantity, rest) = (text[..at].trim(), &text[at + 1..]);
        let percent = rest.trim().strip_suffix('%').ok_or_else(expected)?.trim();
        let percent: f64 = percent.parse().map_err(|_| expected())?;
        if quantity.is_empty() || !(-100.0..=PERCENT_MAX).contains(&percent) {
            return Err(expected());
        }
        Ok(Self { quantity: quantity.to_owned(), is_above: text[at..].starts_with('>'), percent })
    }

    /// Judges the ratio, changed over plain. `nr` rounds have the quantity.
    #[must_use]
    pub fn judge(&self, ratio: Option<&Interval>, nr: usize) -> ThresholdOutcome {
        let limit = 1.0 + self.percent / 100.0;
        let Some(ratio) = ratio.filter(|ratio| ratio.n >= NR_ROUNDS_MIN) else {
            return ThresholdOutcome::Open(Undecided::FewRounds { nr });
        };
        let (is_beyond, is_within) = if self.is_above {
            (ratio.low > limit, ratio.high <= limit)
        } else {
            (ratio.high < limit, ratio.low >= limit)
        };
        match (is_beyond, is_within) {
            (true, _) => ThresholdOutcome::Failed,
            (_, true) => ThresholdOutcome::Passed,
            _ => ThresholdOutcome::Open(Undecided::Inside),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_above { '>' } else { '<' };
        write!(f, "{}{sign}{:+}%", self.quantity, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_nonsense_is_not() {
        let limit = Threshold::parse("server memory > +5%").unwrap();
        assert_eq!((limit.quantity.as_str(), limit.is_above), ("server memory", true));
        assert_eq!(limit.to_string(), "server memory>+5%");
        assert_eq!(Threshold::parse("tps<-3%").unwrap().to_string(), "tps<-3%");
        for text in ["", "wall", "wall>", "wall>2", ">2%", "wall>nan%", "wall>inf%", "wall<-101%"] {
            assert!(Threshold::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_a_whole_interval_of_ten_rounds_decides() {
        let above = Threshold::parse("wall>+2%").unwrap();
        let below = Threshold::parse("tps<-2%").unwrap();
        let of = |limit: &Threshold, low, high, n| {
            let ratio = Interval { median: f64::midpoint(low, high), low, high, n };
            limit.judge(Some(&ratio), n)
        };
        assert_eq!(of(&above, 1.03, 1.10, 10), ThresholdOutcome::Failed);
        assert_eq!(of(&above, 0.98, 1.02, 10), ThresholdOutcome::Passed);
        assert_eq!(of(&above, 0.98, 1.03, 10), ThresholdOutcome::Open(Undecided::Inside));
        let few = |nr| ThresholdOutcome::Open(Undecided::FewRounds { nr });
        assert_eq!(of(&above, 1.03, 1.10, 9), few(9));
        assert_eq!(above.judge(None, 0), few(0));
        // None in most plain runs, some in the changed ones.
        assert_eq!(of(&above, f64::INFINITY, f64::INFINITY, 10), ThresholdOutcome::Failed);
        assert_eq!(of(&above, 1.0, f64::INFINITY, 10), ThresholdOutcome::Open(Undecided::Inside));
        assert_eq!(of(&below, 0.90, 0.97, 10), ThresholdOutcome::Failed);
        assert_eq!(of(&below, 0.99, 1.10, 10), ThresholdOutcome::Passed);
    }
}
