//! A program's anchor ([`largefolio_sim::cost::Anchor`]): measuring it, and keeping it in a
//! file next to the trace.
//!
//! ```text
//!   job.folio               the trace
//!   job.folio.anchor.json   its anchor: for this trace, CPU and version of the model alone
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use largefolio_linux::calibrate::Effort;
use largefolio_linux::proc::Processor;
use largefolio_linux::system::Live;
use largefolio_linux::timed_run::Watch;
use largefolio_sim::cost::{Anchor, MeasuredChange};
use largefolio_sim::interval::Interval;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, RESULTS_VERSION};
use largefolio_trace::{OpenTrace, disk, shown};
use serde::{Deserialize, Serialize};

use crate::running;
use crate::trial::{Compared, Measured, SettingPairs, Trial};
use crate::{Error, Remark};

const FILE_BYTES_MAX: u64 = 1 << 20;
/// A program that now takes another user time than when it was recorded does something else.
const USER_TIME_WITHIN: f64 = 2.0;

/// The contents of a trace's anchor file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnchorFile {
    schema_version: u32,
    /// [`RESULTS_VERSION`] of the predictions that the slope corrects.
    results_version: u32,
    trace_digest: String,
    kernel: String,
    anchor: Anchor,
    /// The changes that the slope was fitted to, in percent of the plain run's CPU time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    measured: Vec<SettingPairs>,
}

const SCHEMA_VERSION: u32 = 1;

/// Returns the file that keeps a trace's anchor.
#[must_use]
pub fn path_of(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".anchor.json");
    name.into()
}

/// Returns the trace's anchor, if it has one, or why that cannot be used.
fn read(trace: &OpenTrace) -> Result<Option<Anchor>, String> {
    let path = path_of(trace.path());
    let text = match disk::read_whole(&path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| error.to_string())?,
    };
    let file: AnchorFile = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if file.results_version != RESULTS_VERSION {
        return Err("it belongs to another version's predictions".to_owned());
    }
    if trace.digest().map_err(|error| error.to_string())? != file.trace_digest {
        return Err("it belongs to another recording".to_owned());
    }
    let Interval { low, mid, high } = file.anchor.slope;
    if !(0.0 <= low && low <= mid && mid <= high && high < 1e6) {
        return Err("its slope is not a number above 0 with bounds".to_owned());
    }
    Ok(Some(file.anchor))
}

/// Returns the anchor that is kept with the trace, or a remark if it cannot be used.
pub(crate) fn known(trace: &OpenTrace) -> (Option<Anchor>, Option<Remark>) {
    match read(trace) {
        Ok(anchor) => (anchor, None),
        Err(why) => {
            let remark = Remark::Warning(format!(
                "{} is ignored: {why}; folio predict {} --anchor measures it again",
                shown(&path_of(trace.path())),
                shown(trace.path())
            ));
            (None, Some(remark))
        }
    }
}

/// Gives the cells the anchor that is kept with the trace, on machines with the CPU that it was
/// measured on. Returns a remark if there is an anchor that cannot be used.
pub fn apply(trace: &OpenTrace, specs: &mut [CellSpec]) -> Option<Remark> {
    let (anchor, remark) = known(trace);
    if let Some(anchor) = anchor {
        give(&anchor, specs);
    }
    remark
}

fn give(anchor: &Anchor, specs: &mut [CellSpec]) {
    for spec in specs {
        if spec.machine.cpu.as_ref() == Some(&anchor.cpu) {
            spec.anchor = Some(anchor.clone());
        }
    }
}

/// Returns the machine that describes this one, and its CPU.
///
/// # Errors
/// If there is none: `option` measures here.
pub(crate) fn check_is_here<'a>(
    option: &str,
    machines: impl IntoIterator<Item = &'a Machine>,
) -> Result<(&'a Machine, String), Error> {
    let cpu = Processor::of(&Live).name;
    let mut machines = machines.into_iter();
    match machines.find(|machine| machine.cpu.as_ref() == Some(&cpu)) {
        Some(machine) => Ok((machine, cpu)),
        None => Err(Error::request(format!(
            "{option} measures on this machine ({cpu}), and none of the machines is this one; \
             measure it with folio calibrate, and add --machine this"
        ))),
    }
}

/// Fits an anchor to measured changes and writes it next to the trace.
///
/// # Errors
/// If the trace cannot be read or the file cannot be written.
pub(crate) fn save(
    trace: &OpenTrace,
    cpu: &str,
    changes: &[MeasuredChange],
    measured: Vec<SettingPairs>,
    (settings, nr_rounds): (Vec<String>, usize),
) -> Result<Anchor, Error> {
    let anchor = Anchor { cpu: cpu.to_owned(), slope: Anchor::slope(changes), nr_rounds, settings };
    let file = AnchorFile {
        schema_version: SCHEMA_VERSION,
        results_version: RESULTS_VERSION,
        trace_digest: trace.digest()?,
        kernel: running::release(),
        anchor: anchor.clone(),
        measured,
    };
    let path = path_of(trace.path());
    let about = |why: &dyn std::fmt::Display| {
        Error::request(format!("cannot write {}: {why}", shown(&path)))
    };
    let mut text = serde_json::to_vec_pretty(&file).map_err(|error| about(&error))?;
    text.push(b'\n');
    disk::write_whole(&path, &text).map_err(|error| about(&error))?;
    Ok(anchor)
}

