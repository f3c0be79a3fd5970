//! `folio crosscheck`: the running kernel, recorded, replayed and compared.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use largefolio_linux::crosscheck::{
    CrosscheckError, Facts, Pause, Place, Random, Recorder, Settings, Skipped, Thp, Workload,
    WorkloadPlan,
};
use largefolio_mm::rules::collapse::FileCollapse;
use largefolio_sim::crosscheck::files::FileSteps;
use largefolio_sim::crosscheck::{Recording, Verdict};
use largefolio_sim::kernel::Kernel;
use largefolio_trace::disk;
use largefolio_trace::shown;

use super::report::{Outcome, Output, Report, Row};
use super::select::{SelectArgs, as_root};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::running::rules;

/// Which workloads.
pub(super) struct Chosen {
    pub(super) select: SelectArgs,
    pub(super) random: Option<Random>,
}

impl Chosen {
    fn plan(&self, facts: &Facts, command: &str) -> Result<WorkloadPlan, CrosscheckError> {
        match self.random {
            Some(random) => {
                WorkloadPlan::random(random, &self.select.selection_of_random(), facts, command)
            }
            None => WorkloadPlan::new(&self.select.selection(), facts, command),
        }
    }
}

/// A check that can be made.
pub(super) struct LivePlan {
    plan: WorkloadPlan,
    facts: Facts,
    kernel: Kernel,
    keep: Option<PathBuf>,
    command_line: Vec<String>,
}

impl LivePlan {
    /// Chooses workloads and rules; changes nothing.
    pub(super) fn new(
        chosen: &Chosen,
        kernel: Option<Kernel>,
        keep: Option<PathBuf>,
        command_line: Vec<String>,
    ) -> Result<Self> {
        let facts = Facts::of_host();
        let plan = chosen.plan(&facts, &as_root(&command_line))?;
        let kernel = kernel.map_or_else(|| rules(&facts.release, facts.page_bytes), Ok)?;
        if let Some(keep) = &keep {
            fs::create_dir_all(keep)
                .with_context(|| format!("cannot make {}; choose another --keep", shown(keep)))?;
        }
        Ok(Self { plan, facts, kernel, keep, command_line })
    }

    /// Records, replays, reports.
    pub(super) fn run(self, output: &Output, console: &mut Console) -> Result<Exit> {
        self.plan.warnings.iter().for_each(|warning| console::warn(warning));
        let mut report = Report::new(&self.facts.release, self.command_line.clone());
        report.kept = self.keep.as_ref().map(|keep| keep.display().to_string());
        report.rows.extend(self.plan.skipped.iter().map(skipped));
        let bar = console::counter(self.plan.nr_workloads() as u64, "checking");
        let result = self.record(&mut |row| {
            bar.inc(1);
            report.rows.push(row);
        });
        bar.finish_and_clear();
        if let Err(error) = result {
            return interrupted(error);
        }
        report.deliver(output, console)
    }

    fn record(&self, each: &mut dyn FnMut(Row)) -> Result<()> {
        let recorder = recorder(&self.facts, Some(&self.kernel))?;
        let settings = Settings::now();
        for group in &self.plan.groups {
            let mut place = recorder.place(group.filesystem, group.own_bytes())?;
            for workload in &group.workloads {
                let mut row = self.one(&mut place, workload)?;
                row.unless_changed(&settings);
                each(row);
            }
        }
        Ok(())
    }

    /// Records one workload and compares. One that differs is recorded once more with long pauses:
    /// a read that takes longer than a pause is the machine's doing, and no rule's.
    fn one(&self, place: &mut Place<'_>, workload: &Workload) -> Result<Row> {
        let mut row = row_of(workload, &self.facts);
        let (mut text, mut verdict) = match self.checked(place, workload, Pause::Usual) {
            Ok(checked) => checked,
            Err(error) => return unrecorded(row, error),
        };
        if !verdict.is_equal() {
            row.is_repeated = true;
            match self.checked(place, workload, Pause::Long) {
                Ok(again) => (text, verdict) = again,
                Err(error) => return unrecorded(row, error),
            }
        }
        row.take(verdict);
        let is_drawn = row.repeat.is_some();
        if let Some(keep) = &self.keep
            && (!is_drawn || row.outcome == Outcome::Different)
        {
            keep_text(keep, &workload.name, &text)?;
        }
        Ok(row)
    }

    fn checked(
        &self,
        place: &mut Place<'_>,
        workload: &Workload,
        pause: Pause,
    ) -> Result<(String, Verdict)> {
        let text = place.record(workload, pause)?;
        let recording = Recording::<FileSteps>::parse(&workload.name, &text)?;
        let verdict = recording.check(Some(&self.kernel))?;
        Ok((text, verdict))
    }
}

/// A recorder; where khugepaged works on files, it sleeps meanwhile.
pub(super) fn recorder(facts: &Facts, kernel: Option<&Kernel>) -> Result<Recorder> {
    let mut recorder = Recorder::new(facts.clone())?;
    let takes_files =
        kernel.is_some_and(|kernel| kernel.rules.collapse.file == FileCollapse::LargeFolios);
    if takes_files && matches!(facts.thp, Thp::Always | Thp::Madvise) {
        recorder.send_khugepaged_to_sleep()?;
    }
    Ok(recorder)
}

/// Writes a recording into a directory.
pub(super) fn keep_text(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(format!("{name}.txt"));
    disk::write_whole(&path, text.as_bytes())
        .with_context(|| format!("cannot write {}", shown(&path)))
}

/// A run that a signal ended says so and exits as the signal would have made it.
pub(super) fn interrupted(error: anyhow::Error) -> Result<Exit> {
    match error.downcast_ref::<CrosscheckError>() {
        Some(CrosscheckError::Interrupted(signal)) => {
            console::say(&format!("folio: {error}"));
            Ok(Exit::Program(128_u8.saturating_add(u8::try_from(*signal).unwrap_or(127))))
        }
        _ => Err(error),
    }
}

/// A workload that alone could not be recorded is a row; anything else ends the run.
fn unrecorded(mut row: Row, error: anyhow::Error) -> Result<Row> {
    match error.downcast_ref::<CrosscheckError>() {
        Some(CrosscheckError::Probe { said, .. }) => {
            row.outcome = Outcome::Failed;
            row.reason = Some(said.clone());
            Ok(row)
        }
        _ => Err(error),
    }
}

fn row_of(workload: &Workload, facts: &Facts) -> Row {
    Row {
        name: workload.name.clone(),
        variant: facts.variant(),
        filesystem: workload.filesystem.name().to_owned(),
        window_kb: workload.window_kb,
        repeat: repeat(workload),
        ..Row::default()
    }
}

/// What records a drawn workload once more.
pub(super) fn repeat(workload: &Workload) -> Option<String> {
    let Workload { filesystem, window_kb, .. } = workload;
    let words = workload.typed()?;
    Some(format!(
        "folio crosscheck record -o here --fs {filesystem} --window {window_kb}K -- {words}"
    ))
}

fn skipped(skipped: &Skipped) -> Row {
    Row {
        name: skipped.name.clone(),
        filesystem: skipped.filesystem.name().to_owned(),
        window_kb: skipped.window_kb,
        outcome: Outcome::Skipped,
        reason: Some(skipped.reason.to_owned()),
        ..Row::default()
    }
}
