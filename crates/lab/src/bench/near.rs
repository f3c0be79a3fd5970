//! The data left in the cache after a 2 MiB folio was cleared: near pages and a working set.

use std::hint::black_box;
use std::time::Instant;

use largefolio_bulk::plan::{Plan, Preemption, Rule, Shape};
use largefolio_bulk::{Choices, Primitive, Residency, Rung, Tuning, TuningError};

use largefolio_linux::calibrate::anon::BenchError;
use largefolio_linux::calibrate::clear::Arena;
use largefolio_linux::measure::Series;

/// A folio of 512 pages of 4 KiB, regardless of this machine's base page.
const FOLIO_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;
const FAULT_PAGE: u64 = 255;
const NEAR: std::ops::Range<usize> = 253 * PAGE_BYTES..258 * PAGE_BYTES;
const WORKING_BYTES: usize = 512 << 10;
const LINE_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// Every extent through the cache.
    Through,
    /// The near region through the cache, the rest with non-temporal stores.
    NearThrough,
    /// All of it with non-temporal stores.
    Past,
    NotCleared,
}

impl CacheUse {
    pub const ALL: [Self; 4] = [Self::Through, Self::NearThrough, Self::Past, Self::NotCleared];
}

#[derive(Clone, Debug)]
pub struct Left {
    pub how: CacheUse,
    pub near: Series,
    /// Reading 512 KiB of other data that was in the cache before.
    pub other: Series,
}

/// Returns a tuning that uses `primitive` for all clearing and the C library for copies.
pub(super) fn always(primitive: Primitive) -> Result<Tuning, TuningError> {
    let choices = |primitive| {
        let rungs = vec![Rung { from_bytes: 0, primitive }];
        Choices { cached: rungs.clone(), away: rungs, keep_bytes_max: 0, unknown_bytes_max: 0 }
    };
    Tuning::new(&choices(primitive), &choices(Primitive::Portable))
}

/// Clears cold folios of `arena` in each way and reads. Uses wall time: reading a thread's CPU time
/// takes too long for this short a measurement.
///
/// # Errors
/// Never on a CPU that has the detected primitives.
pub fn measure(arena: &mut Arena, nr_rounds: usize) -> Result<Vec<Left>, BenchError> {
    let (nr_pages, page_bytes) = ((FOLIO_BYTES / PAGE_BYTES) as u64, PAGE_BYTES as u64);
    let shape = Shape { nr_pages, fault_page: FAULT_PAGE, page_bytes };
    let rule = Rule::Merged { unit_bytes: 32 << 20 };
    let plan = Plan::new(rule, shape, Preemption::Preemptible)?;
    let host = Tuning::host();
    let through = always(host.clearer(PAGE_BYTES, Residency::TouchedNow).primitive())?;
    let mut walk = arena.walk(FOLIO_BYTES);
    let (to, from) = arena.both();
    let working = &from[..WORKING_BYTES];
    let mut left =
        CacheUse::ALL.map(|how| Left { how, near: Series::default(), other: Series::default() });
    for round in 0..nr_rounds {
        for turn in 0..left.len() {
            let Left { how, near, other } = &mut left[(turn + round) % CacheUse::ALL.len()];
            let first = walk();
            let folio = &mut to[first..first + FOLIO_BYTES];
            for _ in 0..3 {
                read_ns(working);
            }
            match how {
                CacheUse::Through => through.clear_folio(folio, &plan, || {})?,
                CacheUse::NearThrough => host.clear_folio(folio, &plan, || {})?,
                CacheUse::Past => host.clear_extent(folio, Residency::NotTouched),
                CacheUse::NotCleared => {}
            }
            near.rounds_ns.push(read_ns(&folio[NEAR]));
            other.rounds_ns.push(read_ns(working));
        }
    }
    Ok(left.into())
}

fn read_ns(bytes: &[u8]) -> f64 {
    let start = Instant::now();
    let sum = bytes.iter().step_by(LINE_BYTES).fold(0u64, |sum, &byte| sum + u64::from(byte));
    black_box(sum);
    start.elapsed().as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_read_in_every_round() {
        let mut arena = Arena::new(4 << 20, 0).unwrap();
        let left = measure(&mut arena, 3).unwrap();
        assert_eq!(left.iter().map(|left| left.how).collect::<Vec<_>>(), CacheUse::ALL);
        let is_full = |series: &Series| series.rounds_ns.len() == 3;
        assert!(left.iter().all(|left| is_full(&left.near) && is_full(&left.other)));
        // Three of the four ways clear folios.
        assert!(arena.to().contains(&0));
    }
}
