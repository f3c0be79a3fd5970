//! Chooses primitives by measuring them on this machine.
//!
//! Only this file and [`gaps`](crate::gaps) read wall time. Each round measures all primitives,
//! interleaved, so drift affects them equally. The median round counts.

use std::ops::Range;
use std::time::Instant;

use thiserror::Error;

use crate::primitive::{Clearer, Copier, Primitive};
use crate::tuning::{Choices, Rung, Tuning};

const LEN_BYTES_MIN: usize = 4 << 10;
const LEN_BYTES_MAX: usize = 32 << 20;
/// Minimum bytes per hot sample: long compared with the clock, short compared with a time slice.
const HOT_BYTES: usize = 4 << 20;
/// Minimum bytes per cold sample: more than the cache, so each primitive writes back its own lines.
const COLD_BYTES: usize = 64 << 20;
/// Both halves hold more than the largest extent, so cold memory stays cold.
const MEMORY_BYTES_MIN: usize = 4 * LEN_BYTES_MAX + 2 * LEN_BYTES_MIN;
/// Keep a primitive on the next rung if it is within this of the best: noise must not add rungs.
const NEAR_BEST_PERCENT: u64 = 4;

/// Operation on an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Zero it.
    Clear,
    /// Copy another extent over it.
    Copy,
}

/// State of the extent when the operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// As near as its size allows: it was just written.
    Hot,
    /// Evicted by at least 64 MiB written since.
    Cold,
}

/// The median speed of one primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Operation measured.
    pub operation: Operation,
    /// Primitive measured.
    pub primitive: Primitive,
    /// Cache state before the operation.
    pub cache: Cache,
    /// Length of the extent.
    pub len_bytes: usize,
    /// Speed in bytes per microsecond (MB/s).
    pub bytes_per_us: u64,
}

/// Why a measurement or choice failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CalibrateError {
    /// Too little memory for cold extents.
    #[error("{len_bytes} bytes are too few for a measurement; pass at least {MEMORY_BYTES_MIN}")]
    Memory {
        /// Bytes passed.
        len_bytes: usize,
    },
    /// `nr_rounds` is 0.
    #[error("0 rounds: pass at least 1")]
    NoRounds,
    /// No size has a cacheable primitive measured both hot and cold.
    #[error("there is no sample of a cacheable primitive for {operation:?}; measure hot and cold")]
    NoSamples {
        /// Operation without a choice.
        operation: Operation,
    },
}

/// Measures the best choices for clearing and copying, in about five seconds with 9 rounds.
///
/// Overwrites `memory`, which should be on huge pages, like the kernel's own mapping of memory.
///
/// # Errors
/// Fails with less memory than 128 MiB plus two pages, or without rounds.
pub fn calibrate(memory: &mut [u8], nr_rounds: u32) -> Result<(Choices, Choices), CalibrateError> {
    let samples = measure(memory, nr_rounds)?;
    Ok((choices(&samples, Operation::Clear)?, choices(&samples, Operation::Copy)?))
}

impl Tuning {
    /// Creates a tuning measured on this machine: see [`calibrate`].
    ///
    /// # Errors
    /// Fails with less memory than 128 MiB plus two pages, or without rounds.
    pub fn calibrated(memory: &mut [u8], nr_rounds: u32) -> Result<Self, CalibrateError> {
        let (clear, copy) = calibrate(memory, nr_rounds)?;
        let Ok(tuning) = Self::new(&clear, &copy) else {
            unreachable!("I1: only what ran was measured")
        };
        Ok(tuning)
    }
}

/// Measures every primitive of this CPU at every size, hot and cold.
///
/// # Errors
/// Fails with less memory than 128 MiB plus two pages, or without rounds.
pub fn measure(memory: &mut [u8], nr_rounds: u32) -> Result<Vec<Sample>, CalibrateError> {
    if memory.len() < MEMORY_BYTES_MIN {
        return Err(CalibrateError::Memory { len_bytes: memory.len() });
    }
    if nr_rounds == 0 {
        return Err(CalibrateError::NoRounds);
    }
    memory.fill(1); // Faults are not to be measured.
    let page = memory.as_ptr().align_offset(LEN_BYTES_MIN).min(LEN_BYTES_MIN);
    let memory = &mut memory[page..];
    let middle = (memory.len() / 2).next_multiple_of(LEN_BYTES_MIN) - LEN_BYTES_MIN;
    let (to, from) = memory.split_at_mut(middle);
    let mut samples = Vec::new();
    for len_bytes in std::iter::successors(Some(LEN_BYTES_MIN), |len| Some(len * 2)) {
        if len_bytes > LEN_BYTES_MAX {
            break;
        }
        for cache in [Cache::Hot, Cache::Cold] {
            let mut cell = Cell { len_bytes, cache, walk: Walk::new(middle / len_bytes) };
            samples.extend(cell.clearing(to, nr_rounds));
            samples.extend(cell.copying(to, from, nr_rounds));
        }
    }
    Ok(samples)
}