/// Returns a trial's changes of user time, to which a slope can be fitted.
pub(crate) fn changes(compared: &[SettingPairs], nr_rounds: usize) -> Vec<MeasuredChange> {
    let of = |setting: &SettingPairs| {
        let user = setting.user;
        MeasuredChange::of_rounds(user.predicted.mid, user.measured, nr_rounds)
    };
    compared.iter().map(of).collect()
}

/// A measurement of the program of a trace under settings of this system.
#[derive(Debug)]
pub struct AnchorRequest {
    trial: Trial,
    cpu: String,
    command: Vec<String>,
    /// User time of the recorded plain runs, in ns.
    recorded_ns: Option<f64>,
}

impl AnchorRequest {
    /// Checks that the trace's command can be measured here, and that one of the machines is this
    /// one.
    ///
    /// # Errors
    /// If it cannot, with the reason.
    pub fn new(trace: &OpenTrace, specs: &[CellSpec]) -> Result<Self, Error> {
        let meta = trace.meta();
        if meta.attached.is_some() || meta.faults_only {
            return Err(Error::request(
                "--anchor runs the recorded command again, and this recording is of a running \
                 process",
            ));
        }
        let [_, ..] = meta.command.as_slice() else {
            return Err(Error::request("--anchor: the trace does not say which command it is of"));
        };
        let (here, cpu) = check_is_here("--anchor", specs.iter().map(|spec| &spec.machine))?;
        let trial = Trial::new(here.clone(), Effort::Full.nr_rounds())?;
        trial.check_rights()?;
        #[expect(clippy::cast_precision_loss, reason = "a time of one run in ns")]
        let user: Vec<f64> = meta.runs.iter().map(|run| run.user_ns as f64).collect();
        let recorded_ns = Interval::measured(&user).map(|user| user.mid);
        Ok(Self { trial, cpu, command: meta.command.clone(), recorded_ns })
    }

    /// Checks the same for this machine.
    ///
    /// # Errors
    /// As [`Self::new`], or if no machine is known.
    pub fn of_this_machine(trace: &OpenTrace) -> Result<Self, Error> {
        let kernel = running::named(running::THIS)?;
        let spec = CellSpec::new(kernel, running::machine()?.machine);
        Self::new(trace, &[spec])
    }

    /// Returns the command that will run, as the trace names it.
    #[must_use]
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Runs the command in interleaved rounds, in the current directory, without input and output,
    /// and keeps the anchor with the trace. `None` after a signal.
    ///
    /// # Errors
    /// If the trace cannot be replayed, the program fails or behaves unlike its recording, or the
    /// file cannot be written.
    pub fn run(
        &self,
        trace: &OpenTrace,
        specs: &mut [CellSpec],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<Anchor>, Error> {
        let signals = Watch::start().map_err(|error| Error::request(error.to_string()))?;
        let estimates = self.trial.estimates(trace.path(), progress)?;
        let compared = match self.trial.measure(&self.command, &estimates, &signals)? {
            Measured::Compared(compared) => compared,
            Measured::Stopped => return Ok(None),
            Measured::Unfit(why) => {
                return Err(Error::request(format!(
                    "--anchor: {}: {why}; it ran in this directory, without input",
                    self.command.join(" ")
                )));
            }
        };
        self.check(&compared)?;
        let Compared { nr_rounds, settings, .. } = compared;
        let names = settings.iter().map(|setting| setting.setting.clone()).collect();
        let changes = changes(&settings, nr_rounds);
        let anchor = save(trace, &self.cpu, &changes, settings, (names, nr_rounds))?;
        give(&anchor, specs);
        Ok(Some(anchor))
    }

    fn check(&self, compared: &Compared) -> Result<(), Error> {
        let Some(recorded_ns) = self.recorded_ns.filter(|ns| *ns > 0.0) else { return Ok(()) };
        let ratio = compared.user_ns / recorded_ns;
        if (USER_TIME_WITHIN.recip()..=USER_TIME_WITHIN).contains(&ratio) {
            return Ok(());
        }
        Err(Error::request(format!(
            "--anchor: {} took {:.3} s of user time in this directory and without input, and \
             {:.3} s when it was recorded, so it does not do the same work; record it again where \
             it runs",
            self.command.join(" "),
            compared.user_ns / 1e9,
            recorded_ns / 1e9
        )))
    }
}
