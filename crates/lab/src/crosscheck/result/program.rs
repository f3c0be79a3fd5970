//! A real program with all its files, recorded now.

use std::path::PathBuf;

use crate::crosscheck::Recording;
use crate::crosscheck::files::FileSteps;
use crate::crosscheck::record::{
    CrosscheckError, Facts, FreeMemory, ProgramPlan, ProgramRecorder, ProgramRecording, Settings,
};
use largefolio_sim::kernel::Kernel;

use super::keep::keep_text;
use super::live::khugepaged_takes_files;
use super::rows::{CrosscheckOutcome, CrosscheckResult, CrosscheckRow};
use crate::Error;
use largefolio_results::Remark;

pub struct ProgramCheck<'a> {
    pub facts: &'a Facts,
    /// The settings before the first recording, while khugepaged sleeps.
    pub settings: &'a Settings,
    pub memory: &'a FreeMemory,
    /// Rules; by default the recorded kernel's.
    pub kernel: Option<&'a Kernel>,
    pub keep: Option<&'a PathBuf>,
}

/// Creates a recorder, and puts khugepaged to sleep if it works on files: it would unmap the
/// program's text to examine it, and the program would fault on it again. `as_root` is the command
/// line to suggest without root.
///
/// # Errors
/// As [`ProgramRecorder::new`]: if root or a requirement of recording is missing.
pub fn program_recorder(facts: &Facts, as_root: &str) -> Result<ProgramRecorder, CrosscheckError> {
    let mut recorder = ProgramRecorder::new(facts.clone(), as_root)?;
    let running = Kernel::rules_of_release(&facts.release, facts.page_bytes).ok();
    if khugepaged_takes_files(facts, running.as_ref()) {
        recorder.send_khugepaged_to_sleep()?;
    }
    Ok(recorder)
}

impl ProgramCheck<'_> {
    #[must_use]
    pub fn result(&self, command_line: Vec<String>) -> CrosscheckResult {
        let mut result = CrosscheckResult::new(&self.facts.release, command_line);
        result.head.keep_in(self.keep.map(PathBuf::as_path));
        result
    }

    /// Replays one recording and adds its row. Returns a remark about the program, if any.
    ///
    /// # Errors
    /// If the recording cannot be kept, parsed or replayed.
    pub fn add(
        &self,
        plan: &ProgramPlan,
        recorded: &ProgramRecording,
        result: &mut CrosscheckResult,
    ) -> Result<Option<Remark>, Error> {
        let name = plan.command.first().map(PathBuf::from).unwrap_or_default();
        let program = name.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}_ra{}_program_{program}", plan.filesystem, plan.window_kb);
        if let Some(keep) = self.keep {
            keep_text(keep, &name, &recorded.text)?;
        }
        let mut row = CrosscheckRow {
            name,
            variant: self.facts.variant(),
            filesystem: plan.filesystem.name().to_owned(),
            window_kb: plan.window_kb,
            ..CrosscheckRow::default()
        };
        let remark = (!recorded.status.success())
            .then(|| Remark::Warning(format!("{program} ended with {}", recorded.status)));
        let recording = Recording::<FileSteps>::parse(&row.name, &recorded.text)?;
        row.take(recording.check(self.kernel)?);
        row.unless_changed(self.settings);
        row.unless_short(self.memory, self.facts.page_bytes);
        if recorded.nr_removed > 0 && row.outcome == CrosscheckOutcome::Different {
            row.differences.clear();
            row.outcome = CrosscheckOutcome::Failed;
            row.reason = Some(format!(
                "{} folios were reclaimed while the program ran; free some memory or stop DAMON, \
                 and try again",
                recorded.nr_removed
            ));
        }
        result.rows.push(row);
        Ok(remark)
    }
}
