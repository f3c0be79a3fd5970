//! `folio calibrate --programs`: predicts and measures the programs of the bank on this machine.
//!
//! A visit to a program makes its input, records it, replays the trace under this kernel with and
//! without each setting, and then runs the plain program under the same settings, in interleaved
//! rounds. The distances between prediction and measurement are the machine's errors
//! ([`TimeErrors`]), which widen the bounds of all later predictions. Reading order: `bank` (the
//! programs), `store` (the measurements), `visit` (one program), `result` (the table).

mod bank;
mod result;
mod store;
mod visit;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use largefolio_linux::calibrate::Effort;
use largefolio_linux::timed_run::Watch;
use largefolio_sim::machine::{Machine, THIS, TimeErrors, this_path};
use largefolio_trace::{disk, shown};

pub use result::ProgramsResult;

use self::bank::{Bank, Program};
use self::store::{Store, Visit};
use self::visit::visit;
use crate::Error;
use crate::trial::{Measured, Trial};

/// No program starts after this time, so that all of it takes less than an hour.
const TIME_MAX: Duration = Duration::from_mins(55);

/// As for every machine file.
const MACHINE_BYTES_MAX: u64 = 256 << 10;

/// The current program and step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankProgress {
    pub program: String,
    pub step: &'static str,
    pub nr: usize,
    pub of: usize,
}

#[derive(Debug)]
pub struct ProgramsRequest {
    bank: Bank,
    programs: Vec<Program>,
    machine_path: PathBuf,
    trial: Trial,
    store: Store,
    notes: Vec<String>,
}

impl ProgramsRequest {
    /// Checks the machine, its settings and the earlier measurements. If `chosen` is empty, all
    /// programs are measured.
    ///
    /// # Errors
    /// If this machine is not calibrated or has too few settings, if the bank lacks a chosen
    /// program, or if the file with the earlier measurements is damaged.
    pub fn new(effort: Effort, chosen: &[String]) -> Result<Self, Error> {
        let machine = Machine::of_user(THIS)?;
        let machine_path = this_path()?;
        let cpu = machine.cpu.clone().unwrap_or_default();
        let (store, note) = Store::read(&Store::path_of(&machine_path), &cpu)?;
        let trial = Trial::new(machine, effort.nr_rounds())?;
        let notes = note.into_iter().collect();
        let bank = Bank::load();
        let programs = bank.chosen(chosen)?;
        Ok(Self { bank, programs, machine_path, trial, store, notes })
    }

    /// Returns the table of earlier measurements, and writes nothing.
    #[must_use]
    pub fn table(&self, command_line: Vec<String>) -> ProgramsResult {
        ProgramsResult::new(command_line, self, Duration::ZERO)
    }

    /// Measures the programs, those with the fewest visits first, and writes the machine's errors.
    /// After a signal or [`TIME_MAX`], the result contains the programs completed by then.
    ///
    /// # Errors
    /// If a file cannot be written or a setting cannot be changed. A program that cannot be
    /// measured is left out, and the result says why.
    pub fn run(
        mut self,
        command_line: Vec<String>,
        progress: &mut dyn FnMut(BankProgress),
    ) -> Result<ProgramsResult, Error> {
        self.trial.check_rights()?;
        let signals = Watch::start().map_err(|error| Error::request(error.to_string()))?;
        let start = Instant::now();
        let mut programs = std::mem::take(&mut self.programs);
        programs.sort_by_key(|program| self.store.nr_current_visits(&program.name));
        let path = Store::path_of(&self.machine_path);
        let of = programs.len();
        for (nr, program) in programs.iter().enumerate() {
            if start.elapsed() > TIME_MAX {
                let rest = of - nr;
                self.notes.push(format!("{rest} programs are left for the next run: time is up"));
                break;
            }
            let mut step = |step| {
                progress(BankProgress { program: program.name.clone(), step, nr: nr + 1, of });
            };
            match visit(&self.trial, (&self.bank, program), &signals, &mut step)? {
                Measured::Compared(compared) => {
                    self.store.add(&program.name, Visit::now(compared));
                    self.store.write(&path)?;
                }
                Measured::Unfit(why) => {
                    self.notes.push(format!("{} is left out: {why}", program.name));
                }
                Measured::Stopped => {
                    self.notes.push(format!("stopped at {}", program.name));
                    break;
                }
            }
        }
        let result = ProgramsResult::new(command_line, &self, start.elapsed());
        if let Some(errors) = &result.errors {
            self.write(errors)?;
        }
        Ok(result)
    }

    /// Writes the errors into the machine file, which another calibration may have written
    /// meanwhile. Its comment stays.
    fn write(&self, errors: &TimeErrors) -> Result<(), Error> {
        let path = &self.machine_path;
        let before = disk::read_text(path, MACHINE_BYTES_MAX)
            .map_err(|error| Error::request(format!("cannot read {}: {error}", shown(path))))?;
        let machine = Machine::from_toml(&before, &shown(path).to_string())?;
        let machine = Machine { errors: Some(errors.clone()), ..machine };
        let comment = before.lines().map_while(|line| line.strip_prefix('#'));
        let comment: Vec<&str> = comment.map(str::trim).collect();
        let text = machine.to_toml(&comment.join("\n"))?;
        store::write(path, text.as_bytes())
    }
}
