//! The result of the rounds: ratios with their confidence, a verdict, and reasons to doubt it.

use super::metric::{Better, Metric};
use super::proof::{Proved, Trace, prove, undisturbed};
use super::rounds::{LoadRun, NR_ROUNDS_MIN, Rounds};
use super::threshold::{Threshold, ThresholdOutcome};
use crate::measure::Spread;
use crate::measure::bootstrap::Interval;

/// Few users wait for more rounds: 500 of five seconds take 42 minutes.
const NR_ROUNDS_MAX: f64 = 500.0;
/// Multiplies the number of rounds. Without it, half the interval equals the distance to the limit,
/// and chance decides whether it clears the limit. With (1.96 + 0.84)^2 / 1.96^2 times as many
/// rounds, it does so in four of five tries, if the measured distance is right.
const POWER: f64 = 2.04;
/// A spread of the plain runs above this (half of them around the median) is called noise.
const NOISE: f64 = 0.05;
/// A difference between the first and second half of the plain runs above this is called drift.
const DRIFT: f64 = 0.05;
/// Below this wall time in nanoseconds, most of the time is the start of the process.
const SHORT_NS: f64 = 5e6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is better than 1 by more than the margin.
    Confirmed,
    /// The change makes it worse, or better by less than the margin.
    NotConfirmed,
    /// The interval allows both, or there are fewer than ten rounds.
    Inconclusive,
    /// Fewer than ten rounds are left in which the change took effect.
    NotProved,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    FewRounds {
        nr: usize,
    },
    Noise {
        part: f64,
    },
    /// The plain runs' second half took longer or shorter than the first.
    Drift {
        ratio: f64,
    },
    Short {
        wall_ns: f64,
    },
    Stopped {
        nr: usize,
    },
    /// The command ended before one of its processes, and was measured up to its own end.
    LeftRunning {
        name: String,
        nr_runs: usize,
    },
    NoTrace {
        is_looked: bool,
    },
    Unlike {
        nr: usize,
    },
    /// Memory and folios were not sampled in every round: a sample takes too much of a run.
    NotLooked {
        part: f64,
        nr: usize,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    pub name: String,
    pub unit: String,
    pub plain: Spread,
    pub changed: Spread,
    pub ratio: Option<Interval>,
}

struct Quantity {
    name: &'static str,
    unit: &'static str,
    of: fn(&LoadRun) -> Option<f64>,
}

const fn quantity(
    name: &'static str,
    unit: &'static str,
    of: fn(&LoadRun) -> Option<f64>,
) -> Quantity {
    Quantity { name, unit, of }
}

#[expect(clippy::cast_precision_loss, reason = "faults and bytes of one run are below 2^53")]
const QUANTITIES: [Quantity; 14] = [
    quantity("wall", "ns", |run| Some(run.sample.wall.as_secs_f64() * 1e9)),
    quantity("cpu", "ns", |run| Some((run.sample.user + run.sample.system).as_secs_f64() * 1e9)),
    quantity("user", "ns", |run| Some(run.sample.user.as_secs_f64() * 1e9)),
    quantity("system", "ns", |run| Some(run.sample.system.as_secs_f64() * 1e9)),
    quantity("minor faults", "faults", |run| Some(run.sample.nr_minor_faults as f64)),
    quantity("major faults", "faults", |run| Some(run.sample.nr_major_faults as f64)),
    quantity("memory", "bytes", |run| Some(run.memory.as_ref()?.mapped_bytes() as f64)),
    quantity("large folios", "bytes", |run| Some(run.memory.as_ref()?.large_bytes() as f64)),
    quantity("server cpu", "ns", |run| {
        let served = run.served.as_ref()?;
        Some((served.user + served.system).as_secs_f64() * 1e9)
    }),
    quantity("server user", "ns", |run| Some(run.served.as_ref()?.user.as_secs_f64() * 1e9)),
    quantity("server system", "ns", |run| Some(run.served.as_ref()?.system.as_secs_f64() * 1e9)),
    quantity("server faults", "faults", |run| Some(run.served.as_ref()?.nr_minor_faults as f64)),
    quantity("server memory", "bytes", |run| {
        Some(run.served.as_ref()?.memory.as_ref()?.mapped_bytes() as f64)
    }),
    quantity("server large folios", "bytes", |run| {
        Some(run.served.as_ref()?.memory.as_ref()?.large_bytes() as f64)
    }),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    QUANTITIES.iter().map(|quantity| quantity.name)
}

