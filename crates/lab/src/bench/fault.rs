//! Demand faults by page size, as series 001 measures them (`perf bench mem map`, docs/behaviour
//! J.2): one store to every folio of a fresh region. Most of the time is clearing.
//!
//! Owns fresh regions of this process. Times are the thread's CPU time, including the kernel's
//! part. A region without folios of the requested size is an error, not a fast result.

use std::path::PathBuf;
use std::time::Duration;

use rustix::mm::MapFlags;

use largefolio_linux::calibrate::anon::{BenchError, FolioSize, Region, failed};
use largefolio_linux::measure::cpu_time;
use largefolio_linux::proc::thp::control;
use largefolio_linux::proc::{Task, host};
use largefolio_linux::setting::{Setting, thp};
use largefolio_linux::system::Live;

/// The architecture's largest page, which only hugetlb has.
pub const GIGANTIC_BYTES: usize = 1 << 30;

/// Times filling a fresh region of `len_bytes` by one store to every folio of `size`.
///
/// # Errors
/// [`BenchError::NotFilled`] if the kernel had no folios of this size, or a failed system call.
pub fn fault(size: &FolioSize, len_bytes: usize) -> Result<Duration, BenchError> {
    let folio_bytes = size.bytes();
    let region = Region::new(len_bytes, folio_bytes)?;
    let before = resident_bytes()?;
    let taken = fill(&region, folio_bytes);
    let resident_bytes = resident_bytes()?.saturating_sub(before);
    // The kernel's per-process count lags by a few pages per CPU.
    if resident_bytes + (1 << 20) < len_bytes - len_bytes / 16 {
        return Err(BenchError::NotFilled { resident_bytes, len_bytes, folio_bytes });
    }
    Ok(taken)
}

#[must_use]
pub fn nr_free_gigantic() -> usize {
    let nr = host::nr_free_hugetlb(&Live, GIGANTIC_BYTES as u64 >> 10);
    usize::try_from(nr).unwrap_or(usize::MAX)
}

/// 1 GiB pages in the hugetlb pool, reserved temporarily if too few are free.
#[derive(Debug)]
pub struct Gigantic {
    nr: usize,
    _pool: Option<Setting>,
}

impl Gigantic {
    /// Makes sure that `nr` pages are free until the result is dropped, which restores the pool's
    /// old size.
    ///
    /// # Errors
    /// No permission to change the pool, or memory that is too fragmented.
    pub fn reserve(nr: usize) -> Result<Self, BenchError> {
        let free = nr_free_gigantic();
        if free >= nr {
            return Ok(Self { nr, _pool: None });
        }
        let path = pool(GIGANTIC_BYTES as u64 >> 10);
        let old = Setting::read(&path)?.parse().unwrap_or(0_usize);
        let pool = Setting::change(&path, &(old + nr - free).to_string())?;
        let free = nr_free_gigantic();
        if free < nr {
            let mib = nr * (GIGANTIC_BYTES >> 20);
            return Err(BenchError::NoPool { mib, free });
        }
        Ok(Self { nr, _pool: Some(pool) })
    }

    /// Times filling the pages by one store to each.
    ///
    /// # Errors
    /// If they are no longer free.
    pub fn fault(&self) -> Result<Duration, BenchError> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_1GB;
        let region = Region::map(self.nr * GIGANTIC_BYTES, flags)?;
        Ok(fill(&region, GIGANTIC_BYTES))
    }
}

fn pool(kib: u64) -> PathBuf {
    host::hugetlb(kib, "nr_hugepages")
}

fn fill(region: &Region, folio_bytes: usize) -> Duration {
    let start = cpu_time();
    region.store_each(folio_bytes);
    cpu_time().saturating_sub(start)
}

/// Returns the sizes above the base page that areas of this kernel get (always, when advised or by
/// the global setting), in bytes, ascending.
///
/// # Errors
/// If a setting cannot be read.
pub fn enabled_sizes() -> Result<Vec<u64>, BenchError> {
    let mut sizes = Vec::new();
    for kib in thp::sizes_kib()? {
        if Setting::read(&control(kib))? != "never" {
            sizes.push(kib << 10);
        }
    }
    Ok(sizes)
}

fn resident_bytes() -> Result<usize, BenchError> {
    let call = "reading /proc/self/statm";
    let pages = Task::own(&Live).nr_resident_pages().map_err(failed(call))?;
    Ok(usize::try_from(pages).unwrap_or(0).saturating_mul(rustix::param::page_size()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use largefolio_linux::geometry::page_bytes;

    #[test]
    fn base_pages_fill_a_region() {
        let size = FolioSize::enable(page_bytes()).unwrap();
        assert!(fault(&size, 16 << 20).unwrap() > Duration::ZERO);
    }

    #[test]
    fn a_page_that_is_not_free_is_refused() {
        let pages = Gigantic { nr: nr_free_gigantic() + 1, _pool: None };
        let error = pages.fault().unwrap_err();
        assert!(error.to_string().starts_with("mmap failed"), "{error}");
    }
}
