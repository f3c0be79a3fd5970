//! Finds the steps in a curve of time against working-set size.
//!
//! Owns the arithmetic and measures nothing. The method uses medians of rounds:
//!
//! ```text
//!   ns                      .  *       1. lower envelope: e(i) = the least value from i on. A working
//!   |            *  . . * * *             set that was disturbed does not look like a step, as a
//!   |  . . * . . *                        larger one is at least as slow
//!   +--------------------------> n     2. a step is where e(i + 1)  / e(i) is largest, within a
//!        ^ step   ^ step                  range of n, if that is RATIO_MIN or more and the
//!                                         envelopes of smallest and largest rounds do not overlap
//! ```
//!
//! A step is a bracket: a structure has at least as many entries as the last working set before it,
//! and fewer than the first one after it, minus the program's own pages.

use std::ops::Range;

use crate::measure::Spread;

/// Minimum growth of a step. Translations that hit take equally long over any working set.
const RATIO_MIN: f64 = 1.3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub nr: usize,
    pub ns: Spread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    pub last: usize,
    pub next: usize,
}

/// Returns the step of `points` (working sets ascending) that begins in `within`, or `None`.
///
/// ```
/// use largefolio_linux::calibrate::{Point, step_within};
/// use largefolio_linux::measure::Spread;
///
/// let point = |nr, median| Point { nr, ns: Spread { median, min: median, max: median, n: 1 } };
/// let curve = [point(32, 1.1), point(64, 9.0), point(72, 1.1), point(80, 3.0), point(96, 3.1)];
/// let step = step_within(&curve, 8..1000).unwrap();
/// assert_eq!((step.last, step.next), (72, 80));
/// assert_eq!(step_within(&curve[..2], 8..20), None);
/// ```
#[must_use]
pub fn step_within(points: &[Point], within: Range<usize>) -> Option<Bracket> {
    let medians = envelope(points, |ns| ns.median);
    let least = envelope(points, |ns| ns.min);
    let most = envelope(points, |ns| ns.max);
    let ratio = |at: usize| medians[at + 1] / medians[at];
    let is_step = |at: &usize| {
        // A slow round widens the spread on both sides. The quarter allows for it.
        ratio(*at) >= RATIO_MIN && least[at + 1] * 1.25 > most[*at]
    };
    (0..points.len().saturating_sub(1))
        .filter(|&at| within.contains(&points[at].nr))
        .filter(is_step)
        .max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)))
        .map(|at| Bracket { last: points[at].nr, next: points[at + 1].nr })
}

fn envelope(points: &[Point], of: impl Fn(&Spread) -> f64) -> Vec<f64> {
    let mut least = f64::INFINITY;
    let mut envelope: Vec<f64> = points
        .iter()
        .rev()
        .map(|point| {
            least = least.min(of(&point.ns)).max(f64::MIN_POSITIVE);
            least
        })
        .collect();
    envelope.reverse();
    envelope
}

/// Solves `fixed + n * each = t` for several `(n, t)` by least squares of the *relative* distances:
/// a folio of 4 KiB counts as much as one of a megabyte. A part can be below 0 because of a round's
/// noise. Returns `None` if there is no solution.
///
/// ```
/// use largefolio_linux::calibrate::solve;
/// let (fixed, each) = solve(&[(1.0, 110.0), (8.0, 180.0), (32.0, 420.0)]).unwrap();
/// assert!((fixed - 100.0).abs() < 1e-6 && (each - 10.0).abs() < 1e-6);
/// assert_eq!(solve(&[(1.0, 100.0)]), None);
/// ```
#[must_use]
pub fn solve(times: &[(f64, f64)]) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn(f64, f64) -> f64| times.iter().map(|&(n, t)| of(n, t)).sum::<f64>();
    let (ww, wn, nn) =
        (sum(&|_, t| 1.0 / (t * t)), sum(&|n, t| n / (t * t)), sum(&|n, t| n * n / (t * t)));
    let (w, n) = (sum(&|_, t| 1.0 / t), sum(&|n, t| n / t));
    let determinant = ww * nn - wn * wn;
    let fixed = (w * nn - n * wn) / determinant;
    let each = (n * ww - w * wn) / determinant;
    (fixed.is_finite() && each.is_finite()).then_some((fixed, each))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: &[(usize, f64)]) -> Vec<Point> {
        let spread = |median: f64| Spread { median, min: median * 0.9, max: median * 1.1, n: 5 };
        values.iter().map(|&(nr, ns)| Point { nr, ns: spread(ns) }).collect()
    }

    #[test]
    fn a_slow_rise_is_no_step() {
        let values: Vec<(usize, f64)> =
            (1..30_u32).map(|nr| (nr as usize * 8, 1.0 + f64::from(nr) / 20.0)).collect();
        assert_eq!(step_within(&curve(&values), 0..1000), None);
    }

    #[test]
    fn noise_that_overlaps_is_no_step() {
        let wide = |nr, median: f64| Point {
            nr,
            ns: Spread { median, min: median / 4.0, max: median * 4.0, n: 5 },
        };
        let points = [wide(8, 1.0), wide(16, 1.0), wide(32, 2.0), wide(64, 2.0)];
        assert_eq!(step_within(&points, 0..1000), None);
    }

    #[test]
    fn values_that_are_no_numbers_give_no_step_and_no_panic() {
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let points = curve(&[(8, bad), (16, bad), (32, bad)]);
            assert_eq!(step_within(&points, 0..1000), None, "{bad}");
            if bad >= 0.0 || bad.is_nan() {
                assert_eq!(solve(&[(1.0, bad), (2.0, bad)]), None, "{bad}");
            }
        }
        assert_eq!(step_within(&[], 0..1000), None);
        assert_eq!(solve(&[]), None);
        assert_eq!(solve(&[(1.0, 5.0)]), None);
    }
}
