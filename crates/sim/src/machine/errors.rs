//! How far predicted times are from measured ones: the residuals of a bank of programs.
//!
//! Owns the numbers and the bounds that follow from them. Does not own the programs or the
//! measurements (`folio calibrate --programs`).
//!
//! The error of a prediction is its distance from the measured change, in percent of the run, as a
//! multiple of its *scale*: a share of the bounds that follow from its costs, and [`FLOOR_PERCENT`]. A
//! program's error is the largest of its settings. The number in a machine file is the quantile of
//! the programs' errors that holds for nine of ten programs that are not in the bank (split
//! conformal prediction): whatever is wrong with costs or model is in it.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::interval::Interval;

/// The part of a scale that does not depend on costs, in percent of the run: two runs of a program
/// differ by this much.
pub const FLOOR_PERCENT: f64 = 2.0;
/// The part of the costs' bounds in a scale: bounds that are wide because of one rare event would
/// otherwise make all others wide. Of 0.1 to 1, it gives the narrowest bounds for most programs and
/// for the worst tenth.
pub const BOUNDS_SHARE: f64 = 0.3;
/// Share of programs whose measured change is within the bounds.
pub const COVERAGE: f64 = 0.9;
/// Factor of the shipped errors: they were measured on another machine.
const SHIPPED_FACTOR: f64 = 1.5;

/// Quantiles of the errors, as multiples of the scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeErrors {
    pub total: f64,
    pub user: f64,
    pub system: f64,
    /// Of programs with an anchor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchored_total: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchored_user: Option<f64>,
    /// Number of programs.
    pub nr_programs: u32,
    pub source: String,
    /// Whether they were measured on another machine and widened.
    #[serde(skip_deserializing, skip_serializing_if = "std::ops::Not::not")]
    pub shipped: bool,
}

impl TimeErrors {
    /// Widens the bounds of a change, in the unit of `floor`, by an `error`. A change of exactly 0
    /// has the same events on both sides, and no error.
    #[must_use]
    pub fn widen(change: Interval, floor: f64, error: f64) -> Interval {
        if change == Interval::default() {
            return change;
        }
        let Interval { low, mid, high } = change;
        let below = error * (BOUNDS_SHARE * (mid - low) + floor);
        let above = error * (BOUNDS_SHARE * (high - mid) + floor);
        Interval { low: mid - below, mid, high: mid + above }
    }

    /// Returns how many scales `measured` is from the middle of `change`.
    ///
    /// ```
    /// use largefolio_sim::interval::Interval;
    /// use largefolio_sim::machine::TimeErrors;
    ///
    /// let change = Interval { low: -14.0, mid: -10.0, high: 0.0 };
    /// let error = TimeErrors::score(change, 1.0, -2.0);
    /// assert_eq!(error, 2.0);
    /// assert_eq!(TimeErrors::widen(change, 1.0, error).high, -2.0);
    /// ```
    #[must_use]
    pub fn score(change: Interval, floor: f64, measured: f64) -> f64 {
        let Interval { low, mid, high } = change;
        let side = if measured < mid { mid - low } else { high - mid };
        (measured - mid).abs() / (BOUNDS_SHARE * side + floor)
    }

    /// Returns the smallest number that is at least as large as the errors of [`COVERAGE`] of the
    /// programs and of one more program; `None` for fewer programs than that takes.
    ///
    /// ```
    /// use largefolio_sim::machine::TimeErrors;
    /// let errors: Vec<f64> = (1..=19).map(f64::from).collect();
    /// assert_eq!(TimeErrors::quantile(&errors), Some(18.0));
    /// assert_eq!(TimeErrors::quantile(&errors[..8]), None);
    /// ```
    #[must_use]
    pub fn quantile(errors: &[f64]) -> Option<f64> {
        let mut sorted = errors.to_vec();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "tens of programs"
        )]
        let rank = (COVERAGE * (sorted.len() + 1) as f64).ceil() as usize;
        sorted.get(rank.checked_sub(1)?).copied()
    }

    /// Returns the errors of the bank that comes with folio, widened, for a machine without one.
    #[must_use]
    pub fn shipped() -> Self {
        static SHIPPED: LazyLock<TimeErrors> = LazyLock::new(|| {
            let errors: TimeErrors = toml::from_str(include_str!("errors.toml"))
                .unwrap_or_else(|error| unreachable!("errors.toml: {error}"));
            let wider = |error: f64| SHIPPED_FACTOR * error;
            TimeErrors {
                total: wider(errors.total),
                user: wider(errors.user),
                system: wider(errors.system),
                anchored_total: errors.anchored_total.map(wider),
                anchored_user: errors.anchored_user.map(wider),
                shipped: true,
                ..errors
            }
        });
        SHIPPED.clone()
    }

    pub(super) fn check(&self) -> bool {
        let is_error = |error: &f64| (0.0..=1e3).contains(error);
        let anchored = self.anchored_total.iter().chain(&self.anchored_user);
        [self.total, self.user, self.system].iter().chain(anchored).all(is_error)
    }
}