#[must_use]
pub fn value(run: &LoadRun, name: &str) -> Option<f64> {
    match QUANTITIES.iter().find(|quantity| quantity.name == name) {
        Some(quantity) => (quantity.of)(run),
        None => run.metric,
    }
}

fn selects(unit: &str) -> bool {
    matches!(unit, "faults" | "bytes")
}

#[must_use]
pub fn compare(rounds: &Rounds, metric: &Metric) -> Vec<Compared> {
    compare_each(metric, |_| rounds)
}

fn compare_each<'a>(metric: &Metric, of: impl Fn(&str) -> &'a Rounds) -> Vec<Compared> {
    let printed = (metric.name.as_str(), metric.unit.as_str());
    let known = QUANTITIES.iter().map(|quantity| (quantity.name, quantity.unit));
    let is_known = names().any(|name| name == metric.name);
    let all = (!is_known).then_some(printed).into_iter().chain(known);
    all.filter_map(|(name, unit)| compared(of(unit), name, unit)).collect()
}

#[must_use]
pub fn ratio(plain: f64, changed: f64) -> f64 {
    if plain <= 0.0 && changed <= 0.0 { 1.0 } else { changed / plain }
}

fn compared(rounds: &Rounds, name: &str, unit: &str) -> Option<Compared> {
    let is_looked_at = matches!(name, "memory" | "large folios");
    let (plain, changed) =
        if is_looked_at { rounds.looked_at() } else { (&rounds.plain[..], &rounds.changed[..]) };
    let pairs = plain.iter().zip(changed);
    let pairs =
        pairs.filter_map(|(plain, changed)| Some((value(plain, name)?, value(changed, name)?)));
    let (plain, changed): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let ratios: Vec<f64> =
        plain.iter().zip(&changed).map(|(plain, changed)| ratio(*plain, *changed)).collect();
    Some(Compared {
        name: name.to_owned(),
        unit: unit.to_owned(),
        plain: Spread::of(&plain)?,
        changed: Spread::of(&changed)?,
        ratio: Interval::of(&ratios),
    })
}

#[must_use]
pub fn conclude(proved: &Proved, ratio: Option<&Interval>, margin: f64, better: Better) -> Verdict {
    let nr = proved.rounds.plain.len();
    match ratio {
        _ if nr < NR_ROUNDS_MIN && !proved.dropped.is_empty() => Verdict::NotProved,
        Some(ratio) if ratio.n >= NR_ROUNDS_MIN => judge(ratio, margin, better),
        _ => Verdict::Inconclusive,
    }
}

#[must_use]
pub fn limit(margin: f64, better: Better) -> f64 {
    match better {
        Better::Lower => 1.0 - margin,
        Better::Higher => 1.0 + margin,
    }
}

/// Judges whether `ratio`, changed over plain, confirms that the change makes the program better.
/// Differences below `margin` (0.01 is one percent) do not count.
///
/// ```
/// # use largefolio_linux::measure::bootstrap::Interval;
/// # use largefolio_linux::verify::{metric::Better, verdict::{Verdict, judge}};
/// let ratio = |low, high| Interval { median: f64::midpoint(low, high), low, high, n: 20 };
/// let lower = |low, high| judge(&ratio(low, high), 0.01, Better::Lower);
/// assert_eq!(lower(0.90, 0.98), Verdict::Confirmed);
/// assert_eq!(lower(0.995, 1.004), Verdict::NotConfirmed);
/// assert_eq!(lower(1.02, 1.30), Verdict::NotConfirmed);
/// assert_eq!(lower(0.90, 1.10), Verdict::Inconclusive);
/// assert_eq!(judge(&ratio(1.0, 1.0), 0.0, Better::Lower), Verdict::NotConfirmed);
/// assert_eq!(judge(&ratio(1.02, 1.30), 0.01, Better::Higher), Verdict::Confirmed);
/// ```
#[must_use]
pub fn judge(ratio: &Interval, margin: f64, better: Better) -> Verdict {
    let limit = limit(margin, better);
    let (is_beyond, is_short) = match better {
        Better::Lower => (ratio.high < limit, ratio.low >= limit),
        Better::Higher => (ratio.low > limit, ratio.high <= limit),
    };
    match (is_beyond, is_short) {
        (true, _) => Verdict::Confirmed,
        (_, true) => Verdict::NotConfirmed,
        _ => Verdict::Inconclusive,
    }
}

