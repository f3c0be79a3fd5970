//! Sweeps: the data set for a driver, tasks for its workers.
//!
//! ```text
//!   driver  Sweep.open -> missing() -> Task.json() ..    .. add(task, part, failed) -> finish()
//!   worker                             Task(json).run(trace, threads) -> part, failed
//! ```
//!
//! Only the driver touches the directory. `finish` closes a `Sweep`; without it, the data set is
//! left as by a killed process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use largefolio_results::predict::sweep::local::{self, Callbacks};
use largefolio_results::predict::sweep::{
    self, Counts, IsStopped, RunEnding, SetAside, SweepError, SweepRequest, TaskResult,
};
use largefolio_sim::sweep::CellId;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::ThreadPoolBuilder;

use crate::arguments::PredictArguments;
use crate::background;
use crate::errors::{Failure, detached};
use crate::policy::Raised;

/// A part, and errors of cells without a row in it.
type Handed<'py> = (Bound<'py, PyBytes>, BTreeMap<String, String>);

/// Returns the BLAKE3 of a file, in hex.
#[pyfunction]
pub(crate) fn digest(py: Python<'_>, path: PathBuf) -> Result<String, Failure> {
    let digest = stoppable(py, move |is_stopped| {
        Ok(largefolio_trace::digest_until(&path, &mut || is_stopped())?)
    })?;
    digest.ok_or(Failure::Sweep(SweepError::Stopped))
}

#[pyclass(frozen, module = "largefolio._native")]
pub(crate) struct Task(sweep::Task);

#[pymethods]
impl Task {
    #[new]
    fn new(json: &str) -> Result<Self, Failure> {
        let task = serde_json::from_str(json);
        Ok(Self(task.map_err(|error| Failure::Argument(format!("not a task: {error}")))?))
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(&self.0).map_err(|error| Failure::Argument(error.to_string()))
    }

    #[getter]
    fn trace(&self) -> &str {
        &self.0.trace
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path()
    }

    #[getter]
    fn digest(&self) -> &str {
        &self.0.digest
    }

    #[getter]
    fn nr_cells(&self) -> usize {
        self.0.cells.len()
    }

    /// Replays the cells of the trace at `trace` on `threads` threads. Returns the part, and errors
    /// of cells without a row in it.
    fn run<'py>(
        &self,
        py: Python<'py>,
        trace: PathBuf,
        threads: usize,
    ) -> Result<Handed<'py>, Failure> {
        let result = detached(py, move || {
            background::run(
                |shared| {
                    let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
                    let mut on_progress = |nr_rows| shared.done(nr_rows);
                    Ok(pool.install(|| self.0.run(&trace, &mut on_progress))?)
                },
                &|_, _| Ok(()),
            )
        })?;
        let failed = result.failed.into_iter().map(|(id, error)| (id.to_string(), error));
        Ok((PyBytes::new(py, &result.part), failed.collect()))
    }
}

#[pyclass(frozen, module = "largefolio._native")]
pub(crate) struct Sweep {
    opened: Mutex<Option<sweep::Sweep>>,
    has_idle_seeds: bool,
    /// Notes on kernels that use another version's rules, or that no recording has tested.
    #[pyo3(get)]
    rules_notes: Vec<String>,
}

#[pymethods]
impl Sweep {
    #[staticmethod]
    fn open(
        py: Python<'_>,
        directory: PathBuf,
        traces: Vec<(PathBuf, PathBuf)>,
        arguments: &Bound<'_, PyAny>,
        command_line: Vec<String>,
    ) -> Result<Self, Failure> {
        let paths: Vec<PathBuf> = traces.iter().map(|(_, place)| place.clone()).collect();
        let arguments = arguments.extract::<PredictArguments<'_>>()?;
        let cells = arguments.request(py, &Raised::default(), &paths)?;
        let (has_idle_seeds, rules_notes) = (cells.has_idle_seeds(), cells.rules_notes());
        let (names, places): (Vec<_>, Vec<_>) = traces.into_iter().unzip();
        let copies = names.iter().cloned().zip(places).filter(|(name, place)| name != place);
        let copies = copies.collect();
        let request = SweepRequest { command_line, traces: names, copies, cells };
        let sweep = stoppable(py, move |is_stopped| {
            Ok(sweep::Sweep::open(&directory, &request, is_stopped)?)
        })?;
        Ok(Self { opened: Mutex::new(Some(sweep)), has_idle_seeds, rules_notes })
    }

    /// Whether some seeds must have the same result as the first.
    #[getter]
    fn has_idle_seeds(&self) -> bool {
        self.has_idle_seeds
    }

