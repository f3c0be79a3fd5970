//! Sweeps: many traces under many kernels on many machines, as one growing data set.
//!
//! ```text
//!   Sweep::open(dir, request, ..)  lock; done = the cells of the parts on disk
//!     Sweep::missing() -> Task ..  the rest, in tasks of one trace each
//!       Task::run -> TaskResult    here (local), or on any host that has the trace
//!     Sweep::add(task, result)     adds a whole part or nothing; many parts are merged
//!   Sweep::finish(ended)           the manifest
//! ```
//!
//! Reading order: [`task`] (a worker's job), `part`, `part_file`, `data_set` and `merge` (the
//! files), [`manifest`] (the requests), [`local`] (all tasks on this host), [`error`].
//!
//! Keeps track of which requested cells are done. Does not own the definition of a cell
//! ([`largefolio_sim::sweep`]) or its counts.
//!
//! Invariants:
//! - W1: a finished cell is never replayed again and never has two rows.
//! - W2: at any moment, even if the sweep is killed, the directory is a data set of complete parts.
//!   The same request continues from there.
//! - W3: a trace or cell that fails is recorded with the reason, and the others continue. A new
//!   request retries it.

mod data_set;
pub mod error;
pub mod local;
pub mod manifest;
mod merge;
mod part;
mod part_file;
mod plan;
pub mod task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use largefolio_sim::replay;
use largefolio_sim::sweep::CellId;

pub use error::{SweepError, TaskError};
pub use manifest::{FailedCell, Failure, Manifest, RunEnding};
pub use part_file::SetAside;
pub use task::{Task, TaskCell, TaskResult};

use data_set::DataSet;
use manifest::{ManifestState, SweepRun};
use part::Part;
use part_file::AddError;
use plan::Plan;

/// The default number of cells per task: enough to make decoding the trace a small part of the
/// work, and few enough that a lost task costs little.
pub const NR_CELLS_OF_A_TASK: usize = 16;

/// Returns whether the sweep must end; called often, by several threads.
pub type IsStopped<'a> = &'a (dyn Fn() -> bool + Sync);

pub const NEVER: IsStopped<'static> = &|| false;

/// Returns an error if the sweep must end. Called between steps that each leave the data set whole.
fn go_on(is_stopped: IsStopped<'_>) -> Result<(), SweepError> {
    if is_stopped() { Err(SweepError::Stopped) } else { Ok(()) }
}

#[derive(Clone, Debug)]
pub struct SweepRequest {
    pub command_line: Vec<String>,
    pub traces: Vec<PathBuf>,
    /// Local files of the traces that are named by a storage address.
    pub copies: BTreeMap<PathBuf, PathBuf>,
    pub cells: replay::ReplayRequest,
}

impl SweepRequest {
    fn place<'a>(&'a self, trace: &'a Path) -> &'a Path {
        self.copies.get(trace).map_or(trace, PathBuf::as_path)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub nr_asked: usize,
    pub nr_found: usize,
    pub nr_done: usize,
    pub nr_failed: usize,
}

/// An open sweep. Nobody else writes to its directory while it exists.
#[derive(Debug)]
pub struct Sweep {
    data: DataSet,
    manifest: Manifest,
    plan: Plan,
    /// As in the request.
    copies: BTreeMap<PathBuf, PathBuf>,
    nr_found: usize,
    nr_done: usize,
    failed: BTreeMap<CellId, (FailedCell, String, String)>,
    quarantined: Vec<SetAside>,
    is_manifest_gone: bool,
}

impl Sweep {
    /// Opens the data set in `dir` for `request` and creates the directory if it is missing. A
    /// trace that cannot be read fails its cells, not the sweep.
    ///
    /// # Errors
    /// If another sweep has the directory, if it is not a data set, or if a requested cell is
    /// impossible; [`SweepError::Stopped`].
    pub fn open(
        dir: &Path,
        request: &SweepRequest,
        is_stopped: IsStopped<'_>,
    ) -> Result<Self, SweepError> {
        plan::check(request, is_stopped)?;
        let (data, mut quarantined) = DataSet::open(dir, is_stopped)?;
        let (mut manifest, state) = Manifest::open(dir)?;
        let is_manifest_gone = state == ManifestState::Nothing && data.nr_parts() > 0;
        if let ManifestState::Damaged(damaged) = state {
            quarantined.push(damaged);
        }
        let plan = Plan::new(request, is_stopped)?;
        plan.keep_others(&mut manifest.failed);
        manifest.texts.extend(plan.texts());
        manifest.runs.push(SweepRun::new(request, plan.run_request(), &quarantined));
        let nr_found = plan.cells().filter(|cell| data.has(cell)).count();
        let (nr_done, failed, copies) = (0, BTreeMap::new(), request.copies.clone());
        let mut sweep = Self {
            data,
            manifest,
            plan,
            copies,
            nr_found,
            nr_done,
            failed,
            quarantined,
            is_manifest_gone,
        };
        sweep.write(RunEnding::Running)?;
        sweep.data.keep();
        Ok(sweep)
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        self.data.dir()
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            nr_asked: self.plan.nr_asked(),
            nr_found: self.nr_found,
            nr_done: self.nr_done,
            nr_failed: self.failed.len() + self.plan.nr_broken(),
        }
    }

