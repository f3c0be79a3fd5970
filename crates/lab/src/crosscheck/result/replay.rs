//! Recordings made earlier or elsewhere.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::crosscheck::files::FileSteps;
use crate::crosscheck::{Recording, Verdict, read_all};
use largefolio_sim::kernel::Kernel;
use largefolio_trace::shown;
use rayon::prelude::*;

use super::rows::{CrosscheckResult, CrosscheckRow};
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
            read_all(path, &mut |recording| {
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

    fn one(&self, recording: &Recording<FileSteps>) -> Result<Verdict, Error> {
        let kernel = self.kernel.as_ref();
        let kernel = kernel.map(|kernel| with_page(kernel, recording.header.page_bytes));
        Ok(recording.check(kernel.transpose()?.as_deref())?)
    }

    fn replay(
        &self,
        batch: &mut Vec<Recording<FileSteps>>,
        result: &mut CrosscheckResult,
    ) -> Result<(), Error> {
        let verdicts: Vec<Verdict> = batch
            .par_iter()
            .map(|one| self.one(one).map_err(|error| Error::about(&one.name, error)))
            .collect::<Result<_, _>>()?;
        for (recording, verdict) in batch.drain(..).zip(verdicts) {
            result.rows.push(row_of(&recording, verdict));
        }
        Ok(())
    }
}

fn with_page(kernel: &Kernel, page_bytes: u64) -> Result<Cow<'_, Kernel>, Error> {
    if kernel.is_page_given || kernel.rules.page.bytes() == page_bytes {
        return Ok(Cow::Borrowed(kernel));
    }
    Ok(Cow::Owned(kernel.edited(&format!("page={}K", page_bytes >> 10))?))
}

fn row_of(recording: &Recording<FileSteps>, verdict: Verdict) -> CrosscheckRow {
    let header = &recording.header;
    let is_named = !header.variant.is_empty() && header.variant != "-";
    let mut row = CrosscheckRow {
        name: recording.name.clone(),
        variant: if is_named { header.variant.clone() } else { header.release.clone() },
        filesystem: header.filesystem.clone(),
        window_kb: recording.window_kb(),
        ..CrosscheckRow::default()
    };
    row.take(verdict);
    row
}
