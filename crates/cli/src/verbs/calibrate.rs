//! `folio calibrate`: measures this machine's costs into a machine file, and checks that file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_linux::calibrate::stubs::default_dir;
use largefolio_linux::calibrate::{Calibration, Effort};
use largefolio_results::calibrate::counters::mapcount_costs;
use largefolio_results::calibrate::{
    BankProgress, CalibrationResult, CheckRequest, ProgramsRequest, machine,
};
use largefolio_results::{Form, Forms as _};
use largefolio_sim::machine::{Machine, THIS, this_path};
use largefolio_trace::disk;
use largefolio_trace::shown;

use super::names;
use super::values::FormArgs;
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Measure this machine and write a machine file
///
/// Measures TLB reach and the cost of hits and walks, for data and instructions, and the cost of
/// faults, fork, unmapping, freeing, map counts, clearing, copying and reads. Takes one to four
/// minutes on a mostly idle machine: folio repeats each measurement until two results agree, and
/// reports a change in clock frequency. `folio predict --machine this` uses the file. The file
/// states how each number was measured. Numbers that could not be measured are marked as assumed,
/// with the reason. Folio sizes between 4K and 2M need root: folio changes their settings while it
/// runs and always restores them.
///
/// Machines drift. If the file already has calibrations for the same CPU and kernel, each cost
/// becomes the mean over all of them, and its range covers them all. Repeat the calibration at a
/// different time of day.
///
/// --check writes no file: it predicts the times of operations from the machine file, runs them,
/// and compares.
///
/// --programs predicts and measures about fifty small programs under three settings of large folios,
/// within an hour, and needs root. The bounds of all later predictions for this machine then hold
/// for nine of ten programs, whatever is wrong with costs or model. Ctrl-C loses at most one
/// program; each run adds to the earlier ones. With --check, it only prints the table.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio calibrate
  folio calibrate --quick -o /tmp/this.toml
  folio calibrate --json > curves.json
  folio calibrate --check
  sudo folio calibrate --programs
  folio predict cc1.folio --machine this --time

Exit status of --check: 0 if every measured median is in its predicted interval and every ratio is
within its bound, and 1 otherwise.")]
pub(crate) struct CalibrateArgs {
    /// File to write [default: ~/.config/largefolio/machines/this.toml]
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    output: Option<PathBuf>,
    /// Finish in a few seconds, with wider ranges, fewer rounds and smaller regions
    #[arg(long)]
    quick: bool,
    /// Discard earlier calibrations of this machine
    #[arg(long, conflicts_with = "check")]
    fresh: bool,
    /// Compare predictions with measurements
    #[arg(long)]
    check: bool,
    /// Predict and measure the programs of a bank, or these, and add their errors to the machine
    /// file
    #[arg(long, value_name = "PROGRAM,..", value_delimiter = ',', num_args = 0..=1,
        require_equals = true, conflicts_with_all = ["fresh", "output", "dir"])]
    programs: Option<Vec<String>>,
    /// Machine whose constants the predictions use
    #[arg(long, value_name = "MACHINE", default_value = THIS, requires = "check",
        value_parser = names::MACHINE, hide_possible_values = true)]
    machine: String,
    /// Directory for the unnamed files that folio reads and executes
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    form: FormArgs,
}

pub(crate) enum CalibratePlan {
    Write(WritePlan),
    Check(Box<CheckPlan>),
    Programs(Box<ProgramsPlan>),
}

pub(crate) struct ProgramsPlan {
    request: ProgramsRequest,
    /// Otherwise, only prints the table of earlier measurements.
    is_measured: bool,
    form: Form,
    command_line: Vec<String>,
}

pub(crate) struct CheckPlan {
    request: CheckRequest,
    form: Form,
    command_line: Vec<String>,
}

/// A calibration that is ready to run.
pub(crate) struct WritePlan {
    effort: Effort,
    dir: PathBuf,
    output: PathBuf,
    /// The file with earlier calibrations to merge.
    earlier: Option<PathBuf>,
    form: Form,
    command_line: Vec<String>,
}

