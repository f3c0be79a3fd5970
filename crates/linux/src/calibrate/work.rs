//! Times one kernel operation, for a calibration or its check.
//!
//! All times are this thread's CPU time. This process uses the memory just before the measurement
//! ([`warm`]). Otherwise, a virtual machine may have returned the free memory to its host, and the
//! first touch takes five times as long.
//!
//! Measured with two other busy programs on two cores, n = 7: first touch of 4K folios takes 1,838
//! ns [1,637 .. 1,918] per page this way, and 2,666 to 2,859 ns by the wall clock without warming.
//! The result is the same for regions from 48 to 384 MiB.

use std::time::Duration;

use super::anon::{BenchError, Child, FolioSize, Inherit, Life, Region};
use crate::geometry::pmd_bytes;
use crate::measure::{Spread, cpu_time};

/// Pairs of forks whose difference is one time.
const NR_FORKS: usize = 2;
/// The same for PMD-mapped folios, which add only a small part to a fork.
const NR_PMD_FORKS: usize = 25;

/// The timed operation. Every base page of the region was stored to before, except for
/// [`TimedWork::Touch`] and [`TimedWork::Zeroes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedWork {
    /// A store to every base page of a fresh region.
    Touch,
    /// A load from every base page of a fresh region, which maps the shared zero page: only a
    /// fault.
    Zeroes,
    /// `fork` minus a `fork` just before that keeps the region out of the child (`MADV_DONTFORK`).
    /// Between the forks the process stores to every page.
    ForkBeyond,
    Munmap,
    /// `munmap` while a child maps the same folios: only page tables are freed.
    MunmapShared,
    /// A store to every base page while a child shares the region: each is copied.
    Cow,
}

impl TimedWork {
    /// Returns its CPU time on a region of `len_bytes` in nanoseconds. The difference of two forks
    /// can be below 0.
    ///
    /// # Errors
    /// A failed system call.
    pub fn time_ns(self, size: &FolioSize, len_bytes: usize) -> Result<f64, BenchError> {
        let region = Region::new(len_bytes, size.bytes())?;
        if self == Self::Zeroes {
            return Ok(cpu(|| region.load_all()).0);
        }
        let touched = cpu(|| region.store_all()).0;
        match self {
            Self::Touch | Self::Zeroes => Ok(touched),
            Self::ForkBeyond => fork_beyond(&region, size.bytes()),
            Self::Munmap => {
                let (taken, result) = cpu(|| region.unmap());
                result.map(|()| taken)
            }
            Self::MunmapShared => {
                let _child = Child::fork(Life::Waits)?;
                let (taken, result) = cpu(|| region.unmap());
                result.map(|()| taken)
            }
            Self::Cow => {
                let _child = Child::fork(Life::Waits)?;
                Ok(cpu(|| region.store_all()).0)
            }
        }
    }
}

/// Allocates as much memory as the works after it will, and frees it.
///
/// # Errors
/// A failed system call.
pub(super) fn warm(size: &FolioSize, len_bytes: usize) -> Result<(), BenchError> {
    Region::new(len_bytes, size.bytes())?.store_all();
    Ok(())
}

fn fork_beyond(region: &Region, folio_bytes: usize) -> Result<f64, BenchError> {
    let nr = if folio_bytes == pmd_bytes() { NR_PMD_FORKS } else { NR_FORKS };
    let (mut with, mut without) = (Vec::with_capacity(nr), Vec::with_capacity(nr));
    for _ in 0..nr {
        // Makes the parent's pages writable again: fork had write-protected them.
        region.store_all();
        region.inherit(Inherit::Never)?;
        // The first fork pays for the other writes of the process since the last one.
        fork_ns()?;
        without.push(fork_ns()?);
        region.inherit(Inherit::Usual)?;
        with.push(fork_ns()?);
    }
    let median = |of: &[f64]| Spread::of(of).map_or(0.0, |ns| ns.median);
    Ok(median(&with) - median(&without))
}

fn fork_ns() -> Result<f64, BenchError> {
    let (taken, child) = cpu(|| Child::fork(Life::EndsAtOnce));
    child.map(|_| taken)
}

pub(super) fn cpu<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = cpu_time();
    let result = work();
    (nanos(cpu_time().saturating_sub(start)), result)
}

fn nanos(taken: Duration) -> f64 {
    taken.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_runs_on_base_pages_and_all_but_a_difference_takes_time() {
        let size = FolioSize::enable(crate::geometry::page_bytes()).unwrap();
        warm(&size, 1 << 20).unwrap();
        for work in [
            TimedWork::Touch,
            TimedWork::Zeroes,
            TimedWork::ForkBeyond,
            TimedWork::Munmap,
            TimedWork::MunmapShared,
            TimedWork::Cow,
        ] {
            let ns = work.time_ns(&size, 1 << 20).unwrap();
            assert!(
                ns.is_finite() && (work == TimedWork::ForkBeyond || ns > 0.0),
                "{work:?}: {ns}"
            );
        }
    }
}
