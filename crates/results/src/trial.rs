//! A trial: one program under several settings of this system, predicted and measured.
//!
//! `folio calibrate --programs` tries the programs of its bank, and `folio predict --anchor` the
//! program of a trace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use largefolio_linux::setting::Setting;
use largefolio_linux::timed_run::settings::{RoundsError, SettingValue, under_settings};
use largefolio_linux::timed_run::{Sample, Watch};
use largefolio_linux::tune::catalog::Catalog;
use largefolio_sim::cost::{Estimate, TimeKind};
use largefolio_sim::interval::Interval;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CacheState, CellSpec, replay};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::running::{self, This};

/// Settings that are compared with the system's own, if it has them and they would change.
const SETTINGS: [(&str, &str); 4] = [
    ("thp.enabled", "always"),
    ("thp.64K", "always"),
    ("thp.16K", "always"),
    ("thp.256K", "always"),
];
/// Besides the system's own.
const NR_SETTINGS: usize = 3;

/// Predicted and measured change of a time, in percent of the plain run's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    /// With the bounds of its costs alone.
    pub(crate) predicted: Interval,
    /// Median, smallest and largest of the rounds.
    pub(crate) measured: Interval,
}

/// One setting, compared with the system's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingPairs {
    pub(crate) setting: String,
    pub(crate) user: Pair,
    pub(crate) system: Pair,
    pub(crate) total: Pair,
}

/// What a trial found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compared {
    /// Plain run's CPU time in ns.
    pub(crate) run_ns: f64,
    /// Plain run's user time in ns.
    pub(crate) user_ns: f64,
    pub(crate) nr_rounds: usize,
    pub(crate) settings: Vec<SettingPairs>,
}

#[derive(Debug)]
struct Tuned {
    /// Such as `thp.64K=always`.
    name: String,
    edit: String,
    value: SettingValue,
}

/// How a trial of a program ended.
#[derive(Debug)]
pub(crate) enum Measured {
    Compared(Compared),
    /// The program cannot be measured here.
    Unfit(String),
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Trial {
    machine: Machine,
    settings: Vec<Tuned>,
    nr_rounds: usize,
}

impl Trial {
    /// Finds the settings of this system that would change.
    ///
    /// # Errors
    /// If there are fewer than two.
    pub(crate) fn new(machine: Machine, nr_rounds: usize) -> Result<Self, Error> {
        let catalog = Catalog::below(Path::new("/"));
        let mut settings = Vec::new();
        for (name, value) in SETTINGS {
            let Ok(now) = catalog.read(name) else { continue };
            let (Some(edit), Ok(path)) = (running::edit(name, value), catalog.path(name)) else {
                continue;
            };
            if now.value != value && settings.len() < NR_SETTINGS {
                let value = (path, value.to_owned());
                settings.push(Tuned { name: format!("{name}={}", value.1), edit, value });
            }
        }
        if settings.len() < 2 {
            return Err(Error::request(
                "programs are measured with and without settings of large folios, and this kernel \
                 has fewer than two that would change; Linux 6.8 and later have more sizes",
            ));
        }
        Ok(Self { machine, settings, nr_rounds })
    }

    /// Checks that the settings can be changed, before a program runs.
    pub(crate) fn check_rights(&self) -> Result<(), Error> {
        let (path, value) = &self.settings[0].value;
        Setting::change(path, value).map(drop).map_err(|error| Error::request(error.to_string()))
    }

    pub(crate) const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Replays the trace under the system's own settings and each changed one.
    pub(crate) fn estimates(
        &self,
        trace: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Estimate>, Error> {
        let this = This::of_traces(&[PathBuf::from(trace)]);
        let names = std::iter::once(running::THIS.to_owned())
            .chain(self.settings.iter().map(|one| format!("{}+{}", running::THIS, one.edit)));
        let mut specs = Vec::new();
        for name in names {
            let spec = CellSpec::new(this.named(&name)?, self.machine.clone());
            specs.push(CellSpec { cache: CacheState::Warm, ..spec });
        }
        let (_, outcomes) = replay(trace, &specs, progress)?;
        Ok(outcomes.into_iter().map(|outcome| outcome.estimate).collect())
    }

    /// Measures a command, without input and output, in interleaved rounds and compares it with the
    /// estimates.
    ///
    /// # Errors
    /// If a setting cannot be changed.
    pub(crate) fn measure(
        &self,
        command: &[impl AsRef<OsStr>],
        estimates: &[Estimate],
        signals: &Watch,
    ) -> Result<Measured, Error> {
        let arms: Vec<Vec<SettingValue>> = std::iter::once(Vec::new())
            .chain(self.settings.iter().map(|one| vec![one.value.clone()]))
            .collect();
        let silent = || {
            let mut silent = Command::new(&command[0]);
            silent.args(&command[1..]);
            silent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            silent
        };
        match under_settings(&silent, &arms, self.nr_rounds, signals) {
            Ok(Some(rounds)) => Ok(Measured::Compared(self.compared(estimates, &rounds))),
            Ok(None) => Ok(Measured::Stopped),
            Err(RoundsError::Setting(error)) => Err(Error::request(error.to_string())),
            Err(error) => Ok(Measured::Unfit(error.to_string())),
        }
    }

    fn compared(&self, estimates: &[Estimate], rounds: &[Vec<Sample>]) -> Compared {
        let cpu_ns = |sample: &Sample| (sample.user + sample.system).as_secs_f64() * 1e9;
        let of_plain = |ns: &dyn Fn(&Sample) -> f64| {
            let plain: Vec<f64> = rounds.iter().map(|round| ns(&round[0])).collect();
            Interval::measured(&plain).map_or(0.0, |run| run.mid)
        };
        let run_ns = of_plain(&cpu_ns);
        let pair = |arm: usize, kind: Option<TimeKind>| {
            let ns = |sample: &Sample| match kind {
                Some(TimeKind::User) => sample.user.as_secs_f64() * 1e9,
                Some(_) => sample.system.as_secs_f64() * 1e9,
                None => cpu_ns(sample),
            };
            let changes = rounds.iter().map(|round| {
                100.0 * (ns(&round[arm]) - ns(&round[0])) / cpu_ns(&round[0]).max(1.0)
            });
            let change = estimates[arm].change_of(&estimates[0], kind).unwrap_or_default();
            Pair {
                predicted: change.times(100.0 / run_ns.max(1.0)),
                measured: Interval::measured(&changes.collect::<Vec<_>>()).unwrap_or_default(),
            }
        };
        let of = |(nr, one): (usize, &Tuned)| SettingPairs {
            setting: one.name.clone(),
            user: pair(nr + 1, Some(TimeKind::User)),
            system: pair(nr + 1, Some(TimeKind::System)),
            total: pair(nr + 1, None),
        };
        Compared {
            run_ns,
            user_ns: of_plain(&|sample| sample.user.as_secs_f64() * 1e9),
            nr_rounds: rounds.len(),
            settings: self.settings.iter().enumerate().map(of).collect(),
        }
    }
}
