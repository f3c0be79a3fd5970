//! One operation of the kernel, timed for a calibration or its check.
//!
//! Owns what is done to a region before the timed part, so that two runs of it compare. All times
//! are CPU time of this thread: other programs' time slices are not in them. The memory was used by
//! this process just before ([`warm`]): a virtual machine may have given free memory back to its
//! host, and then pays the host for the first touch, five times as much as the kernel takes.
//!
//! Measured with two other programs busy on two cores, n = 7: first touch of 4K folios 1,838 ns
//! [1,637 .. 1,918] a page so, 2,666 to 2,859 by the wall clock without warming; the same from 48 to
//! 384 MiB.

use std::time::Duration;

use crate::bench::anon::{BenchError, Child, FolioSize, Inherit, Life, Region};
use crate::geometry::pmd_bytes;
use crate::measure::{Spread, cpu_time};

/// Pairs of forks whose difference is one time.
const NR_FORKS: usize = 2;
/// The same for folios that PMD entries map: what they add to a fork is a small part of it.
const NR_PMD_FORKS: usize = 25;

/// What is timed, on a region of which every base page was stored to, except for
/// [`Work::Touch`] and [`Work::Zeroes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A store to every base page of a fresh region.
    Touch,
    /// A load of every base page of a fresh region, to which the shared page of zeroes is mapped: a
    /// fault and nothing more.
    Zeroes,
    /// `fork` less `fork` with the region kept out of the child (`MADV_DONTFORK`), just before; the
    /// process stored to every page since the fork before.
    ForkBeyond,
    /// `munmap`, which frees every folio.
    Munmap,
    /// `munmap` while a child maps the same folios: nothing is freed but page tables.
    MunmapShared,
    /// A store to every base page while a child shares the region: each is copied.
    Cow,
}

impl Work {
    /// CPU time of it on a region of `len_bytes`, in nanoseconds. The difference of two forks may
    /// fall below 0.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn time_ns(self, size: &FolioSize, len_bytes: usize) -> Result<f64, BenchError> {
        let region = Region::new(len_bytes, size.bytes)?;
        if self == Self::Zeroes {
            return Ok(cpu(|| region.load_all()).0);
        }
        let touched = cpu(|| region.store_all()).0;
        match self {
            Self::Touch | Self::Zeroes => Ok(touched),
            Self::ForkBeyond => fork_beyond(&region, size.bytes),
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

/// Uses as much memory as the works after it will, and gives it back to the kernel.
///
/// # Errors
/// A system call that failed.
pub(super) fn warm(size: &FolioSize, len_bytes: usize) -> Result<(), BenchError> {
    Region::new(len_bytes, size.bytes)?.store_all();
    Ok(())
}

/// The difference of the medians of forks with and without the region.
fn fork_beyond(region: &Region, folio_bytes: usize) -> Result<f64, BenchError> {
    let nr = if folio_bytes == pmd_bytes() { NR_PMD_FORKS } else { NR_FORKS };
    let (mut with, mut without) = (Vec::with_capacity(nr), Vec::with_capacity(nr));
    for _ in 0..nr {
        // The parent's pages are writable again: fork takes that away from each.
        region.store_all();
        region.inherit(Inherit::Never)?;
        // The first fork pays for what else the process wrote since the last one.
        fork_ns()?;
        without.push(fork_ns()?);
        region.inherit(Inherit::Usual)?;
        with.push(fork_ns()?);
    }
    let median = |of: &[f64]| Spread::of(of).map_or(0.0, |ns| ns.median);
    Ok(median(&with) - median(&without))
}

/// The time of a fork; its child ends at once, and is gone after.
fn fork_ns() -> Result<f64, BenchError> {
    let (taken, child) = cpu(|| Child::fork(Life::EndsAtOnce));
    child.map(|_| taken)
}

/// CPU time of `work` in nanoseconds.
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
            Work::Touch,
            Work::Zeroes,
            Work::ForkBeyond,
            Work::Munmap,
            Work::MunmapShared,
            Work::Cow,
        ] {
            let ns = work.time_ns(&size, 1 << 20).unwrap();
            assert!(ns.is_finite() && (work == Work::ForkBeyond || ns > 0.0), "{work:?}: {ns}");
        }
    }
}
