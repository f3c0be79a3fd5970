//! The result of the rounds: ratios with their confidence, a verdict, and reasons to doubt it.

use super::rounds::Rounds;
use super::run::Sample;
use crate::measure::Spread;
use crate::measure::bootstrap::Interval;

/// Rounds below which an interval is more luck than knowledge.
pub(crate) const NR_ROUNDS_MIN: usize = 10;
/// Spread of the plain runs, half of them around the median, that is called noise.
const NOISE: f64 = 0.05;
/// Difference between the first and the second half of the plain runs that is called drift.
const DRIFT: f64 = 0.05;
/// Wall time below which starting the process is most of what is measured, in nanoseconds.
const SHORT_NS: f64 = 5e6;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is below 1 by the margin or the interval excludes 1 on the fast side.
    Confirmed,
    /// The change makes it slower, or no difference as large as the margin.
    NotConfirmed,
    /// The interval leaves both open.
    Inconclusive,
}

/// What makes a verdict doubtful, and what helps.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// Fewer rounds than `NR_ROUNDS_MIN`.
    FewRounds {
        /// How many.
        nr: usize,
    },
    /// The middle half of the plain runs spreads this much, as part of the median.
    Noise {
        /// Spread.
        part: f64,
    },
    /// The second half of the plain runs took this much of the first.
    Drift {
        /// Ratio.
        ratio: f64,
    },
    /// Runs this short are mostly the start of a process.
    Short {
        /// Median of the plain runs in nanoseconds.
        wall_ns: f64,
    },
    /// A signal ended the rounds.
    Stopped {
        /// Rounds that were complete.
        nr: usize,
    },
}

/// One quantity of both arms.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// `wall`, `user`, `system`, `minor faults`, `major faults`.
    pub name: &'static str,
    /// `ns` or `faults`.
    pub unit: &'static str,
    /// Plain runs.
    pub plain: Spread,
    /// Changed runs.
    pub changed: Spread,
    /// Changed over plain within a round; `None` where a plain value is 0.
    pub ratio: Option<Interval>,
}

/// What is measured of a run.
type Quantity = (&'static str, &'static str, fn(&Sample) -> f64);
#[expect(clippy::cast_precision_loss, reason = "faults of one run are below 2^53")]
const QUANTITIES: [Quantity; 5] = [
    ("wall", "ns", |s| s.wall.as_secs_f64() * 1e9),
    ("user", "ns", |s| s.user.as_secs_f64() * 1e9),
    ("system", "ns", |s| s.system.as_secs_f64() * 1e9),
    ("minor faults", "faults", |s| s.nr_minor_faults as f64),
    ("major faults", "faults", |s| s.nr_major_faults as f64),
];

/// Every quantity; nothing without a round.
#[must_use]
pub fn compare(rounds: &Rounds) -> Vec<Compared> {
    let of = |(name, unit, value): &Quantity| {
        let plain: Vec<f64> = rounds.plain.iter().map(value).collect();
        let changed: Vec<f64> = rounds.changed.iter().map(value).collect();
        let ratios: Vec<f64> =
            plain.iter().zip(&changed).map(|(plain, changed)| changed / plain).collect();
        Some(Compared {
            name,
            unit,
            plain: Spread::of(&plain)?,
            changed: Spread::of(&changed)?,
            ratio: Interval::of(&ratios),
        })
    };
    QUANTITIES.iter().filter_map(of).collect()
}

/// Whether `ratio`, changed over plain, confirms that the change makes the program faster.
/// Differences below `margin` (0.01 is one per cent) count as none.
///
/// ```
/// # use largefolio_linux::measure::bootstrap::Interval;
/// # use largefolio_linux::verify::verdict::{Verdict, judge};
/// let ratio = |low, high| Interval { median: f64::midpoint(low, high), low, high, n: 20 };
/// assert_eq!(judge(&ratio(0.90, 0.98), 0.01), Verdict::Confirmed);
/// assert_eq!(judge(&ratio(0.995, 1.004), 0.01), Verdict::NotConfirmed);
/// assert_eq!(judge(&ratio(1.02, 1.30), 0.01), Verdict::NotConfirmed);
/// assert_eq!(judge(&ratio(0.90, 1.10), 0.01), Verdict::Inconclusive);
/// ```
#[must_use]
pub fn judge(ratio: &Interval, margin: f64) -> Verdict {
    if ratio.high < 1.0 - margin {
        Verdict::Confirmed
    } else if ratio.low > 1.0 - margin {
        Verdict::NotConfirmed
    } else {
        Verdict::Inconclusive
    }
}

/// What speaks against trusting the rounds.
#[must_use]
pub fn doubts(rounds: &Rounds) -> Vec<Doubt> {
    let walls: Vec<f64> = rounds.plain.iter().map(|s| s.wall.as_secs_f64() * 1e9).collect();
    let mut doubts = Vec::new();
    if rounds.is_stopped {
        doubts.push(Doubt::Stopped { nr: walls.len() });
    }
    if walls.len() < NR_ROUNDS_MIN {
        doubts.push(Doubt::FewRounds { nr: walls.len() });
    }
    let Some(all) = Spread::of(&walls) else { return doubts };
    if walls.len() >= 4 {
        let mut sorted = walls.clone();
        sorted.sort_by(f64::total_cmp);
        let quarter = sorted.len() / 4;
        let part = (sorted[sorted.len() - 1 - quarter] - sorted[quarter]) / all.median;
        if part > NOISE {
            doubts.push(Doubt::Noise { part });
        }
        let (first, second) = walls.split_at(walls.len() / 2);
        if let (Some(first), Some(second)) = (Spread::of(first), Spread::of(second)) {
            let ratio = second.median / first.median;
            if (ratio - 1.0).abs() > DRIFT {
                doubts.push(Doubt::Drift { ratio });
            }
        }
    }
    if all.median < SHORT_NS {
        doubts.push(Doubt::Short { wall_ns: all.median });
    }
    doubts
}
