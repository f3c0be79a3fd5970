//! `folio crosscheck cow` and `collapse`: programs of a few processes on the running kernel.
//!
//! Owns the folio sizes that programs want enabled, khugepaged's sleep, and the run of
//! `probe/cow.c`. Does not know the programs: text goes in, text comes out.
//!
//! Invariants:
//! - W1: the earlier settings are back when [`CowRecorder`] or a run is dropped or this process ends
//!   ([`crate::setting`]): per-size THP controls, and two times of khugepaged.
//! - W2: the global THP setting is not changed.

use std::fs;

use super::mount::Detached;
use super::probe::{self, Ended};
use super::{CrosscheckError, Facts, Thp};
use crate::setting::Setting;
use crate::signals::Signals;
use crate::thp;

/// A run of programs on this kernel.
#[derive(Debug)]
pub struct CowRecorder {
    signals: Signals,
    /// Holds the program; seen by nobody.
    place: Detached,
    _asleep: [Setting; 2],
}

impl CowRecorder {
    /// Sends khugepaged to sleep; `command` is what root should type.
    ///
    /// # Errors
    /// Not root, no THP for advised areas, or a setting that cannot be changed.
    pub fn new(facts: &Facts, command: &str) -> Result<Self, CrosscheckError> {
        if !facts.is_root {
            return Err(CrosscheckError::NotRoot(command.to_owned()));
        }
        if facts.thp != Thp::Madvise {
            return Err(CrosscheckError::ThpNotMadvise);
        }
        let signals = Signals::watch().map_err(CrosscheckError::os("watch signals"))?;
        let place = Detached::new("tmpfs", None)
            .map_err(|_| CrosscheckError::NotPermitted { what: "tmpfs" })?;
        let path = place.path().join("cow");
        probe::install_cow(&path).map_err(CrosscheckError::file(&path))?;
        Ok(Self { signals, place, _asleep: thp::send_khugepaged_to_sleep()? })
    }

    /// Runs programs with exactly these folio sizes enabled for advised areas; the recording.
    ///
    /// # Errors
    /// A program that is not of the format, an unknown size, a signal.
    pub fn record(&self, programs: &str, sizes_kib: &[u64]) -> Result<String, CrosscheckError> {
        let _sizes = thp::enable_only(sizes_kib)?;
        let path = self.place.path().join("programs");
        fs::write(&path, programs).map_err(CrosscheckError::file(&path))?;
        let words = [
            path.display().to_string(),
            format!("cpu={}", first_cpu()?),
            format!("dir={}", self.place.path().display()),
        ];
        match probe::run(&self.place.path().join("cow"), &words, &self.signals)? {
            Ended::Recorded(text) => Ok(text),
            Ended::Refused(said) => {
                Err(CrosscheckError::Probe { workload: "programs".to_owned(), said })
            }
        }
    }
}

/// The processor all processes of a program run on.
fn first_cpu() -> Result<usize, CrosscheckError> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(CrosscheckError::os("ask for the processors that may be used"))?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu);
    Ok((0..rustix::thread::CpuSet::MAX_CPU).find(is_allowed).unwrap_or(0))
}
