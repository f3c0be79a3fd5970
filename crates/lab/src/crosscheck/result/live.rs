//! Workloads on the running kernel: recorded, replayed and compared.

use std::path::PathBuf;

use crate::crosscheck::files::FileSteps;
use crate::crosscheck::record::{
    CrosscheckError, Facts, FreeMemory, Pause, Recorder, RecordingPlace, Settings, Skipped, Thp,
    Workload, WorkloadPlan,
};
use crate::crosscheck::{Recording, Verdict};
use largefolio_mm::rules::collapse::FileCollapse;
use largefolio_sim::kernel::Kernel;

use super::keep::keep_text;
use super::rows::{CrosscheckOutcome as Outcome, CrosscheckResult, CrosscheckRow as Row};
use crate::Error;

pub struct LiveCheck<'a> {
    pub plan: &'a WorkloadPlan,
    pub facts: &'a Facts,
    pub kernel: &'a Kernel,
    pub keep: Option<&'a PathBuf>,
}

impl LiveCheck<'_> {
    /// Records and compares every workload; calls `each` after every workload.
    ///
    /// # Errors
    /// If no workload can be recorded, or on a signal. Cleans up in every case.
    pub fn run(
        &self,
        command_line: Vec<String>,
        each: &mut dyn FnMut(),
    ) -> Result<CrosscheckResult, Error> {
        let mut result = CrosscheckResult::new(&self.facts.release, command_line);
        result.head.keep_in(self.keep.map(PathBuf::as_path));
        result.rows.extend(self.plan.skipped.iter().map(skipped));
        self.record(&mut |row| {
            each();
            result.rows.push(row);
        })?;
        Ok(result)
    }

    fn record(&self, each: &mut dyn FnMut(Row)) -> Result<(), Error> {
        let recorder = recorder(self.facts, Some(self.kernel))?;
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

    /// Records and compares a workload. A workload that differs is recorded again with long pauses,
    /// because slow reads can come from the machine instead of a rule.
    fn one(&self, place: &mut RecordingPlace<'_>, workload: &Workload) -> Result<Row, Error> {
        let mut row = row_of(workload, self.facts);
        let (mut text, mut verdict) = match self.checked(place, workload, Pause::Usual) {
            Ok(checked) => checked,
            Err(error) => return unrecorded(row, error),
        };
        let before = FreeMemory::now(self.facts.page_bytes);
        if !verdict.is_equal() {
            row.is_repeated = true;
            match self.checked(place, workload, Pause::Long) {
                Ok(again) => (text, verdict) = again,
                Err(error) => return unrecorded(row, error),
            }
        }
        row.take(verdict);
        row.unless_short(&before, self.facts.page_bytes);
        let is_drawn = row.repeat.is_some();
        if let Some(keep) = self.keep
            && (!is_drawn || row.outcome == Outcome::Different)
        {
            keep_text(keep, &workload.name, &text)?;
        }
        Ok(row)
    }

    fn checked(
        &self,
        place: &mut RecordingPlace<'_>,
        workload: &Workload,
        pause: Pause,
    ) -> Result<(String, Verdict), Error> {
        let text = place.record(workload, pause)?;
        let recording = Recording::<FileSteps>::parse(&workload.name, &text)?;
        let verdict = recording.check(Some(self.kernel))?;
        Ok((text, verdict))
    }
}

/// Creates a recorder, and puts khugepaged to sleep if it works on files.
///
/// # Errors
/// As [`Recorder::new`]: if root or a requirement of recording is missing.
pub fn recorder(facts: &Facts, kernel: Option<&Kernel>) -> Result<Recorder, CrosscheckError> {
    let mut recorder = Recorder::new(facts.clone())?;
    if khugepaged_takes_files(facts, kernel) {
        recorder.send_khugepaged_to_sleep()?;
    }
    Ok(recorder)
}

pub(super) fn khugepaged_takes_files(facts: &Facts, kernel: Option<&Kernel>) -> bool {
    let takes_files =
        kernel.is_some_and(|kernel| kernel.rules.collapse.file == FileCollapse::LargeFolios);
    takes_files && matches!(facts.thp, Thp::Always | Thp::Madvise)
}

/// Turns an error into a row if it concerns only this workload.
fn unrecorded(mut row: Row, error: Error) -> Result<Row, Error> {
    match error {
        Error::Crosscheck(CrosscheckError::Probe { message, .. }) => {
            row.outcome = Outcome::Failed;
            row.reason = Some(message);
            Ok(row)
        }
        error => Err(error),
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

pub(super) fn repeat(workload: &Workload) -> Option<String> {
    let Workload { filesystem, window_kb, .. } = workload;
    let typed = workload.typed()?;
    Some(format!(
        "folio-lab crosscheck record -o here --fs {filesystem} --window {window_kb}K -- {typed}"
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
