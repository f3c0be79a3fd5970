//! `folio crosscheck cow`: programs of a few processes on the running kernel.
//!
//! Owns the folio sizes that programs want enabled, khugepaged's sleep, and the run of
//! `probe/cow.c`. Does not know the programs: text goes in, text comes out.
//!
//! Invariants:
//! - W1: the earlier settings are back when [`CowRecorder`] or a run is dropped, signals included.
//!   After SIGKILL they are not: they are per-size THP controls for advised areas only, and two
//!   times of khugepaged.
//! - W2: the global THP setting is not changed.

use std::fs;
use std::path::{Path, PathBuf};

use super::mount::Detached;
use super::probe::{self, Ended};
use super::{CrosscheckError, Facts, Thp};
use crate::signals::Signals;

/// Folio settings of the kernel.
const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// Longer than any run: khugepaged would collapse pages behind a program's back.
const ASLEEP_MS: &str = "4000000";

/// A run of programs on this kernel.
#[derive(Debug)]
pub struct CowRecorder {
    signals: Signals,
    /// Holds the program; seen by nobody.
    place: Detached,
    _asleep: Settings,
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
        let mut asleep = Settings::default();
        for name in ["khugepaged/scan_sleep_millisecs", "khugepaged/alloc_sleep_millisecs"] {
            asleep.set(&Path::new(THP).join(name), ASLEEP_MS)?;
        }
        Ok(Self { signals, place, _asleep: asleep })
    }

    /// Folio sizes this kernel has controls for, in KiB, ascending.
    ///
    /// # Errors
    /// When they cannot be listed: Linux 6.8 is the first with them.
    pub fn sizes_kib() -> Result<Vec<u64>, CrosscheckError> {
        let entries = fs::read_dir(THP).map_err(CrosscheckError::file(THP))?;
        let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok();
        let mut sizes: Vec<u64> = entries
            .filter_map(|entry| size(entry.ok()?.file_name().to_str()?))
            .filter(|kib| Path::new(&control(*kib)).exists())
            .collect();
        sizes.sort_unstable();
        Ok(sizes)
    }

    /// Runs programs with exactly these folio sizes enabled for advised areas; the recording.
    ///
    /// # Errors
    /// A program that is not of the format, an unknown size, a signal.
    pub fn record(&self, programs: &str, sizes_kib: &[u64]) -> Result<String, CrosscheckError> {
        let mut sizes = Settings::default();
        for kib in Self::sizes_kib()? {
            let is_wanted = sizes_kib.contains(&kib);
            sizes.set(&control(kib), if is_wanted { "madvise" } else { "never" })?;
        }
        let path = self.place.path().join("programs");
        fs::write(&path, programs).map_err(CrosscheckError::file(&path))?;
        let words = [path.display().to_string(), format!("cpu={}", first_cpu()?)];
        match probe::run(&self.place.path().join("cow"), &words, &self.signals)? {
            Ended::Recorded(text) => Ok(text),
            Ended::Refused(said) => {
                Err(CrosscheckError::Probe { workload: "programs".to_owned(), said })
            }
        }
    }
}

fn control(kib: u64) -> PathBuf {
    Path::new(THP).join(format!("hugepages-{kib}kB/enabled"))
}

/// The processor all processes of a program run on.
fn first_cpu() -> Result<usize, CrosscheckError> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(CrosscheckError::os("ask for the processors that may be used"))?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu);
    Ok((0..rustix::thread::CpuSet::MAX_CPU).find(is_allowed).unwrap_or(0))
}

/// Changed settings: file and earlier value, latest last.
#[derive(Debug, Default)]
struct Settings(Vec<(PathBuf, String)>);

impl Settings {
    fn set(&mut self, path: &Path, value: &str) -> Result<(), CrosscheckError> {
        let failed = || CrosscheckError::file(path.to_owned());
        let text = fs::read_to_string(path).map_err(failed())?;
        let earlier = chosen(&text);
        if earlier != value {
            self.0.push((path.to_owned(), earlier.to_owned()));
            fs::write(path, value).map_err(failed())?;
        }
        Ok(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, value) in self.0.iter().rev() {
            // Fails only where the setting is gone.
            let _ = fs::write(path, value);
        }
    }
}

/// The value of a setting: the word in brackets of a choice, else all of it.
fn chosen(text: &str) -> &str {
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or(text.trim(), |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_back_when_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("enabled");
        fs::write(&path, "always inherit [madvise] never\n").unwrap();
        let mut settings = Settings::default();
        settings.set(&path, "never").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "never");
        drop(settings);
        assert_eq!(fs::read_to_string(&path).unwrap(), "madvise");
        assert_eq!(chosen("60000\n"), "60000");
    }
}