/// Returns the number of rounds after which, in four of five tries, half the interval is narrower
/// than `half`. The width shrinks with the root of that number. Returns `None` for more than 500.
///
/// ```
/// # use largefolio_linux::measure::bootstrap::Interval;
/// # use largefolio_linux::verify::verdict::nr_rounds_until;
/// let ratio = Interval { median: 1.0, low: 0.96, high: 1.04, n: 20 };
/// assert_eq!(nr_rounds_until(&ratio, 0.02), Some(164));
/// assert_eq!(nr_rounds_until(&ratio, 0.5), Some(21));
/// assert_eq!(nr_rounds_until(&ratio, 0.005), None);
/// assert_eq!(nr_rounds_until(&ratio, 0.0), None);
/// ```
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: at most 500"
)]
pub fn nr_rounds_until(ratio: &Interval, half: f64) -> Option<usize> {
    let times = POWER * ((ratio.high - ratio.low) / 2.0 / half).powi(2);
    let nr = (ratio.n as f64 * times).ceil();
    let least = NR_ROUNDS_MIN.max(ratio.n + 1);
    (nr <= NR_ROUNDS_MAX).then(|| (nr as usize).max(least))
}

#[must_use]
pub fn doubts(proved: &Proved, trace: Trace) -> Vec<Doubt> {
    let rounds = &proved.rounds;
    let walls: Vec<f64> =
        rounds.plain.iter().map(|run| run.sample.wall.as_secs_f64() * 1e9).collect();
    let mut doubts = Vec::new();
    let left = || rounds.plain.iter().chain(&rounds.changed).filter_map(|run| run.left.as_ref());
    if let Some(name) = left().next() {
        doubts.push(Doubt::LeftRunning { name: name.clone(), nr_runs: left().count() });
    }
    let nr_looked = rounds.plain.iter().filter(|run| run.memory.is_some()).count();
    if trace == Trace::Possible && proved.traces.is_empty() && !walls.is_empty() {
        doubts.push(Doubt::NoTrace { is_looked: nr_looked > 0 });
    }
    if let Some(part) = rounds.too_dear {
        doubts.push(Doubt::NotLooked { part, nr: nr_looked });
    }
    if proved.nr_unlike > 0 {
        doubts.push(Doubt::Unlike { nr: proved.nr_unlike });
    }
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

#[derive(Clone, Debug)]
pub struct VerifyQuestion {
    pub metric: Metric,
    /// Differences below it do not count. 0.01 is one percent.
    pub margin: f64,
    pub trace: Trace,
    pub thresholds: Vec<Threshold>,
}

#[derive(Clone, Debug)]
pub struct Judged {
    pub proved: Proved,
    /// Every quantity over those. Faults, memory and folios use all undisturbed rounds.
    pub compared: Vec<Compared>,
    pub verdict: Verdict,
    pub outcomes: Vec<ThresholdOutcome>,
}

impl Judged {
    #[must_use]
    pub fn of(rounds: &Rounds, question: &VerifyQuestion) -> Self {
        let proved = prove(rounds, question.trace);
        let calm = undisturbed(rounds);
        let of_unit = |unit: &str| if selects(unit) { &calm } else { &proved.rounds };
        let compared = compare_each(&question.metric, of_unit);
        let of = |name: &str| compared.iter().find(|one| one.name == name);
        let ratio = |name: &str| of(name).and_then(|one| one.ratio.as_ref());
        let Metric { name, better, .. } = &question.metric;
        let verdict = conclude(&proved, ratio(name), question.margin, *better);
        let outcome = |limit: &Threshold| {
            let nr = of(&limit.quantity).map_or(0, |one| one.plain.n);
            limit.judge(ratio(&limit.quantity), nr)
        };
        let outcomes = question.thresholds.iter().map(outcome).collect();
        Self { proved, compared, verdict, outcomes }
    }
}
