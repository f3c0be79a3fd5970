//! The time that other tasks wait between two reschedule points, and the unit that keeps it short.
//!
//! Series 001 promised 1 ms at 8 MiB and 10 GB/s (docs/behaviour J.2.1). This file measures the
//! gaps in wall time, or with the caller's clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use thiserror::Error;

use crate::folio::FolioError;
use crate::plan::{Plan, PlanError, Preemption, Rule, Shape};
use crate::tuning::Tuning;

const GAP_NS_MAX: u64 = 60_000_000_000;
/// log2 of the units tried for a latency target, from the merged unit (docs/behaviour D.4.3) down.
const UNIT_SHIFTS: std::ops::RangeInclusive<u32> = 16..=25;
const NR_GAPS_MIN: u64 = 200;
const PAGE_BYTES: usize = 4096;

/// Nanoseconds since a fixed moment; never decreases.
pub type Clock = fn() -> u64;

/// Wall time since the first call.
#[must_use]
pub fn wall_ns() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let elapsed = FIRST.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// A stopwatch called at every reschedule point.
///
/// ```
/// # use largefolio_bulk::gaps::{Gaps, wall_ns};
/// let mut gaps = Gaps::start(wall_ns);
/// gaps.point();
/// let distribution = gaps.finish();
/// assert_eq!(distribution.len(), 2); // before the point and behind it
/// ```
#[derive(Debug)]
pub struct Gaps {
    distribution: Histogram<u64>,
    clock: Clock,
    last_ns: u64,
}

impl Gaps {
    /// Starts the first gap.
    #[must_use]
    pub fn start(clock: Clock) -> Self {
        Self { distribution: nothing(), clock, last_ns: clock() }
    }

    /// Ends a gap and starts the next.
    pub fn point(&mut self) {
        let now_ns = (self.clock)();
        self.distribution.saturating_record(now_ns.saturating_sub(self.last_ns).max(1));
        self.last_ns = now_ns;
    }

    /// Ends the last gap and returns the gaps in nanoseconds.
    #[must_use]
    pub fn finish(mut self) -> Histogram<u64> {
        self.point();
        self.distribution
    }
}

fn nothing() -> Histogram<u64> {
    let Ok(nothing) = Histogram::new_with_bounds(1, GAP_NS_MAX, 3) else {
        unreachable!("the bounds are constants")
    };
    nothing
}

/// A unit and its gaps.
#[derive(Debug)]
pub struct UnitLatency {
    /// Bytes of the unit.
    pub unit_bytes: u64,
    /// Gaps between reschedule points in nanoseconds.
    pub gaps_ns: Histogram<u64>,
}

/// Why gaps were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GapsError {
    /// The memory is not a folio.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The memory is not whole pages.
    #[error(transparent)]
    Folio(#[from] FolioError),
    /// Even the smallest unit exceeds the target.
    #[error("units of {unit_bytes} bytes take {gap_ns} ns (99th percentile); allow more time")]
    TooSlow {
        /// Smallest unit tried.
        unit_bytes: u64,
        /// Its gap.
        gap_ns: u64,
    },
}

impl Tuning {
    /// Measures at least 200 gaps of clearing `folio` cooperatively in units of `unit_bytes`.
    ///
    /// # Errors
    /// [`GapsError`] unless `folio` is one or more whole pages of 4 KiB.
    pub fn gaps(
        &self,
        folio: &mut [u8],
        unit_bytes: u64,
        clock: Clock,
    ) -> Result<Histogram<u64>, GapsError> {
        let nr_pages = (folio.len() / PAGE_BYTES) as u64;
        let page_bytes = PAGE_BYTES as u64;
        let shape = Shape { nr_pages, fault_page: nr_pages / 2, page_bytes };
        let plan = Plan::new(Rule::Merged { unit_bytes }, shape, Preemption::Cooperative)?;
        let mut all = nothing();
        while all.len() < NR_GAPS_MIN {
            let mut gaps = Gaps::start(clock);
            self.clear_folio(folio, &plan, || gaps.point())?;
            let Ok(()) = all.add(gaps.finish()) else { unreachable!("distributions of one shape") };
        }
        Ok(all)
    }

    /// Finds the largest unit, from 64 KiB to 32 MiB, with 99% of its gaps within `target`.
    ///
    /// `folio` should be larger than 32 MiB and than the cache, or cached memory is measured.
    ///
    /// # Errors
    /// [`GapsError`] unless `folio` is one or more whole pages of 4 KiB, or if the smallest unit
    /// takes longer.
    pub fn unit_within(
        &self,
        folio: &mut [u8],
        target: Duration,
        clock: Clock,
    ) -> Result<UnitLatency, GapsError> {
        let mut slowest = GapsError::TooSlow { unit_bytes: 0, gap_ns: 0 };
        for shift in UNIT_SHIFTS.rev() {
            let unit_bytes = 1 << shift;
            let distribution = self.gaps(folio, unit_bytes, clock)?;
            let gap_ns = distribution.value_at_quantile(0.99);
            if Duration::from_nanos(gap_ns) <= target {
                return Ok(UnitLatency { unit_bytes, gaps_ns: distribution });
            }
            slowest = GapsError::TooSlow { unit_bytes, gap_ns };
        }
        Err(slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of clears are too many to interpret")]
    fn every_point_ends_a_gap() {
        let tuning = Tuning::host();
        let mut folio = vec![1; 64 * PAGE_BYTES];
        // Units of 16 pages: right 30 pages, left 30, near 5, so 2 + 2 + 1 units.
        let gaps = tuning.gaps(&mut folio, 16 * PAGE_BYTES as u64, wall_ns).unwrap();
        assert_eq!(gaps.len() % 6, 0);
        assert!(gaps.len() >= NR_GAPS_MIN);
        assert!(folio.iter().all(|&byte| byte == 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of clears are too many to interpret")]
    fn a_target_gives_a_unit_or_says_what_the_smallest_takes() {
        let mut folio = vec![1; 64 * PAGE_BYTES];
        let hour = Duration::from_hours(1);
        let chosen = Tuning::host().unit_within(&mut folio, hour, wall_ns).unwrap();
        assert_eq!(chosen.unit_bytes, 32 << 20);
        let error = Tuning::host().unit_within(&mut folio, Duration::ZERO, wall_ns).unwrap_err();
        assert!(matches!(error, GapsError::TooSlow { unit_bytes: 65536, .. }), "{error}");
    }

    #[test]
    fn gaps_are_what_the_clock_says() {
        // Advances by 1, 2, 3, .. us per call: each test thread has its own.
        fn slowing() -> u64 {
            thread_local!(static TURN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
            let turn = TURN.replace(TURN.get() + 1);
            1000 * turn * (turn + 1) / 2
        }
        let mut gaps = Gaps::start(slowing);
        gaps.point();
        gaps.point();
        let distribution = gaps.finish();
        assert_eq!((distribution.len(), distribution.min()), (3, 1000));
        assert!(distribution.equivalent(distribution.max(), 3000));
    }

    #[test]
    fn what_is_no_folio_is_refused() {
        let refused = Tuning::host().gaps(&mut [], 4096, wall_ns).unwrap_err();
        assert_eq!(refused, GapsError::Plan(PlanError::NoPages));
        let refused = Tuning::host().gaps(&mut [0; PAGE_BYTES + 1], 4096, wall_ns).unwrap_err();
        assert!(matches!(refused, GapsError::Folio(FolioError::Length { .. })));
    }
}
