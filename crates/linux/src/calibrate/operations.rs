//! Times the kernel's operations on folios of several sizes, and read faults, all in the same
//! rounds.
//!
//! Turns a plan into subjects of [`watched`] rounds, and their series into times. The caller owns
//! the plan: a calibration and its check use different sizes and regions.

use super::CalibrateError;
use super::anon::FolioSize;
use super::cached::fault_each_ns;
use super::rounds::{Pace, Subject, Until, watched};
use super::work::{TimedWork, warm};
use crate::measure::Series;

#[derive(Clone, Debug)]
pub struct OfSize {
    pub folio_bytes: usize,
    pub len_bytes: usize,
    pub works: Vec<TimedWork>,
}

#[derive(Clone, Debug)]
pub struct Times {
    pub work: TimedWork,
    pub folio_bytes: usize,
    pub len_bytes: usize,
    pub series: Series,
}

#[derive(Debug)]
pub struct Operations {
    pub works: Vec<Times>,
    /// Nanoseconds of all read faults, for each requested number of cached pages.
    pub faults: Vec<Series>,
    pub pace: Pace,
}

/// Measures `plan`, and read faults on files of `file_bytes` with each number of `nr_cached` pages.
///
/// # Errors
/// A failed system call.
pub fn operations(
    until: Until,
    plan: &[OfSize],
    nr_cached: &[usize],
    file_bytes: usize,
) -> Result<Operations, CalibrateError> {
    let mut subjects: Vec<Subject<'_>> =
        vec![Box::new(move || nr_cached.iter().map(|&nr| fault_each_ns(file_bytes, nr)).collect())];
    for &OfSize { folio_bytes, len_bytes, ref works } in plan {
        subjects.push(Box::new(move || {
            let size = FolioSize::enable(folio_bytes)?;
            warm(&size, len_bytes)?;
            let times = works.iter().map(|work| work.time_ns(&size, len_bytes));
            Ok(times.collect::<Result<Vec<f64>, _>>()?)
        }));
    }
    let (mut series, pace) = watched(until, &mut subjects)?;
    let faults = series.remove(0);
    let mut all = Vec::new();
    for (&OfSize { folio_bytes, len_bytes, ref works }, of_size) in plan.iter().zip(series) {
        let of_size = works.iter().zip(of_size);
        all.extend(of_size.map(|(&work, series)| Times { work, folio_bytes, len_bytes, series }));
    }
    Ok(Operations { works: all, faults, pace })
}

/// Returns the `sizes` for which this process gets a region of `len_bytes(size)`, and the reasons
/// against the others.
#[must_use]
pub fn allowed(
    sizes: impl IntoIterator<Item = usize>,
    len_bytes: impl Fn(usize) -> usize,
) -> (Vec<usize>, Vec<String>) {
    let (mut allowed, mut missing) = (Vec::new(), Vec::new());
    for bytes in sizes {
        match FolioSize::given(bytes, len_bytes(bytes)) {
            Ok(_) => allowed.push(bytes),
            Err(error) => missing.push(format!("folios of {} KiB: {error}", bytes >> 10)),
        }
    }
    (allowed, missing)
}