/// Visits every unit of memory before repeating one, in an order that a prefetcher cannot guess.
struct Walk {
    nr_units: usize,
    at: usize,
}

impl Walk {
    /// An odd step visits every unit of a power of two; about the golden ratio of 64 bits.
    const STEP: usize = 0x9e37_79b1;

    fn new(nr_units: usize) -> Self {
        Self { nr_units: 1 << nr_units.ilog2(), at: 0 }
    }

    fn next(&mut self) -> usize {
        self.at = self.at.wrapping_add(Self::STEP) & (self.nr_units - 1);
        self.at
    }
}

struct Cell {
    len_bytes: usize,
    cache: Cache,
    walk: Walk,
}

impl Cell {
    fn clearing(&mut self, to: &mut [u8], nr_rounds: u32) -> Vec<Sample> {
        let clearers = Clearer::available();
        let medians_ns = self.medians_of(clearers.len(), nr_rounds, |which, part| {
            clearers[which].clear(&mut to[part]);
        });
        let primitives = clearers.iter().map(Clearer::primitive);
        self.samples(Operation::Clear, primitives, &medians_ns)
    }

    fn copying(&mut self, to: &mut [u8], from: &[u8], nr_rounds: u32) -> Vec<Sample> {
        let copiers = Copier::available();
        let medians_ns = self.medians_of(copiers.len(), nr_rounds, |which, part| {
            let Ok(()) = copiers[which].copy(&mut to[part.clone()], &from[part]) else {
                unreachable!("parts of one length")
            };
        });
        let primitives = copiers.iter().map(Copier::primitive);
        self.samples(Operation::Copy, primitives, &medians_ns)
    }

    fn medians_of(
        &mut self,
        nr: usize,
        nr_rounds: u32,
        mut run: impl FnMut(usize, Range<usize>),
    ) -> Vec<u64> {
        let mut taken = vec![Vec::new(); nr];
        for round in 0..nr_rounds {
            for turn in 0..nr {
                // Each variant follows one neighbour in one round and the other in the next.
                let which = if round % 2 == 0 { turn } else { nr - 1 - turn };
                if self.cache == Cache::Hot {
                    run(0, 0..self.len_bytes);
                    run(which, 0..self.len_bytes);
                }
                let start = Instant::now();
                for _ in 0..self.nr_repeats() {
                    let unit = if self.cache == Cache::Hot { 0 } else { self.walk.next() };
                    let first = unit * self.len_bytes;
                    run(which, first..first + self.len_bytes);
                }
                let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                taken[which].push(ns.max(1));
            }
        }
        let median = |mut taken: Vec<u64>| {
            let middle = taken.len() / 2;
            *taken.select_nth_unstable(middle).1
        };
        taken.into_iter().map(median).collect()
    }

    fn nr_repeats(&self) -> usize {
        let sample_bytes = if self.cache == Cache::Hot { HOT_BYTES } else { COLD_BYTES };
        sample_bytes.div_ceil(self.len_bytes)
    }

    fn samples(
        &self,
        operation: Operation,
        primitives: impl Iterator<Item = Primitive>,
        medians_ns: &[u64],
    ) -> Vec<Sample> {
        let Self { len_bytes, cache, .. } = *self;
        let nr_bytes = (self.nr_repeats() * len_bytes) as u64;
        primitives
            .zip(medians_ns)
            .map(|(primitive, ns)| {
                let bytes_per_us = nr_bytes * 1000 / ns;
                Sample { operation, primitive, cache, len_bytes, bytes_per_us }
            })
            .collect()
    }
}

/// Chooses the best primitives for `operation` from the samples.
///
/// An extent is kept in the cache up to the largest size at which that is faster when it is hot.
/// Without a hint, it goes through the cache while streaming a hot extent would lose more than
/// caching a cold one.
///
/// # Errors
/// [`CalibrateError::NoSamples`] if no size has a cacheable primitive measured hot and cold.
pub fn choices(samples: &[Sample], operation: Operation) -> Result<Choices, CalibrateError> {
    let samples = Table(samples.iter().filter(|s| s.operation == operation).copied().collect());
    let mut chosen =
        Choices { cached: vec![], away: vec![], keep_bytes_max: 0, unknown_bytes_max: 0 };
    let (mut is_kept, mut is_guessed) = (true, true);
    for len_bytes in samples.sizes() {
        let last = |rungs: &[Rung]| rungs.last().map(|rung| rung.primitive);
        let near = samples.best(len_bytes, Cache::Hot, last(&chosen.cached), |p| !p.is_streaming());
        let far = samples.best(len_bytes, Cache::Cold, last(&chosen.away), |_| true);
        let (Some(near), Some(far)) = (near, far) else { continue };
        step(&mut chosen.cached, len_bytes, near);
        step(&mut chosen.away, len_bytes, far);
        let speed = |cache, primitive| samples.speed(len_bytes, cache, primitive);
        let (near_hot, far_hot) = (speed(Cache::Hot, near), speed(Cache::Hot, far));
        let (near_cold, far_cold) = (speed(Cache::Cold, near), speed(Cache::Cold, far));
        is_kept &= near_hot >= far_hot;
        is_guessed &= near_hot * near_cold >= far_cold * far_hot;
        if is_kept {
            chosen.keep_bytes_max = len_bytes;
        }
        if is_kept && is_guessed {
            chosen.unknown_bytes_max = len_bytes;
        }
    }
    if chosen.cached.is_empty() {
        return Err(CalibrateError::NoSamples { operation });
    }
    Ok(chosen)
}

