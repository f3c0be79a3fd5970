//! A program's anchor: the measured slope of its user time.
//!
//! The model knows how many walks a program needs, and less well how long the program waits for
//! them: that depends on what the core can do meanwhile. Measured under two settings or more, one
//! factor takes the place of that guess:
//!
//! ```text
//!   user time of a setting = u0 + slope x modelled walk time
//! ```
//!
//! Owns the factor, its error, and its effect on an estimate. Does not own the measurement.

use serde::{Deserialize, Serialize};

use super::{Estimate, TimeKind, bounds, price};
use crate::interval::Interval;

/// Standard deviation of the slopes of programs, assumed. A program whose changes are small keeps a
/// slope close to 1.
const SLOPE_SD: f64 = 0.5;
/// What a change differs by for other reasons, in percent of the run.
const OTHER_PERCENT: f64 = 1.0;
/// Nine of ten values are within this many standard deviations.
const NR_SDS: f64 = 1.645;

/// A measured change of user time, in percent of the plain run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredChange {
    pub predicted: f64,
    pub measured: f64,
    /// Standard deviation of the measurement.
    pub sd: f64,
}

impl MeasuredChange {
    /// Takes the median, smallest and largest of `nr_rounds` rounds.
    #[must_use]
    pub fn of_rounds(predicted: f64, rounds: Interval, nr_rounds: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "tens of rounds")]
        let nr = nr_rounds.max(1) as f64;
        // The range of up to a dozen values is close to sqrt(n) standard deviations, and the error
        // of their median is 1.25 times that of their mean.
        Self { predicted, measured: rounds.mid, sd: 1.25 * (rounds.high - rounds.low) / nr }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// The CPU it was measured on, as a machine file names it.
    pub cpu: String,
    /// Factor of the modelled user time, with the bounds that hold for nine of ten.
    pub slope: Interval,
    pub nr_rounds: usize,
    /// The settings whose changes were measured.
    pub settings: Vec<String>,
}

impl Anchor {
    /// Fits the slope to changes from the plain run: least squares, with 1 as one more measurement
    /// that counts more the less the changes say.
    ///
    /// ```
    /// use largefolio_sim::cost::{Anchor, MeasuredChange};
    ///
    /// let change = |predicted, measured| MeasuredChange { predicted, measured, sd: 0.5 };
    /// let slope = Anchor::slope(&[change(-20.0, -30.0), change(-10.0, -15.0)]);
    /// assert!((slope.mid - 1.5).abs() < 0.01 && slope.low > 1.3 && slope.high < 1.7);
    /// let slope = Anchor::slope(&[change(-0.1, -30.0)]);
    /// assert!(slope.mid < 2.0 && slope.low < 1.0 && slope.high > 1.5);
    /// assert_eq!(Anchor::slope(&[]).mid, 1.0);
    /// ```
    #[must_use]
    pub fn slope(changes: &[MeasuredChange]) -> Interval {
        let (mut sum, mut weight) = (SLOPE_SD.powi(-2), SLOPE_SD.powi(-2));
        for MeasuredChange { predicted, measured, sd } in changes {
            let variance = sd.powi(2) + OTHER_PERCENT.powi(2);
            sum += predicted * measured / variance;
            weight += predicted.powi(2) / variance;
        }
        let (mid, sd) = (sum / weight, weight.sqrt().recip());
        // More walks never make a program faster.
        let [low, mid, high] =
            [mid - NR_SDS * sd, mid, mid + NR_SDS * sd].map(|slope| slope.max(0.0));
        Interval { low, mid, high }
    }
}

impl Estimate {
    /// Multiplies the user time by a program's slope, whose error replaces that of the costs.
    #[must_use]
    pub fn anchored(mut self, anchor: Option<&Anchor>) -> Self {
        let Some(anchor) = anchor else { return self };
        let Interval { low, mid, high } = anchor.slope;
        for (&cause, time) in &mut self.causes {
            let mut is_changed = false;
            for term in &mut time.terms {
                if TimeKind::of(cause, term) != TimeKind::User {
                    continue;
                }
                is_changed = true;
                let times = |factor: f64| term.ns.map_or(0.0, |ns| price::float(ns) * factor);
                term.bounds = term.bounds.map(|bounds| match term.ns {
                    Some(_) => Interval { low: times(low), mid: times(mid), high: times(high) },
                    None => bounds,
                });
                term.is_anchored = term.ns.is_some();
                term.ns = term.ns.map(|_| price::whole_ns(times(mid)));
            }
            if is_changed {
                time.ns = time.terms.iter().map(|term| term.ns).sum();
            }
        }
        self.anchor = Some(anchor.clone());
        self.known_ns =
            self.causes.values().flat_map(|time| &time.terms).filter_map(|term| term.ns).sum();
        self.total_ns = self.total_ns.map(|_| self.known_ns);
        self.total = bounds::total(&self.causes, None);
        self.user = bounds::total(&self.causes, Some(TimeKind::User));
        self
    }
}
