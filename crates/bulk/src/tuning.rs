//! Chooses the primitive for an extent, by its size and its next use.
//!
//! Streaming stores are 1.3 to 3 times as fast on uncached memory, and 5 to 25 times as slow on a
//! cached page (docs/design/bulk.md), so the hint about the next use matters as much as the size.
//!
//! - I1: every routine of a tuning was detected on this CPU.
//! - I2: a ladder starts at 0 bytes and its rungs ascend at powers of two.

mod host;

use std::sync::OnceLock;

use thiserror::Error;

use crate::error::RangeError;
use crate::primitive::{Clearer, Copier, Primitive};

/// The caller's knowledge of the extent's next use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Residency {
    /// Read or written immediately: keep it in the cache, if it fits.
    TouchedNow,
    /// Not touched for a long time: leave the cache to others.
    NotTouched,
    /// No information.
    #[default]
    Unknown,
}

/// A primitive and the size from which it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Smallest extent: 0, or a power of two.
    pub from_bytes: usize,
    /// Primitive for these sizes.
    pub primitive: Primitive,
}

/// The choices for one operation, as data for calibration and machine files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// For extents that should stay in the cache.
    pub cached: Vec<Rung>,
    /// For extents that should not, or are too large to.
    pub away: Vec<Rung>,
    /// Largest extent that [`Residency::TouchedNow`] keeps in the cache.
    pub keep_bytes_max: usize,
    /// Largest extent that [`Residency::Unknown`] puts into the cache.
    pub unknown_bytes_max: usize,
}

/// Why choices are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TuningError {
    /// I2: no rung begins at 0 bytes.
    #[error("I2: the first rung of a ladder must start at 0 bytes")]
    NoFirst,
    /// I2: sizes do not ascend, or are not powers of two.
    #[error("I2: a rung cannot start at {from_bytes} bytes here; pass ascending powers of two")]
    Rungs {
        /// The invalid size.
        from_bytes: usize,
    },
    /// I1: this CPU lacks the instruction, or the primitive cannot do the operation.
    #[error(
        "I1: the calibration uses {primitive}, which this CPU does not support; recalibrate on \
         this CPU"
    )]
    Unavailable {
        /// The rejected primitive.
        primitive: Primitive,
    },
}

#[derive(Clone, Copy, Debug)]
struct Ladder<R>([R; LENGTHS]);

const LENGTHS: usize = usize::BITS as usize + 1;

impl<R: Copy> Ladder<R> {
    fn new(rungs: &[Rung], routine: impl Fn(Primitive) -> Option<R>) -> Result<Self, TuningError> {
        let of = |rung: &Rung| {
            let primitive = rung.primitive;
            routine(primitive).ok_or(TuningError::Unavailable { primitive })
        };
        let (first, higher) = rungs.split_first().ok_or(TuningError::NoFirst)?;
        if first.from_bytes != 0 {
            return Err(TuningError::NoFirst);
        }
        let mut ladder = Self([of(first)?; LENGTHS]);
        let mut last = 0;
        for rung in higher {
            let from_bytes = rung.from_bytes;
            if from_bytes <= last || !from_bytes.is_power_of_two() {
                return Err(TuningError::Rungs { from_bytes });
            }
            last = from_bytes;
            ladder.0[nr_bits(from_bytes)..].fill(of(rung)?);
        }
        Ok(ladder)
    }

    #[inline]
    fn pick(&self, len_bytes: usize) -> R {
        self.0[nr_bits(len_bytes)]
    }
}

#[inline]
const fn nr_bits(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()) as usize
}

#[derive(Clone, Debug)]
struct Table<R> {
    cached: Ladder<R>,
    away: Ladder<R>,
    keep_bytes_max: usize,
    unknown_bytes_max: usize,
}

impl<R: Copy> Table<R> {
    fn new(
        choices: &Choices,
        routine: impl Fn(Primitive) -> Option<R>,
    ) -> Result<Self, TuningError> {
        Ok(Self {
            cached: Ladder::new(&choices.cached, &routine)?,
            away: Ladder::new(&choices.away, &routine)?,
            keep_bytes_max: choices.keep_bytes_max,
            unknown_bytes_max: choices.unknown_bytes_max,
        })
    }

    #[inline]
    fn pick(&self, len_bytes: usize, residency: Residency) -> R {
        let is_cached = match residency {
            Residency::TouchedNow => len_bytes <= self.keep_bytes_max,
            Residency::NotTouched => false,
            Residency::Unknown => len_bytes <= self.unknown_bytes_max,
        };
        if is_cached { self.cached.pick(len_bytes) } else { self.away.pick(len_bytes) }
    }
}

/// The primitives chosen for this CPU.
#[derive(Clone, Debug)]
pub struct Tuning {
    clear: Table<Clearer>,
    copy: Table<Copier>,
}

