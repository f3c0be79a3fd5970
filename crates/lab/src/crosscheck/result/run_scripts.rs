//! Many scripts: each recorded, predicted, run plainly and compared; a script that differs is
//! shortened.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::crosscheck::record::{
    CrosscheckError, Facts, PlainOptions, ProgramRecorder, RunPlace, RunPlan, WantedSettings,
};
use crate::crosscheck::run::generate::Feature;
use crate::crosscheck::run::script::{Script, reduce};

use super::run::{Judged, RunCheck, Runs};
use super::run_rows::{RunOutcome, RunResult, RunRow};

/// Runs of a script. Equal after one plain run is equal.
const RUNS: Runs = Runs { nr: 1, nr_max: 7 };
/// While a script is shortened, each candidate runs as often.
const RUNS_OF_REDUCTION: Runs = Runs { nr: 1, nr_max: 4 };
/// Candidates tried for each script that differs.
const NR_TRIALS: usize = 40;

/// A script and how it is run.
#[derive(Clone, Debug)]
pub struct ScriptRun {
    pub name: String,
    pub script: Script,
    pub plan: RunPlan,
    pub settings: WantedSettings,
    pub options: PlainOptions,
    /// Why it is known to differ.
    pub known: Option<String>,
    /// The feature of a random script; such a script is shortened if it differs.
    pub feature: Option<Feature>,
}

pub struct ScriptCheck<'a> {
    pub facts: &'a Facts,
    /// Where traces and scripts that differ are kept.
    pub keep: Option<&'a Path>,
    /// The number of differing scripts that are shortened; the rest is only reported.
    pub nr_reduced_max: usize,
}

impl ScriptCheck<'_> {
    /// Judges the scripts and adds a row for each; calls `each` after every one. Ctrl-C ends it
    /// early, with the rows so far.
    ///
    /// # Errors
    /// If no script can be run. Restores everything in every case.
    pub fn run(
        &self,
        recorder: &ProgramRecorder,
        runs: &[ScriptRun],
        result: &mut RunResult,
        each: &mut (dyn FnMut() + Send),
    ) -> Result<(), Error> {
        result.keep_in(self.keep);
        let mut nr_reduced = 0;
        for group in runs.chunk_by(|a, b| a.plan.filesystem == b.plan.filesystem) {
            let rows = &mut result.rows;
            let judged = recorder.run_in_place(group[0].plan, &[], |place| {
                let program = place.install_interpreter()?;
                for run in group {
                    let mut row = self.judge(place, &program, run)?;
                    if row.outcome == RunOutcome::Different
                        && run.feature.is_some()
                        && nr_reduced < self.nr_reduced_max
                    {
                        nr_reduced += 1;
                        let script = self.reduced(place, &program, run)?;
                        row.reduced = Some(script.to_string());
                    }
                    rows.push(row);
                    each();
                }
                Ok::<(), Error>(())
            });
            match judged {
                Err(Error::Crosscheck(CrosscheckError::Interrupted(_))) => {
                    result.is_interrupted = true;
                    return Ok(());
                }
                judged => judged?,
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        place: &mut RunPlace<'_>,
        program: &Path,
        run: &ScriptRun,
    ) -> Result<RunRow, Error> {
        let folder = tempfile::tempdir().map_err(Error::system("make a directory"))?;
        let trace = folder.path().join("trace.folio");
        let mut row = self.judge_into(place, program, (run, RUNS), &trace)?;
        row.known.clone_from(&run.known);
        row.feature = run.feature;
        if row.outcome == RunOutcome::Different {
            self.keep(run, &row.settings, &trace)?;
        }
        Ok(row)
    }

    fn keep(&self, run: &ScriptRun, settings: &str, trace: &Path) -> Result<(), Error> {
        let Some(keep) = self.keep else { return Ok(()) };
        let plan = &run.plan;
        let (filesystem, window) = (plan.filesystem.name(), plan.window_kb);
        let name = format!("{}.{filesystem}.{window}K.{settings}", run.name);
        let to = |ending: &str| keep.join(format!("{name}.{ending}"));
        fs::copy(trace, to("folio"))
            .and_then(|_| fs::write(to("script"), format!("{}\n", run.script)))
            .map_err(Error::system(format!("keep {} in {}", run.name, keep.display())))
    }

    fn judge_into(
        &self,
        place: &mut RunPlace<'_>,
        program: &Path,
        (run, runs): (&ScriptRun, Runs),
        trace: &Path,
    ) -> Result<RunRow, Error> {
        place.put(run.script.files.clone());
        let command: Vec<OsString> =
            vec![program.into(), place.folder().into(), run.script.text().into()];
        let judged =
            Judged { name: run.name.clone(), command, script: Some(run.script.to_string()) };
        let check = RunCheck {
            facts: self.facts,
            plan: run.plan,
            options: run.options,
            settings: run.settings.clone(),
            changed: run.script.changed_settings(),
            nr_huge: run.script.nr_huge,
            runs,
        };
        match check.judge(place, &judged, trace) {
            Err(Error::Crosscheck(error @ CrosscheckError::Interrupted(_))) => Err(error.into()),
            // The other scripts can still be judged.
            Err(error) => Ok(check.row(&judged).failed(error.to_string())),
            judged => judged,
        }
    }

    fn reduced(
        &self,
        place: &mut RunPlace<'_>,
        program: &Path,
        run: &ScriptRun,
    ) -> Result<Script, Error> {
        let folder = tempfile::tempdir().map_err(Error::system("make a directory"))?;
        let mut nr = 0;
        reduce(&run.script, NR_TRIALS, |script| {
            nr += 1;
            let trace: PathBuf = folder.path().join(format!("{nr}.folio"));
            let candidate = ScriptRun { script: script.clone(), ..run.clone() };
            let row = self.judge_into(place, program, (&candidate, RUNS_OF_REDUCTION), &trace)?;
            let _ = fs::remove_file(&trace);
            Ok(row.outcome == RunOutcome::Different)
        })
    }
}
