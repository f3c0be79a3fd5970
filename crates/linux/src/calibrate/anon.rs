//! Anonymous memory by folio size: first touch, fork, munmap and copy-on-write (series 004).
//!
//! Owns regions of this process and its short-lived children. Advice on the region and temporary
//! changes to the per-size settings ([`crate::setting`]) select the folio size.

use std::io;
use std::ptr;
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::geometry::page_bytes;
use crate::helpers;
use crate::proc::Task;
use crate::proc::thp::{self, THP};
use crate::setting::thp::enable_only;
use crate::setting::{Setting, SettingError};
use crate::shell::compact_memory;
use crate::system::Live;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(
        "this kernel has no anonymous folios of {kib} KiB ({THP}/hugepages-{kib}kB is missing)"
    )]
    NoSize { kib: u64 },
    #[error(
        "folios of {folio_bytes} bytes filled only {resident_bytes} of {len_bytes} bytes: {}",
        cause()
    )]
    NotFilled { resident_bytes: usize, len_bytes: usize, folio_bytes: usize },
    #[error(
        "{} MiB took {nr_faults} faults, but would take {nr_folios} with folios of {} KiB: {}",
        len_bytes >> 20,
        (len_bytes / nr_folios) >> 10,
        cause()
    )]
    NotGiven { nr_faults: u64, nr_folios: usize, len_bytes: usize },
    #[error(
        "{mib} MiB need pages of 1 GiB, but only {free} of them could be reserved; free memory is \
         fragmented or scarce, so reserve the pages at boot with hugepagesz=1G hugepages=N"
    )]
    NoPool { mib: usize, free: usize },
    #[error(transparent)]
    Gaps(#[from] largefolio_bulk::gaps::GapsError),
    #[error(transparent)]
    Plan(#[from] largefolio_bulk::plan::PlanError),
    #[error(transparent)]
    Folio(#[from] largefolio_bulk::FolioError),
    #[error(transparent)]
    Tuning(#[from] largefolio_bulk::TuningError),
    #[error("{call} failed: {source}")]
    Call { call: &'static str, source: io::Error },
}

/// Returns the error of a failed system call.
pub fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> BenchError {
    move |source| BenchError::Call { call, source: source.into() }
}

fn cause() -> String {
    if Task::own(&Live).is_thp_disabled() {
        "large folios are off for this process (PR_SET_THP_DISABLE, which children inherit)"
            .to_owned()
    } else {
        format!("memory is fragmented or scarce; `{}` compacts it", compact_memory())
    }
}

fn nr_faults() -> Result<u64, BenchError> {
    let stat = Task::own(&Live).stat();
    let stat = stat.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData));
    Ok(stat.map_err(failed("reading /proc/self/stat"))?.nr_minor_faults)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A store to every base page of a fresh region.
    Touch,
    Fork,
    Munmap,
    /// A store to every base page while a child shares the region: each is copied.
    CowCopy,
    /// A store to every base page after the child has ended: reused if the kernel detects it.
    CowReuse,
}

#[derive(Debug)]
pub struct FolioSize {
    bytes: usize,
    _settings: Vec<Setting>,
}

impl FolioSize {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes advised regions use folios of `bytes` until the result is dropped. Base pages need no
    /// setting.
    ///
    /// # Errors
    /// A size the kernel does not have, or no permission to change settings.
    pub fn enable(bytes: usize) -> Result<Self, BenchError> {
        let mut settings = Vec::new();
        if bytes != page_bytes() {
            let kib = bytes as u64 >> 10;
            if !thp::control(kib).exists() {
                return Err(BenchError::NoSize { kib });
            }
            let global = thp::setting("enabled");
            if Setting::read(&global)? == "never" {
                settings.push(Setting::change(&global, "madvise")?);
            }
            settings.extend(enable_only(&[kib])?);
        }
        Ok(Self { bytes, _settings: settings })
    }

    /// As [`FolioSize::enable`], and checks that a fresh region of `len_bytes` gets folios of this
    /// size.
    ///
    /// # Errors
    /// [`BenchError::NotGiven`] if it gets smaller ones, and the errors of [`FolioSize::enable`].
    pub fn given(bytes: usize, len_bytes: usize) -> Result<Self, BenchError> {
        let size = Self::enable(bytes)?;
        size.check(len_bytes)?;
        Ok(size)
    }

    fn check(&self, len_bytes: usize) -> Result<(), BenchError> {
        let nr_folios = len_bytes / self.bytes;
        if self.bytes == page_bytes() || nr_folios == 0 {
            return Ok(());
        }
        let region = Region::new(len_bytes, self.bytes)?;
        let before = nr_faults()?;
        region.store_all();
        let nr_faults = nr_faults()?.saturating_sub(before);
        // Page tables cause no faults, but other threads cause a few.
        if nr_faults > (nr_folios + nr_folios / 16 + 16) as u64 {
            return Err(BenchError::NotGiven { nr_faults, nr_folios, len_bytes });
        }
        Ok(())
    }

    /// Times `operation` on a region of `len_bytes`.
    ///
    /// # Errors
    /// A failed system call.
    pub fn time(&self, operation: Operation, len_bytes: usize) -> Result<Duration, BenchError> {
        let region = Region::new(len_bytes, self.bytes)?;
        if operation == Operation::Touch {
            return Ok(timed(|| region.store_all()).0);
        }
        region.store_all();
        match operation {
            Operation::Touch => unreachable!("returned above"),
            Operation::Munmap => {
                let (taken, result) = timed(|| region.unmap());
                result.map(|()| taken)
            }
            Operation::Fork => fork_time(),
            Operation::CowCopy => {
                let _child = Child::fork(Life::Waits)?;
                Ok(timed(|| region.store_all()).0)
            }
            Operation::CowReuse => {
                drop(Child::fork(Life::EndsAtOnce)?);
                Ok(timed(|| region.store_all()).0)
            }
        }
    }
}

/// Times a fork. Its child exits immediately and is reaped afterwards.
fn fork_time() -> Result<Duration, BenchError> {
    let (taken, child) = timed(|| Child::fork(Life::EndsAtOnce));
    child.map(|_| taken)
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// A mapping of this process, with folios of one size.
pub struct Region {
    at: *mut u8,
    len_bytes: usize,
    /// The whole mapping. `at` is its first aligned address.
    mapped: (*mut u8, usize),
}

impl Region {
    /// Maps `len_bytes` from an address that folios of `folio_bytes` align.
    ///
    /// # Errors
    /// A failed system call.
    pub fn new(len_bytes: usize, folio_bytes: usize) -> Result<Self, BenchError> {
        let mut region = Self::map(len_bytes + folio_bytes, MapFlags::PRIVATE)?;
        let (first, mapped_bytes) = region.mapped;
        region.at = first.wrapping_add(first.align_offset(folio_bytes));
        region.len_bytes = len_bytes;
        let advice = if folio_bytes > page_bytes() {
            Advice::LinuxHugepage
        } else {
            Advice::LinuxNoHugepage
        };
        // SAFETY: this advice does not change contents, and the range is the mapping made above.
        unsafe { madvise(first.cast(), mapped_bytes, advice) }.map_err(failed("madvise"))?;
        Ok(region)
    }

    /// Maps `len_bytes` with `flags`.
    ///
    /// # Errors
    /// A failed system call.
    pub fn map(len_bytes: usize, flags: MapFlags) -> Result<Self, BenchError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
        let first = unsafe { mmap_anonymous(ptr::null_mut(), len_bytes, prot, flags) }
            .map_err(failed("mmap"))?
            .cast::<u8>();
        Ok(Self { at: first, len_bytes, mapped: (first, len_bytes) })
    }

    pub(crate) fn store_all(&self) {
        self.store_each(page_bytes());
    }

    pub(crate) fn load_all(&self) {
        for offset in (0..self.len_bytes).step_by(page_bytes()) {
            // SAFETY: `offset` is inside the mapping, which nothing else refers to.
            unsafe { self.at.wrapping_add(offset).read_volatile() };
        }
    }

    pub fn store_each(&self, step_bytes: usize) {
        for offset in (0..self.len_bytes).step_by(step_bytes) {
            self.store_at(offset);
        }
    }

    /// Stores to one byte.
    ///
    /// # Panics
    /// If it is outside of the region.
    pub fn store_at(&self, offset: usize) {
        assert!(offset < self.len_bytes, "a store outside of the region");
        let byte = self.at.wrapping_add(offset);
        // SAFETY: `offset` is inside the mapping, which nothing else refers to.
        unsafe { byte.write_volatile(1) };
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn inherit(&self, inherit: Inherit) -> Result<(), BenchError> {
        let advice = match inherit {
            Inherit::Never => Advice::LinuxDontFork,
            Inherit::Usual => Advice::LinuxDoFork,
        };
        let (first, mapped_bytes) = self.mapped;
        // SAFETY: this advice does not change contents, and the range is this value's mapping.
        unsafe { madvise(first.cast(), mapped_bytes, advice) }.map_err(failed("madvise"))
    }

    pub(crate) fn unmap(&self) -> Result<(), BenchError> {
        // SAFETY: the range is inside the mapping, and nothing refers to it.
        unsafe { munmap(self.at.cast(), self.len_bytes) }.map_err(failed("munmap"))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let (first, len) = self.mapped;
        // SAFETY: unmaps the mapping made by `new`. Unmapping a part twice is not an error.
        let _ = unsafe { munmap(first.cast(), len) };
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inherit {
    Never,
    Usual,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    EndsAtOnce,
    Waits,
}

/// An idle child. Dropping it kills and reaps it.
pub(crate) struct Child {
    pid: Pid,
    life: Life,
}

impl Child {
    pub(crate) fn fork(life: Life) -> Result<Self, BenchError> {
        let parent = getpid();
        // SAFETY: the child calls only async-signal-safe functions and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            if life == Life::Waits {
                // The child holds copies of the keepers' pipes.
                if helpers::end_with(parent) {
                    // SAFETY: waits for the signal that ends it.
                    unsafe { libc::pause() };
                }
            }
            // SAFETY: ends the child without running any of the parent's code.
            unsafe { libc::_exit(0) };
        }
        let pid = Pid::from_raw(pid).filter(|_| pid > 0);
        let pid = pid.ok_or_else(|| failed("fork")(io::Error::last_os_error()))?;
        Ok(Self { pid, life })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.life == Life::Waits {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_runs_on_base_pages() {
        let size = FolioSize::enable(page_bytes()).unwrap();
        for operation in [
            Operation::Touch,
            Operation::Fork,
            Operation::Munmap,
            Operation::CowCopy,
            Operation::CowReuse,
        ] {
            let taken = size.time(operation, 1 << 20).unwrap();
            assert!(taken > Duration::ZERO, "{operation:?}");
        }
    }

    #[test]
    fn a_size_the_kernel_lacks_is_named() {
        let error = FolioSize::enable(3 << 10 << 10).unwrap_err();
        assert!(error.to_string().contains("3072 KiB"), "{error}");
    }
}
