//! One visit to a program: its input, its trace, the predictions and the measured rounds.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use largefolio_linux::record::{RecordEnd, RecordRequest, Recording};
use largefolio_linux::setting::Setting;
use largefolio_linux::timed_run::settings::{RoundsError, SettingValue, under_settings};
use largefolio_linux::timed_run::{Sample, Watch};
use largefolio_linux::tune::catalog::Catalog;
use largefolio_sim::cost::{Estimate, TimeKind};
use largefolio_sim::interval::Interval;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CacheState, CellSpec, replay};

use super::bank::{Bank, Program};
use super::store::{Pair, SettingPairs, Visit};
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

#[derive(Debug)]
pub(super) enum Ended {
    Measured(Visit),
    /// The program cannot be recorded, replayed or measured here.
    Unfit(String),
    Stopped,
}

#[derive(Debug)]
struct Tuned {
    /// Such as `thp.64K=always`.
    name: String,
    edit: String,
    value: SettingValue,
}

#[derive(Debug)]
pub(super) struct Visitor {
    machine: Machine,
    settings: Vec<Tuned>,
    nr_rounds: usize,
}

impl Visitor {
    pub(super) fn new(machine: Machine, nr_rounds: usize) -> Result<Self, Error> {
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
                "the programs are measured with and without settings of large folios, and this \
                 kernel has fewer than two that would change; Linux 6.8 and later have more sizes",
            ));
        }
        Ok(Self { machine, settings, nr_rounds })
    }

    /// Checks that the settings can be changed, before a program is recorded.
    pub(super) fn check_rights(&self) -> Result<(), Error> {
        let (path, value) = &self.settings[0].value;
        Setting::change(path, value).map(drop).map_err(|error| Error::request(error.to_string()))
    }

    pub(super) const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Visits a program. `step` receives each step's name.
    ///
    /// # Errors
    /// If a setting cannot be changed, or a directory cannot be made.
    pub(super) fn visit(
        &self,
        bank: &Bank,
        program: &Program,
        signals: &Watch,
        step: &mut dyn FnMut(&'static str),
    ) -> Result<Ended, Error> {
        let dir = tempfile::tempdir().map_err(Error::system("making a directory"))?;
        let here = dir.path().join("run");
        std::fs::create_dir(&here).map_err(Error::system("making a directory"))?;
        step("making its input");
        if let Err(why) = bank.prepare(program, &here) {
            return Ok(unless_stopped(signals, why));
        }
        let text = format!("exec <&- >/dev/null 2>&1; {}", program.run);
        let command: Vec<OsString> =
            ["sh", "-c", &format!("cd \"$0\" && {{ {text}\n}}")].map(OsString::from).into();
        let command: Vec<OsString> = command.into_iter().chain([here.into()]).collect();
        step("recording");
        let trace = dir.path().join("program.folio");
        if let Err(why) = record(&command, &trace)? {
            return Ok(unless_stopped(signals, why));
        }
        if signals.is_stopped() {
            return Ok(Ended::Stopped);
        }
        step("predicting");
        let estimates = match self.estimates(&trace) {
            Ok(estimates) => estimates,
            Err(error) => return Ok(unless_stopped(signals, error.to_string())),
        };
        // The plain runs need its space in the page cache more than we need the trace.
        let _ = std::fs::remove_file(&trace);
        step("measuring");
        let arms: Vec<Vec<SettingValue>> = std::iter::once(Vec::new())
            .chain(self.settings.iter().map(|one| vec![one.value.clone()]))
            .collect();
        let started = || {
            let mut started = Command::new(&command[0]);
            started.args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null());
            started
        };
        match under_settings(&started, &arms, self.nr_rounds, signals) {
            Ok(Some(rounds)) => Ok(Ended::Measured(self.compared(&estimates, &rounds))),
            Ok(None) => Ok(Ended::Stopped),
            Err(RoundsError::Setting(error)) => Err(Error::request(error.to_string())),
            Err(error) => Ok(Ended::Unfit(error.to_string())),
        }
    }

    /// Returns the estimates of the system's own settings and of each changed one.
    fn estimates(&self, trace: &Path) -> Result<Vec<Estimate>, Error> {
        let this = This::of_traces(&[trace.to_owned()]);
        let names = std::iter::once(running::THIS.to_owned())
            .chain(self.settings.iter().map(|one| format!("{}+{}", running::THIS, one.edit)));
        let mut specs = Vec::new();
        for name in names {
            let spec = CellSpec::new(this.named(&name)?, self.machine.clone());
            specs.push(CellSpec { cache: CacheState::Warm, ..spec });
        }
        let (_, outcomes) = replay(trace, &specs, &mut |_| {})?;
        Ok(outcomes.into_iter().map(|outcome| outcome.estimate).collect())
    }

    fn compared(&self, estimates: &[Estimate], rounds: &[Vec<Sample>]) -> Visit {
        let cpu_ns = |sample: &Sample| (sample.user + sample.system).as_secs_f64() * 1e9;
        let plain: Vec<f64> = rounds.iter().map(|round| cpu_ns(&round[0])).collect();
        let run_ns = Interval::measured(&plain).map_or(0.0, |run| run.mid);
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Visit {
            time: now.map_or(0, |now| now.as_secs()),
            kernel: running::release(),
            nr_rounds: rounds.len(),
            run_ns,
            settings: self.settings.iter().enumerate().map(of).collect(),
        }
    }
}

fn unless_stopped(signals: &Watch, why: String) -> Ended {
    if signals.is_stopped() { Ended::Stopped } else { Ended::Unfit(why) }
}

/// Records a command; the inner error says why this one cannot be recorded.
///
/// # Errors
/// If nothing can be recorded here, such as without QEMU.
fn record(command: &[OsString], trace: &Path) -> Result<Result<(), String>, Error> {
    let request = RecordRequest { command, output: Some(trace), root: None };
    let recording = Recording::new(&request).map_err(|error| Error::request(error.to_string()))?;
    let ended = recording.run(&mut |_| {}).map(|outcome| outcome.ended);
    Ok(match ended {
        Ok(RecordEnd::Code(0)) => Ok(()),
        Ok(ended) => Err(format!("when recorded, it ended with {ended}")),
        Err(error) => Err(error.to_string()),
    })
}
