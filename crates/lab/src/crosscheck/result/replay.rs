//! Recordings made earlier or elsewhere.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::crosscheck::clears::Clears;
use crate::crosscheck::files::FileSteps;
use crate::crosscheck::processes::{ProgramRun, Programs};
use crate::crosscheck::recording::RecordingHeader;
use crate::crosscheck::{AnyRecording, Recording, Verdict, read_any};
use largefolio_sim::kernel::Kernel;
use largefolio_trace::shown;
use rayon::prelude::*;

use super::rows::{CrosscheckOutcome, CrosscheckResult, CrosscheckRow};
use crate::Error;

/// Recordings that are replayed together; this bounds the memory.
const NR_BATCH: usize = 256;

#[derive(Clone, Debug)]
pub struct ReplayRequest {
    /// Recordings (`*.txt`), archives of them (`*.tar.xz`), or folders of either.
    pub paths: Vec<PathBuf>,
    /// Rules for all recordings; by default, each recording's own kernel's.
    pub kernel: Option<Kernel>,
    pub command_line: Vec<String>,
}

impl ReplayRequest {
    /// Checks that the paths exist.
    ///
    /// # Errors
    /// The first missing path.
    pub fn check(&self) -> Result<(), Error> {
        for path in &self.paths {
            path.metadata().map_err(Error::system(shown(path).to_string()))?;
        }
        Ok(())
    }

    /// Replays the recordings on all threads of the current pool. `progress` receives the number
    /// done and may stop the replay, which then returns `None`.
    ///
    /// # Errors
    /// A recording that cannot be read or replayed under these rules, with its name.
    pub fn run(
        &self,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Option<CrosscheckResult>, Error> {
        let mut result = CrosscheckResult::new("", self.command_line.clone());
        let mut batch = Vec::new();
        let mut is_stopped = false;
        for path in &self.paths {
            let mut failed = None;
            read_any(path, &mut |recording| {
                if is_stopped || failed.is_some() {
                    return;
                }
                batch.push(recording);
                if batch.len() == NR_BATCH {
                    failed = self.replay(&mut batch, &mut result).err();
                    is_stopped = progress(result.rows.len()).is_break();
                }
            })?;
            failed.map_or(Ok(()), Err)?;
            if is_stopped {
                return Ok(None);
            }
        }
        self.replay(&mut batch, &mut result)?;
        Ok(Some(result))
    }

    /// Returns a row for a recording of files, or one per program.
    fn one(&self, recording: &AnyRecording) -> Result<Vec<CrosscheckRow>, Error> {
        match recording {
            AnyRecording::Files(one) => {
                let verdict = one.check(self.rules(&one.header)?.as_deref())?;
                Ok(vec![row_of(one, verdict)])
            }
            AnyRecording::Processes(one) => {
                let verdicts = one.check(self.rules(&one.header)?.as_deref())?;
                let rows = one.body.runs.iter().zip(verdicts);
                Ok(rows.map(|(run, verdict)| row_of_program(one, run, verdict)).collect())
            }
            AnyRecording::Clears(one) => {
                let verdict = one.check(self.rules(&one.header)?.as_deref())?;
                Ok(vec![row_of_clears(one, verdict)])
            }
        }
    }

    fn rules(&self, header: &RecordingHeader) -> Result<Option<Cow<'_, Kernel>>, Error> {
        let kernel = self.kernel.as_ref();
        kernel.map(|kernel| with_page(kernel, header.page_bytes)).transpose()
    }

    fn replay(
        &self,
        batch: &mut Vec<AnyRecording>,
        result: &mut CrosscheckResult,
    ) -> Result<(), Error> {
        let rows: Vec<Vec<CrosscheckRow>> = batch
            .par_iter()
            .map(|one| self.one(one).map_err(|error| Error::about(name_of(one), error)))
            .collect::<Result<_, _>>()?;
        batch.clear();
        result.rows.extend(rows.into_iter().flatten());
        Ok(())
    }
}

fn name_of(recording: &AnyRecording) -> &str {
    match recording {
        AnyRecording::Files(one) => &one.name,
        AnyRecording::Processes(one) => &one.name,
        AnyRecording::Clears(one) => &one.name,
    }
}

fn with_page(kernel: &Kernel, page_bytes: u64) -> Result<Cow<'_, Kernel>, Error> {
    if kernel.is_page_given || kernel.rules.page.bytes() == page_bytes {
        return Ok(Cow::Borrowed(kernel));
    }
    Ok(Cow::Owned(kernel.edited(&format!("page={}K", page_bytes >> 10))?))
}

fn row_of(recording: &Recording<FileSteps>, verdict: Verdict) -> CrosscheckRow {
    let name = recording.name.clone();
    let mut row =
        CrosscheckRow { window_kb: recording.window_kb(), ..row_named(name, &recording.header) };
    row.take(verdict);
    row
}

/// A recording that does not end is not judged.
fn row_of_clears(recording: &Recording<Clears>, verdict: Verdict) -> CrosscheckRow {
    let mut row = row_named(recording.name.clone(), &recording.header);
    row.take(verdict);
    if !recording.body.is_complete {
        let reason = "the recorder did not end".to_owned();
        (row.outcome, row.reason) = (CrosscheckOutcome::Failed, Some(reason));
        row.differences.clear();
    }
    row
}

/// A program that did not end, or in which the kernel moved pages on its own, is not judged.
fn row_of_program(
    recording: &Recording<Programs>,
    run: &ProgramRun,
    verdict: Verdict,
) -> CrosscheckRow {
    let name = format!("{}: program {}", recording.name, run.program.seed);
    let mut row = row_named(name, &recording.header);
    row.take(verdict);
    let not_judged = if !run.is_complete {
        Some((CrosscheckOutcome::Failed, "the program did not end".to_owned()))
    } else if row.outcome == CrosscheckOutcome::Different && !run.disturbances().is_empty() {
        let events = run.disturbances().join(", ");
        Some((CrosscheckOutcome::Skipped, format!("the kernel moved pages on its own: {events}")))
    } else {
        None
    };
    if let Some((outcome, reason)) = not_judged {
        (row.outcome, row.reason) = (outcome, Some(reason));
        row.differences.clear();
    }
    row
}

fn row_named(name: String, header: &RecordingHeader) -> CrosscheckRow {
    let is_named = !header.variant.is_empty() && header.variant != "-";
    CrosscheckRow {
        name,
        variant: if is_named { header.variant.clone() } else { header.release.clone() },
        filesystem: header.filesystem.clone(),
        ..CrosscheckRow::default()
    }
}
