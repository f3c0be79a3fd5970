//! How long other tasks wait while a gigantic folio is cleared in units of 8 MiB. Series 001
//! promises 1 ms at 10 GB/s (docs/behaviour J.2.1).

use std::time::Duration;

use hdrhistogram::Histogram;
use largefolio_bulk::gaps::{Clock, GapsError, wall_ns};
use largefolio_bulk::plan::POSTED_UNIT_BYTES;
use largefolio_bulk::{Clearer, Primitive, Tuning};

use largefolio_linux::calibrate::anon::BenchError;
use largefolio_linux::calibrate::clear::{Arena, PAGEWISE};
use largefolio_linux::measure::{Spread, cpu_time};

use super::near::always;

#[derive(Clone, Debug)]
pub struct Waits {
    pub clock: &'static str,
    /// Whether `tuning` chose the primitive. If not, it is the kernel's.
    pub is_chosen: bool,
    pub gaps_ns: Spread,
    /// The 99th percentile of the gaps in nanoseconds.
    pub p99_ns: u64,
    /// Largest units that keep the 99th percentile within 1 ms and within 100 us. `None` if even 64
    /// KiB does not.
    pub units_within: [Option<u64>; 2],
}

pub const TARGETS: [Duration; 2] = [Duration::from_millis(1), Duration::from_micros(100)];

fn cpu_ns() -> u64 {
    u64::try_from(cpu_time().as_nanos()).unwrap_or(u64::MAX)
}

/// Clears all of `arena` under cooperative preemption, with the kernel's instruction and with
/// `tuning`.
///
/// # Errors
/// Never on a CPU that has the detected primitives.
pub fn measure(arena: &mut Arena, tuning: &Tuning) -> Result<Vec<Waits>, BenchError> {
    let kernels = Clearer::new(PAGEWISE).map_or(Primitive::Portable, |by| by.primitive());
    let kernel = always(kernels)?;
    let mut all = Vec::new();
    for (clock_name, clock) in [("wall", wall_ns as Clock), ("CPU", cpu_ns)] {
        for (is_chosen, tuning) in [(false, &kernel), (true, tuning)] {
            let gaps = tuning.gaps(arena.to(), POSTED_UNIT_BYTES, clock)?;
            let mut units_within = [None; 2];
            for (unit, target) in units_within.iter_mut().zip(TARGETS) {
                *unit = match tuning.unit_within(arena.to(), target, clock) {
                    Ok(gap) => Some(gap.unit_bytes),
                    Err(GapsError::TooSlow { .. }) => None,
                    Err(error) => return Err(error.into()),
                };
            }
            // A unit that meets the smaller target also meets the larger one, despite noise between
            // rounds.
            units_within[0] = units_within[0].max(units_within[1]);
            let gaps_ns = spread(&gaps);
            let p99_ns = gaps.value_at_quantile(0.99);
            all.push(Waits { clock: clock_name, is_chosen, gaps_ns, p99_ns, units_within });
        }
    }
    Ok(all)
}

#[expect(clippy::cast_precision_loss, reason = "gaps of up to a minute are exact in 53 bits")]
fn spread(gaps: &Histogram<u64>) -> Spread {
    Spread {
        median: gaps.value_at_quantile(0.5) as f64,
        min: gaps.min() as f64,
        max: gaps.max() as f64,
        n: usize::try_from(gaps.len()).unwrap_or(usize::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clock_sees_both_ways_of_clearing() {
        let mut arena = Arena::new(32 << 20, 0).unwrap();
        let all = measure(&mut arena, Tuning::host()).unwrap();
        let kinds: Vec<_> = all.iter().map(|waits| (waits.clock, waits.is_chosen)).collect();
        assert_eq!(kinds, [("wall", false), ("wall", true), ("CPU", false), ("CPU", true)]);
        for waits in all {
            assert!(waits.gaps_ns.n >= 200 && waits.gaps_ns.min <= waits.gaps_ns.max);
            let is_unit = |unit: &Option<u64>| unit.is_none_or(u64::is_power_of_two);
            assert!(waits.units_within.iter().all(is_unit), "{waits:?}");
            assert!(waits.units_within[0] >= waits.units_within[1], "{waits:?}");
        }
        assert!(arena.to().iter().all(|&byte| byte == 0));
    }
}