    /// Damaged files; their rows are missing.
    #[must_use]
    pub fn set_aside(&self) -> &[SetAside] {
        &self.quarantined
    }

    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.is_manifest_gone.then(|| {
            let lost = manifest::LOST;
            format!("parts exist, but there is no {}: {lost}", manifest::MANIFEST)
        })
    }

    /// Returns tasks of at most `nr_cells_max` cells for everything that is not done. Includes
    /// cells that failed, but not cells of traces without a digest.
    #[must_use]
    pub fn missing(&self, nr_cells_max: usize) -> Vec<Task> {
        self.plan.tasks(nr_cells_max, &|cell| self.data.has(cell))
    }

    /// Adds the result of `task`, except rows of cells that are already done. If it is stopped, it
    /// leaves parts to be merged later.
    ///
    /// # Errors
    /// [`SweepError::NotOfTheTask`] if the rows do not belong to the task;
    /// [`SweepError::NotWritten`] if the disk is full.
    pub fn add(
        &mut self,
        task: &Task,
        result: TaskResult,
        is_stopped: IsStopped<'_>,
    ) -> Result<(), SweepError> {
        let refused = |why: String| Err(SweepError::NotOfTheTask(why));
        let part = match Part::read(result.part) {
            Ok(part) => part,
            Err(error) => return refused(error.to_string()),
        };
        let is_of_task = |id: &CellId| task.cells.iter().any(|cell| cell.id == *id);
        if !part.cells().iter().chain(result.failed.keys()).all(is_of_task) {
            return refused("it contains cells that are not in the task".to_owned());
        }
        if !part.is_of(&task.digest) {
            return refused("it belongs to a different trace".to_owned());
        }
        let nr_new = self.data.add(&part, is_stopped).map_err(|error| self.not_written(error))?;
        self.nr_done += nr_new;
        for cell in part.cells() {
            self.failed.remove(cell);
        }
        for cell in &task.cells {
            if let Some(error) = result.failed.get(&cell.id) {
                self.note_failed(task, cell, error);
            }
        }
        Ok(())
    }

    /// Adds the result of `task`. A result that does not belong to the task fails the task (W3):
    /// rows hold texts of the trace, which can make them too large to read.
    ///
    /// # Errors
    /// [`SweepError::NotWritten`] if the disk is full.
    pub fn take(
        &mut self,
        task: &Task,
        result: TaskResult,
        is_stopped: IsStopped<'_>,
    ) -> Result<(), SweepError> {
        match self.add(task, result, is_stopped) {
            Err(error @ SweepError::NotOfTheTask(_)) => {
                self.fail(task, &error.to_string());
                Ok(())
            }
            added => added,
        }
    }

    pub fn fail(&mut self, task: &Task, error: &str) {
        for cell in &task.cells {
            self.note_failed(task, cell, error);
        }
    }

    fn note_failed(&mut self, task: &Task, cell: &TaskCell, error: &str) {
        if !self.data.has(&cell.id) {
            let what = (task.failed(cell), task.trace.clone(), error.to_owned());
            self.failed.insert(cell.id.clone(), what);
        }
    }

    /// Returns the requested cells without a row. The manifest also lists failures of earlier
    /// sweeps.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        let mut failures = Vec::new();
        self.add_failures(&mut failures);
        failures
    }

    fn add_failures(&self, failures: &mut Vec<Failure>) {
        failures.extend_from_slice(self.plan.broken());
        manifest::note(failures, self.failed.values());
    }

    /// Writes the manifest and releases the directory. `Done` becomes [`RunEnding::Incomplete`] if
    /// cells are missing, and [`RunEnding::Interrupted`] if merging was stopped.
    ///
    /// # Errors
    /// If the manifest cannot be written. The parts stay.
    pub fn finish(
        mut self,
        ended: RunEnding,
        is_stopped: IsStopped<'_>,
    ) -> Result<Manifest, SweepError> {
        // Parts that an older folio left unmerged.
        self.data.merge(is_stopped).map_err(|error| self.not_written(error))?;
        let Counts { nr_asked, nr_found, nr_done, .. } = self.counts();
        let is_whole = nr_found + nr_done == nr_asked;
        self.write(match ended {
            RunEnding::Done if self.data.is_to_merge() => RunEnding::Interrupted,
            RunEnding::Done if !is_whole => RunEnding::Incomplete,
            ended => ended,
        })
    }

    fn write(&self, ended: RunEnding) -> Result<Manifest, SweepError> {
        let mut manifest = self.manifest.clone();
        (manifest.nr_cells, manifest.nr_parts) = (self.data.nr_cells(), self.data.nr_parts());
        self.add_failures(&mut manifest.failed);
        let counts = self.counts();
        if let Some(run) = manifest.runs.last_mut() {
            run.set(ended, counts);
        }
        manifest.write(self.data.dir())?;
        Ok(manifest)
    }

    fn not_written(&self, error: AddError) -> SweepError {
        match error {
            AddError::Parquet(error) => SweepError::Parquet(error),
            AddError::Io { path, source } => {
                let Counts { nr_asked, nr_found, nr_done, .. } = self.counts();
                let nr_done = nr_found + nr_done;
                SweepError::NotWritten { path, source, nr_done, nr_asked }
            }
        }
    }
}
