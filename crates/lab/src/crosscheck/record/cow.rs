//! `folio-lab crosscheck cow` and `collapse`: programs of a few processes on the running kernel.
//!
//! Owns the enabled folio sizes, khugepaged's sleep, and the run of `probe/cow.c`. Does not
//! interpret the programs: text goes in, text comes out.
//!
//! Invariants:
//! - W1: the earlier settings are restored when [`CowRecorder`] or a run is dropped or this process
//!   ends ([`largefolio_linux::setting`]): per-size THP controls, two times of khugepaged, the hugetlb pool,
//!   and, if programs wake khugepaged, its limits and `shmem_enabled`; for programs about shared
//!   memory, every `shmem_enabled`.
//! - W2: the global THP setting is not changed.
//! - W3: if another process changed a setting during a run, the result reports it, because the run
//!   then proves nothing.

use std::fs;
use std::path::PathBuf;

use super::error::CrosscheckError;
use super::facts::{Facts, Thp, first_cpu};
use super::pool::PoolNeed;
use super::probe::{self, ProbeEnd};
use super::settings::{SettingChange, Settings};
use super::tracefs;
use crate::crosscheck::processes::ProcessProgram;
use largefolio_linux::mount::Detached;
use largefolio_linux::proc::host;
use largefolio_linux::proc::thp::{control, of_size, setting};
use largefolio_linux::setting::{Setting, thp};
use largefolio_linux::signals::Signals;
use largefolio_linux::tracefs::Instance;

/// Values of `shmem_enabled` that give shared memory base pages only. A size with `inherit` uses
/// the global file, which is also checked.
const IN_BASE_PAGES: [&str; 3] = ["never", "deny", "inherit"];

/// Which settings the probe changes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// None. khugepaged sleeps all the time.
    Nothing,
    /// khugepaged's, because program steps wake it.
    Khugepaged,
    /// The folio sizes of shared memory.
    Shmem,
    /// None, but the kernel must not move memory between nodes on its own.
    Nodes,
}

impl Sets {
    #[must_use]
    pub fn of(programs: &[ProcessProgram]) -> Self {
        if programs.iter().any(ProcessProgram::wakes_khugepaged) {
            Self::Khugepaged
        } else if programs.iter().any(ProcessProgram::sets_shmem) {
            Self::Shmem
        } else if programs.iter().any(ProcessProgram::has_nodes) {
            Self::Nodes
        } else {
            Self::Nothing
        }
    }

    /// Returns the files of the settings.
    fn paths(self) -> Result<Vec<PathBuf>, CrosscheckError> {
        Ok(match self {
            Self::Nothing | Self::Nodes => Vec::new(),
            Self::Khugepaged => LIMITS.iter().map(|name| setting(name)).collect(),
            Self::Shmem => {
                let of_size = |kib: u64| of_size(kib, "shmem_enabled");
                let sizes = thp::shmem_sizes_kib()?.into_iter().map(of_size);
                sizes.chain([setting("shmem_enabled")]).collect()
            }
        })
    }
}

/// Settings of khugepaged that the probe changes for a program.
const LIMITS: [&str; 4] = [
    "khugepaged/max_ptes_none",
    "khugepaged/max_ptes_shared",
    "khugepaged/pages_to_scan",
    "shmem_enabled",
];

#[derive(Debug)]
pub struct CowRecorder {
    signals: Signals,
    /// Holds the program; invisible to other processes.
    place: Detached,
    _asleep: [Setting; 2],
    events: Option<Instance>,
    _held: Vec<Setting>,
    /// The settings before, with khugepaged asleep.
    settings: Settings,
}

#[derive(Clone, Debug, Default)]
pub struct CowRun {
    pub text: String,
    pub changes: Vec<SettingChange>,
}

impl CowRecorder {
    /// Disables khugepaged, and holds the settings that the probe changes. `command` is the command line to repeat as root.
    ///
    /// # Errors
    /// Not root, no THP for advised areas, or a setting that cannot be changed.
    pub fn new(facts: &Facts, sets: Sets, command: &str) -> Result<Self, CrosscheckError> {
        if !facts.is_root {
            return Err(CrosscheckError::NotRoot(command.to_owned()));
        }
        if facts.thp != Thp::Madvise {
            return Err(CrosscheckError::ThpNotMadvise);
        }
        let settings_now = Settings::now();
        if let Some((path, value)) = settings_now.others("shmem_enabled", &IN_BASE_PAGES) {
            let (path, value) = (path.to_owned(), value.to_owned());
            return Err(CrosscheckError::SharedNotNever { path, value });
        }
        let signals = Signals::watch().map_err(CrosscheckError::os("watch signals"))?;
        let place = Detached::new("tmpfs", None)
            .map_err(|_| CrosscheckError::NotPermitted { what: "tmpfs" })?;
        let path = place.path().join("cow");
        probe::install_cow(&path).map_err(CrosscheckError::file(&path))?;
        let asleep = thp::send_khugepaged_to_sleep()?;
        let events = (sets == Sets::Khugepaged).then(tracefs::instance).transpose()?;
        let mut held: Vec<Setting> =
            sets.paths()?.iter().map(|path| Setting::hold(path)).collect::<Result<_, _>>()?;
        if sets == Sets::Nodes {
            facts.check_nodes()?;
            held.push(Setting::change(host::numa_balancing(), "0")?);
        }
        let settings = Settings::now();
        Ok(Self { signals, place, _asleep: asleep, events, _held: held, settings })
    }

    /// Runs programs with exactly these folio sizes enabled for advised areas, and with this
    /// hugetlb pool.
    ///
    /// # Errors
    /// A program with invalid syntax, an unknown size, or a signal.
    pub fn record(
        &self,
        programs: &str,
        sizes_kib: &[u64],
        pool: Option<PoolNeed>,
    ) -> Result<CowRun, CrosscheckError> {
        let _pool = pool.map(PoolNeed::set).transpose()?;
        let _sizes = thp::enable_only(sizes_kib)?;
        let wanted = self.wanted(sizes_kib)?;
        let mut changes = wanted.changes(&Settings::now());
        let path = self.place.path().join("programs");
        fs::write(&path, programs).map_err(CrosscheckError::file(&path))?;
        let mut arguments = vec![
            path.display().to_string(),
            format!("cpu={}", first_cpu()?),
            format!("dir={}", self.place.path().display()),
        ];
        arguments.push(match &self.events {
            Some(events) => format!("trace={}", events.path().display()),
            None => "statistics".to_owned(),
        });
        match probe::run(&self.place.path().join("cow"), &arguments, &self.signals)? {
            ProbeEnd::Recorded(text) => {
                changes.extend(wanted.changes(&Settings::now()));
                changes.dedup();
                Ok(CowRun { text, changes })
            }
            ProbeEnd::Refused(message) => {
                Err(CrosscheckError::Probe { workload: "programs".to_owned(), message })
            }
        }
    }

    fn wanted(&self, sizes_kib: &[u64]) -> Result<Settings, CrosscheckError> {
        let mut wanted = self.settings.clone();
        for kib in thp::sizes_kib()? {
            wanted.set(control(kib), thp::value_of(kib, sizes_kib));
        }
        Ok(wanted)
    }
}
