//! Runs studies in the model, and finds their traces.

use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::study::{self, Finding, Folders, Measurements, Study, StudyError};
use largefolio_sim::replay::Budget;
use largefolio_trace::shown;

use super::table::StudyResult;
use crate::Error;
use largefolio_results::Remark;

#[derive(Debug)]
pub struct StudyRequest {
    /// Published tables, with the model cells to compare.
    pub studies: Vec<Study>,
    pub traces: PathBuf,
    pub command_line: Vec<String>,
}

/// Returns the first of `traces` in the working directory and `beside` that holds some of the
/// traces, or else the former.
#[must_use]
pub fn find_traces(studies: &[Study], beside: impl IntoIterator<Item = PathBuf>) -> PathBuf {
    let here = PathBuf::from("traces");
    let mut all = std::iter::once(here.clone()).chain(beside);
    let names = studies.iter().flat_map(Study::traces);
    let files: Vec<String> = names.map(|name| format!("{name}.folio")).collect();
    all.find(|path| files.iter().any(|file| path.join(file).is_file())).unwrap_or(here)
}

impl StudyRequest {
    /// Returns the studies called `names` and those in `files`; without either, all built-in ones.
    /// `budget` limits the work per trace.
    ///
    /// # Errors
    /// If no study has a name, or a file is not a study.
    pub fn studies(
        names: &[String],
        files: &[PathBuf],
        budget: Budget,
    ) -> Result<Vec<Study>, StudyError> {
        let mut studies = Vec::new();
        for name in names {
            studies.push(Study::named(name)?);
        }
        for path in files {
            studies.push(Study::from_path(path)?);
        }
        if studies.is_empty() {
            studies = study::names().map(Study::named).collect::<Result<_, _>>()?;
        }
        for study in &mut studies {
            study.set_budget(budget);
        }
        Ok(studies)
    }

    #[must_use]
    pub fn remarks(&self) -> Option<Remark> {
        let mut names: Vec<&str> = self.studies.iter().flat_map(Study::traces).collect();
        names.sort_unstable();
        names.dedup();
        let is_missing = |name: &&str| !self.traces.join(format!("{name}.folio")).exists();
        let missing: Vec<&str> = names.into_iter().filter(is_missing).collect();
        (!missing.is_empty()).then(|| {
            Remark::Warning(format!(
                "{} does not contain {}, so rows that need them stay empty. Give their directory \
                 with --traces DIR: share/largefolio/traces in an installation, traces in a \
                 checkout (`make traces` records them)",
                shown(&self.traces),
                missing.join(", ")
            ))
        })
    }

    /// Runs the cells of all studies on all threads of the current pool, and compares them.
    /// `progress` receives the trace and its rows so far, and may stop the run, which then returns
    /// `None`.
    ///
    /// # Errors
    /// If a trace cannot be replayed or generated.
    pub fn run(
        &self,
        measured: &Measurements,
        progress: &mut dyn FnMut(&str, u64) -> ControlFlow<()>,
    ) -> Result<Option<StudyResult>, Error> {
        let scratch =
            tempfile::tempdir().map_err(Error::system("a directory for generated traces"))?;
        let folders = Folders { traces: &self.traces, scratch: scratch.path() };
        let values = match study::run(&self.studies, folders, progress) {
            Err(StudyError::Stopped) => return Ok(None),
            values => values?,
        };
        let of = |study| Finding::new(study, &values, measured);
        let findings = self.studies.iter().map(of).collect();
        Ok(Some(StudyResult::new(self.command_line.clone(), findings)))
    }
}
