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

use super::{Cause, CauseTime, Estimate, Term, TimeKind, price};
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
    /// The settings whose changes were measured; none if the CPU counted the walks' cycles.
    pub settings: Vec<String>,
}

impl Anchor {
    /// Creates it from the time with a walk in progress that the CPU counted in `nr_runs` runs, and
    /// the modelled time of the same walks. A program waits for at most all of that time, and for
    /// at least the share of overlapping walks. `None` without modelled walks.
    ///
    /// ```
    /// use largefolio_sim::cost::Anchor;
    /// use largefolio_sim::interval::Interval;
    ///
    /// let counted = Interval { low: 90.0, mid: 100.0, high: 120.0 };
    /// let anchor = Anchor::counted("a CPU", (counted, 3), 50.0, 0.1).unwrap();
    /// assert_eq!((anchor.slope.mid, anchor.slope.high), (2.0, 2.4));
    /// assert!((anchor.slope.low - 0.18).abs() < 1e-9);
    /// assert_eq!(Anchor::counted("a CPU", (counted, 3), 0.0, 0.1), None);
    /// ```
    #[must_use]
    pub fn counted(
        cpu: &str,
        (walks_ns, nr_runs): (Interval, usize),
        modelled_ns: f64,
        least_share: f64,
    ) -> Option<Self> {
        if modelled_ns <= 0.0 {
            return None;
        }
        let slope = walks_ns.times(modelled_ns.recip());
        let slope = Interval { low: slope.low * least_share.clamp(0.0, 1.0), ..slope };
        Some(Self { cpu: cpu.to_owned(), slope, nr_rounds: nr_runs, settings: Vec::new() })
    }

    /// Whether it was counted in a plain run, and not measured under several settings.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        self.settings.is_empty()
    }

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
    /// Multiplies the user time by a program's slope, whose error replaces that of the costs. A
    /// counted slope is of walks only.
    #[must_use]
    pub fn anchored(mut self, anchor: Option<&Anchor>) -> Self {
        let Some(anchor) = anchor else { return self };
        let is_meant = |cause: Cause, term: &Term| {
            let is_user = TimeKind::of(cause, term) == TimeKind::User;
            is_user && (cause == Cause::Walk || !anchor.is_counted())
        };
        let causes = std::mem::take(&mut self.causes).into_iter().map(|(cause, time)| {
            let terms = time.terms.into_iter();
            let terms = terms
                .map(|term| if is_meant(cause, &term) { scaled(term, anchor.slope) } else { term });
            (cause, CauseTime::of(terms.collect()))
        });
        let causes = causes.collect();
        self.anchor = Some(anchor.clone());
        self.summed(causes)
    }
}

fn scaled(term: Term, slope: Interval) -> Term {
    let Some(ns) = term.ns else { return term };
    let whole = slope.times(price::float(ns));
    let bounds = term.bounds.map(|_| whole);
    Term { ns: Some(price::whole_ns(whole.mid)), bounds, is_anchored: true, ..term }
}