impl Tuning {
    /// Returns the defaults for this CPU, detected once.
    ///
    /// They are based on two machines, Zen 4 and Cascade Lake (`docs/design/bulk.md`). On other
    /// machines, only [`calibrate`](crate::calibrate) is right.
    #[must_use]
    pub fn host() -> &'static Self {
        static HOST: OnceLock<Tuning> = OnceLock::new();
        HOST.get_or_init(|| {
            let (clear, copy) = (host::clear_choices(), host::copy_choices());
            let Ok(tuning) = Self::new(&clear, &copy) else {
                unreachable!("I1: the defaults name only detected primitives")
            };
            tuning
        })
    }

    /// Creates a tuning from data.
    ///
    /// # Errors
    /// [`TuningError`] if a ladder is malformed or names a primitive that this CPU lacks.
    pub fn new(clear: &Choices, copy: &Choices) -> Result<Self, TuningError> {
        Ok(Self { clear: Table::new(clear, Clearer::new)?, copy: Table::new(copy, Copier::new)? })
    }

    /// Returns the routine that clears an extent of this size.
    #[inline]
    #[must_use]
    pub fn clearer(&self, len_bytes: usize, residency: Residency) -> Clearer {
        self.clear.pick(len_bytes, residency)
    }

    /// Returns the routine that copies an extent of this size.
    #[inline]
    #[must_use]
    pub fn copier(&self, len_bytes: usize, residency: Residency) -> Copier {
        self.copy.pick(len_bytes, residency)
    }

    /// Zeroes `extent`. Does nothing for an empty one.
    #[inline]
    pub fn clear_extent(&self, extent: &mut [u8], residency: Residency) {
        self.clearer(extent.len(), residency).clear(extent);
    }

    /// Copies `from` over `to`; the hint describes `to`. Does nothing for empty ones.
    ///
    /// # Errors
    /// [`RangeError::Lengths`] if their lengths differ. Nothing is written.
    #[inline]
    pub fn copy_extent(
        &self,
        to: &mut [u8],
        from: &[u8],
        residency: Residency,
    ) -> Result<(), RangeError> {
        self.copier(to.len(), residency).copy(to, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(cached: &[(usize, Primitive)]) -> Choices {
        let rung = |&(from_bytes, primitive)| Rung { from_bytes, primitive };
        let cached: Vec<_> = cached.iter().map(rung).collect();
        Choices { away: cached.clone(), cached, keep_bytes_max: 100, unknown_bytes_max: 10 }
    }

    #[test]
    fn a_ladder_begins_at_nothing_and_ascends_by_powers_of_two() {
        let p = Primitive::Portable;
        let good = choices(&[(0, p)]);
        let refused = |rungs: &[_]| Tuning::new(&choices(rungs), &good).unwrap_err();
        assert_eq!(refused(&[]), TuningError::NoFirst);
        assert_eq!(refused(&[(4096, p)]), TuningError::NoFirst);
        assert_eq!(refused(&[(0, p), (5000, p)]), TuningError::Rungs { from_bytes: 5000 });
        assert_eq!(refused(&[(0, p), (64, p), (64, p)]), TuningError::Rungs { from_bytes: 64 });
        assert!(Tuning::new(&good, &good).is_ok());
    }

    #[test]
    fn what_the_cpu_lacks_is_refused() {
        let missing = Primitive::ALL.into_iter().find(|&p| Clearer::new(p).is_none()).unwrap();
        let good = choices(&[(0, Primitive::Portable)]);
        let refused = Tuning::new(&choices(&[(0, missing)]), &good).unwrap_err();
        assert_eq!(refused, TuningError::Unavailable { primitive: missing });
        let zeroing = choices(&[(0, Primitive::ClZero)]);
        assert!(Tuning::new(&good, &zeroing).is_err());
    }

    #[test]
    fn size_and_hint_decide() {
        let table = Table {
            cached: Ladder([1; LENGTHS]),
            away: Ladder([2; LENGTHS]),
            keep_bytes_max: 100,
            unknown_bytes_max: 10,
        };
        let picks = |len| {
            [Residency::TouchedNow, Residency::Unknown, Residency::NotTouched]
                .map(|residency| table.pick(len, residency))
        };
        assert_eq!(picks(10), [1, 1, 2]);
        assert_eq!(picks(11), [1, 2, 2]);
        assert_eq!(picks(100), [1, 2, 2]);
        assert_eq!(picks(101), [2, 2, 2]);
    }

    #[test]
    fn a_rung_holds_from_its_size_on() {
        let rungs = [(0, Primitive::Portable), (4096, Primitive::Mops)]
            .map(|(from_bytes, primitive)| Rung { from_bytes, primitive });
        let ladder = Ladder::new(&rungs, Some).unwrap();
        assert_eq!(ladder.pick(0), Primitive::Portable);
        assert_eq!(ladder.pick(4095), Primitive::Portable);
        assert_eq!(ladder.pick(4096), Primitive::Mops);
        assert_eq!(ladder.pick(usize::MAX), Primitive::Mops);
    }
}