impl VerbArgs for CalibrateArgs {
    type Plan = CalibratePlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let effort = if self.quick { Effort::Quick } else { Effort::Full };
        let dir = self.dir.clone().unwrap_or_else(default_dir);
        let form = self.form.form();
        if let Some(chosen) = &self.programs {
            let request = ProgramsRequest::new(effort, chosen)?;
            let plan = ProgramsPlan { request, is_measured: !self.check, form, command_line };
            return Ok(CalibratePlan::Programs(Box::new(plan)));
        }
        if self.check {
            let request = CheckRequest::new(&self.machine, effort, dir)?;
            let plan = CheckPlan { request, form, command_line };
            return Ok(CalibratePlan::Check(Box::new(plan)));
        }
        let output = match &self.output {
            Some(output) => output.clone(),
            None => this_path()?,
        };
        // Checks the directory before minutes of measuring.
        if let (None, Some(folder)) = (&self.output, output.parent()) {
            fs::create_dir_all(folder).with_context(|| not_written(&output))?;
        }
        disk::check(&output).with_context(|| not_written(&output))?;
        if self.quick
            && !self.fresh
            && let nr_before @ 1.. = nr_calibrations(&output)
        {
            bail!(
                "{} is the mean of {nr_before} calibrations, which --quick would replace with a \
                 rough estimate: write the estimate to another file with --output, or discard the \
                 calibrations with --fresh",
                shown(&output)
            );
        }
        // A quick calibration is only a first estimate, and is not merged.
        let adds = !self.fresh && !self.quick && output.exists();
        let earlier = adds.then(|| output.clone());
        let plan = WritePlan { effort, dir, output, earlier, form, command_line };
        Ok(CalibratePlan::Write(plan))
    }
}

/// Returns the number of calibrations in a machine file, or 0 if the file is invalid and nothing
/// would be lost.
fn nr_calibrations(path: &Path) -> u32 {
    let machine = Machine::from_path(path).ok();
    machine.and_then(|machine| machine.calibrated).map_or(0, |calibrated| calibrated.nr)
}

fn not_written(output: &Path) -> String {
    format!("cannot write {}; choose another place with --output", shown(output))
}

impl VerbPlan for CalibratePlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        match self {
            Self::Write(plan) => plan.run(console),
            Self::Check(plan) => plan.run(console),
            Self::Programs(plan) => plan.run(console),
        }
    }
}

impl WritePlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let line = console::status();
        let mut calibration = Calibration::run(self.effort, &self.dir, &mut |what| {
            line.set_message(format!("measuring {what}"));
        })?;
        line.set_message("measuring map counts and owner words");
        calibration.mapcounts = mapcount_costs(self.effort.nr_rounds());
        line.finish_and_clear();
        let mut calibrated = machine(&calibration)?;
        if matches!(self.effort, Effort::Quick) {
            calibrated = calibrated.quick();
        }
        // Overwrites a file that is not a machine file.
        if let Some(earlier) = self.earlier.as_deref().map(Machine::from_path).and_then(Result::ok)
        {
            calibrated.add(&earlier);
        }
        let text = calibrated.machine.to_toml(&calibrated.comment(self.effort))?;
        disk::write_whole(&self.output, text.as_bytes())
            .with_context(|| not_written(&self.output))?;
        let result =
            CalibrationResult::new(self.command_line, &calibration, &calibrated, &self.output);
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}

impl ProgramsPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        if !self.is_measured {
            let table = self.request.table(self.command_line);
            console.deliver(table.written(self.form)?.as_bytes(), None)?;
            return Ok(Exit::Done);
        }
        let line = console::status();
        let result = self.request.run(self.command_line, &mut |progress| {
            let BankProgress { program, step, nr, of } = progress;
            line.set_message(format!("program {nr} of {of}: {program}: {step}"));
        });
        line.finish_and_clear();
        console.deliver(result?.written(self.form)?.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}

impl CheckPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let line = console::status();
        let result = self.request.run(self.command_line, &mut |what| line.set_message(what));
        line.finish_and_clear();
        let result = result?;
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        Ok(if result.is_good() { Exit::Done } else { Exit::No })
    }
}