fn step(rungs: &mut Vec<Rung>, len_bytes: usize, primitive: Primitive) {
    match rungs.last() {
        None => rungs.push(Rung { from_bytes: 0, primitive }),
        Some(last) if last.primitive != primitive => {
            rungs.push(Rung { from_bytes: len_bytes, primitive });
        }
        Some(_) => {}
    }
}

struct Table(Vec<Sample>);

impl Table {
    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<_> = self.0.iter().map(|sample| sample.len_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn speed(&self, len_bytes: usize, cache: Cache, primitive: Primitive) -> u128 {
        let is_it =
            |s: &&Sample| (s.len_bytes, s.cache, s.primitive) == (len_bytes, cache, primitive);
        self.0.iter().find(is_it).map_or(0, |sample| u128::from(sample.bytes_per_us))
    }

    fn best(
        &self,
        len_bytes: usize,
        cache: Cache,
        last: Option<Primitive>,
        may: impl Fn(Primitive) -> bool,
    ) -> Option<Primitive> {
        let here = self.0.iter().filter(|s| s.len_bytes == len_bytes && s.cache == cache);
        let best = here.filter(|s| may(s.primitive)).max_by_key(|s| s.bytes_per_us)?;
        let enough = u128::from(best.bytes_per_us * (100 - NEAR_BEST_PERCENT) / 100);
        let stays = |last: &Primitive| self.speed(len_bytes, cache, *last) >= enough;
        last.filter(stays).or(Some(best.primitive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(len_bytes: usize, cache: Cache, primitive: Primitive, speed: u64) -> Sample {
        let operation = Operation::Clear;
        Sample { operation, primitive, cache, len_bytes, bytes_per_us: speed }
    }

    fn zen4() -> Vec<Sample> {
        let rows = [
            (4 << 10, [115, 24], [10, 22]),
            (64 << 10, [113, 77], [22, 72]),
            (8 << 20, [100, 90], [33, 88]),
            (32 << 20, [44, 90], [32, 88]),
        ];
        let mut samples = Vec::new();
        for (len, hot, cold) in rows {
            for (cache, speeds) in [(Cache::Hot, hot), (Cache::Cold, cold)] {
                samples.push(sample(len, cache, Primitive::Avx2, speeds[0] * 1000));
                samples.push(sample(len, cache, Primitive::Avx2Stream, speeds[1] * 1000));
            }
        }
        samples
    }

    #[test]
    fn cold_is_streamed_and_hot_is_kept_up_to_the_cache() {
        let chosen = choices(&zen4(), Operation::Clear).unwrap();
        let rung = |primitive| vec![Rung { from_bytes: 0, primitive }];
        assert_eq!(chosen.cached, rung(Primitive::Avx2));
        assert_eq!(chosen.away, rung(Primitive::Avx2Stream));
        assert_eq!(chosen.keep_bytes_max, 8 << 20);
        // 115/24 > 22/10, but 113/77 < 72/22.
        assert_eq!(chosen.unknown_bytes_max, 4 << 10);
    }

    #[test]
    fn noise_makes_no_rung_and_a_real_gain_does() {
        let mut samples = zen4();
        samples.push(sample(64 << 10, Cache::Hot, Primitive::Portable, 114_000));
        samples.push(sample(8 << 20, Cache::Hot, Primitive::Portable, 120_000));
        let chosen = choices(&samples, Operation::Clear).unwrap();
        let rungs: Vec<_> = chosen.cached.iter().map(|r| (r.from_bytes, r.primitive)).collect();
        let (avx2, portable) = (Primitive::Avx2, Primitive::Portable);
        assert_eq!(rungs, [(0, avx2), (8 << 20, portable), (32 << 20, avx2)]);
    }

    #[test]
    fn what_was_not_measured_is_not_chosen() {
        let missing = CalibrateError::NoSamples { operation: Operation::Copy };
        assert_eq!(choices(&zen4(), Operation::Copy), Err(missing));
        let few = CalibrateError::Memory { len_bytes: 5 };
        assert_eq!(measure(&mut [0; 5], 1), Err(few));
    }

    #[test]
    fn a_walk_visits_every_unit_before_it_returns() {
        let mut walk = Walk::new(1000);
        let mut visited: Vec<_> = (0..512).map(|_| walk.next()).collect();
        visited.sort_unstable();
        assert!(visited.into_iter().eq(0..512));
    }
}