    /// Cells requested, found, done, failed.
    fn counts(&self) -> Result<(usize, usize, usize, usize), Failure> {
        self.with(|sweep| {
            let Counts { nr_asked, nr_found, nr_done, nr_failed } = sweep.counts();
            Ok((nr_asked, nr_found, nr_done, nr_failed))
        })
    }

    /// Requested cells without a row, as JSON.
    fn failures(&self) -> Result<String, Failure> {
        let failures = self.with(|sweep| Ok(sweep.failures()))?;
        serde_json::to_string(&failures).map_err(|error| Failure::Argument(error.to_string()))
    }

    /// Damaged files: the old name, the error, the new name, the consequence.
    fn set_aside(&self) -> Result<Vec<(String, String, String, &'static str)>, Failure> {
        self.with(|sweep| {
            let files = sweep.set_aside().iter();
            let renamed =
                |one: &SetAside| (one.file.clone(), one.why.clone(), one.now.clone(), one.lost());
            Ok(files.map(renamed).collect())
        })
    }

    /// Describes missing files other than the parts.
    fn note(&self) -> Result<Option<String>, Failure> {
        self.with(|sweep| Ok(sweep.note()))
    }

    fn missing(&self, cells_of_a_task: usize) -> Result<Vec<Task>, Failure> {
        self.with(|sweep| Ok(sweep.missing(cells_of_a_task).into_iter().map(Task).collect()))
    }

    /// Replays everything that is missing on this host and calls `progress` with the finished cells
    /// and all cells.
    fn run_here(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> Result<(), Failure> {
        let (nr_asked, ..) = self.counts()?;
        let report = move |py: Python<'_>, nr_over: u64| match &progress {
            Some(progress) => progress.call1(py, (nr_over, nr_asked)).map(drop),
            None => Ok(()),
        };
        detached(py, || {
            background::run(
                |shared| {
                    self.with(|sweep| {
                        let mut on_progress = |counts| {
                            let _ = shared.done(nr_over(counts));
                        };
                        let is_stopped = || shared.is_stopped();
                        let callbacks =
                            Callbacks { progress: &mut on_progress, is_stopped: &is_stopped };
                        Ok(local::run(sweep, callbacks).map(drop)?)
                    })
                },
                &report,
            )
        })?;
        let counts = self.with(|sweep| Ok(sweep.counts()))?;
        Ok(report(py, nr_over(counts))?)
    }

    fn add(
        &self,
        py: Python<'_>,
        task: &Task,
        part: Vec<u8>,
        failed: BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let failed = failed.into_iter().map(|(id, error)| Ok((CellId::try_from(id)?, error)));
        let failed = failed.collect::<Result<_, largefolio_sim::sweep::id::NoCellId>>();
        let failed = failed.map_err(|error| Failure::Argument(error.to_string()))?;
        let result = TaskResult { part, failed };
        stoppable(py, |is_stopped| self.with(|sweep| Ok(sweep.take(&task.0, result, is_stopped)?)))
    }

    /// Records that no cell of a task could be replayed.
    fn fail(&self, task: &Task, error: &str) -> Result<(), Failure> {
        self.with(|sweep| {
            sweep.fail(&task.0, error);
            Ok(())
        })
    }

    /// Writes the manifest, releases the directory and returns the manifest as JSON.
    fn finish(&self, py: Python<'_>, ended: &str) -> Result<String, Failure> {
        let ended = match ended {
            "done" => RunEnding::Done,
            "interrupted" => RunEnding::Interrupted,
            _ => RunEnding::Stopped,
        };
        let sweep = self.lock().take().ok_or_else(closed_error)?;
        let manifest = stoppable(py, |is_stopped| Ok(sweep.finish(ended, is_stopped)?))?;
        serde_json::to_string(&manifest).map_err(|error| Failure::Argument(error.to_string()))
    }
}

impl Sweep {
    fn lock(&self) -> MutexGuard<'_, Option<sweep::Sweep>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut sweep::Sweep) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        work(self.lock().as_mut().ok_or_else(closed_error)?)
    }
}

/// Runs work without progress that Ctrl-C can end.
fn stoppable<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(IsStopped<'_>) -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    detached(py, || background::run(|shared| work(&|| shared.is_stopped()), &|_, _| Ok(())))
}

fn closed_error() -> Failure {
    Failure::Argument("the sweep is finished".to_owned())
}

fn nr_over(counts: Counts) -> u64 {
    (counts.nr_found + counts.nr_done + counts.nr_failed) as u64
}
