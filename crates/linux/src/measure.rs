//! Interleaved measurements: every subject runs once per round, and a ratio compares runs in one
//! round.
//!
//! Machines drift by tens of percent over minutes. Two subjects are therefore compared only within
//! a round, and a result is the median of such ratios with its spread.

pub mod bootstrap;
pub mod counters;
mod events;
pub mod perf_stat;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Returns this thread's CPU time so far, which excludes other programs' time slices.
#[must_use]
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub rounds_ns: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub n: usize,
}

impl Spread {
    /// Returns the spread of `values`, `None` if there are none.
    ///
    /// ```
    /// # use largefolio_linux::measure::Spread;
    /// let spread = Spread::of(&[3.0, 1.0, 2.0, 10.0]).unwrap();
    /// assert_eq!((spread.median, spread.min, spread.max, spread.n), (2.5, 1.0, 10.0, 4));
    /// ```
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        (!sorted.is_empty()).then(|| {
            let median = median_of(&mut sorted);
            Self { median, min: sorted[0], max: sorted[sorted.len() - 1], n: sorted.len() }
        })
    }
}

fn median_of(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

impl Series {
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(&self.rounds_ns)
    }

    /// Returns this series divided by `reference`, round by round.
    #[must_use]
    pub fn ratio(&self, reference: &Self) -> Option<Spread> {
        let pairs = self.rounds_ns.iter().zip(&reference.rounds_ns);
        let ratios: Vec<f64> =
            pairs.filter(|(_, base)| **base > 0.0).map(|(value, base)| value / base).collect();
        Spread::of(&ratios)
    }
}

pub(crate) fn turns(round: usize, nr: usize) -> impl Iterator<Item = usize> {
    (0..nr).map(move |turn| if round.is_multiple_of(2) { turn } else { nr - 1 - turn })
}

/// Runs every subject once per round, after one round that does not count. The order reverses from
/// round to round, so each subject follows a different neighbour. Each call returns the time of its
/// measured part, without set-up and tear-down.
///
/// # Errors
/// The first error of a subject.
pub fn interleave<E>(
    nr_rounds: usize,
    subjects: &mut [Box<dyn FnMut() -> Result<Duration, E> + '_>],
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Series>, E> {
    let mut series = vec![Series::default(); subjects.len()];
    for round in 0..=nr_rounds {
        for which in turns(round, subjects.len()) {
            let taken = subjects[which]()?;
            if round > 0 {
                series[which].rounds_ns.push(taken.as_secs_f64() * 1e9);
            }
        }
        progress(round);
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_take_turns_in_both_directions_and_the_first_round_is_not_counted() {
        let order = std::cell::RefCell::new(Vec::new());
        let subject = |name: char, ns: u64| {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok::<_, ()>(Duration::from_nanos(ns))
            }) as Box<dyn FnMut() -> Result<Duration, ()>>
        };
        let series = interleave(2, &mut [subject('a', 10), subject('b', 20)], &mut |_| {}).unwrap();
        assert_eq!(order.borrow().iter().collect::<String>(), "abbaab");
        assert_eq!(series[1].rounds_ns.len(), 2);
        let ratio = series[1].ratio(&series[0]).unwrap();
        assert!((ratio.median - 2.0).abs() < 1e-9 && ratio.n == 2, "{ratio:?}");
    }

    #[test]
    fn cpu_time_does_not_pass_in_sleep() {
        let start = cpu_time();
        std::thread::sleep(Duration::from_millis(200));
        assert!(cpu_time().saturating_sub(start) < Duration::from_millis(100));
        assert!(cpu_time() > Duration::ZERO);
    }

    #[test]
    fn nothing_measured_has_no_spread() {
        assert_eq!(Spread::of(&[]), None);
    }
}
