//! The replay, in this process but outside the interpreter ([`crate::beside`]).
//!
//! The pool belongs to the call: a child created by fork would lose a process-wide one.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_pyarrow::ToPyArrow as _;
use largefolio_results::Forms as _;
use largefolio_results::predict::{Goal, Options, PredictResult, Settings, TraceInfo, table};
use largefolio_sim::explain::{self, Why, WhyQuestion};
use largefolio_sim::replay::{CellSpec, Outcome, RowsDone, nr_passes, replay_until};
use largefolio_trace::{Meta, OpenTrace};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::ThreadPoolBuilder;

use crate::arguments::PredictArguments;
use crate::background::{self, Shared};
use crate::errors::{Failure, detached};
use crate::policy::Raised;

#[pyclass(frozen, module = "largefolio._native")]
pub(crate) struct Prediction {
    report: PredictResult,
    has_idle_seeds: bool,
}

#[pymethods]
impl Prediction {
    /// The result as `folio predict --json` prints it, with an empty `command_line`.
    fn json(&self, py: Python<'_>) -> Result<String, Failure> {
        detached(py, || Ok(self.report.json()?))
    }

    /// The result as `folio predict --csv` prints it.
    fn csv<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>, Failure> {
        let text = detached(py, || Ok(self.report.csv()?))?;
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    /// The result as one record batch, one row per cell.
    fn table<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let PredictResult { trace, settings, rows, .. } = &self.report;
        let batch = detached(py, || Ok(table::batch(trace, settings, rows)?))?;
        Ok(batch.to_pyarrow(py)?)
    }

    /// Notes on kernels that use another version's rules, or that no recording has tested.
    #[getter]
    fn rules_notes(&self) -> Vec<String> {
        self.report.settings.rules_notes.clone()
    }

    /// Whether some seeds must have the same result as the first.
    #[getter]
    fn has_idle_seeds(&self) -> bool {
        self.has_idle_seeds
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PredictOptions {
    /// The verdict's goal, with its rules; without one, no verdict is used.
    goal: Option<String>,
    /// Time of one run of the program, in nanoseconds.
    run_time_ns: Option<f64>,
    /// Whether to find the rules that make the difference between two kernels.
    explains: bool,
}

/// Replays a trace and calls `progress` with the finished rows and all rows.
#[pyfunction]
pub(crate) fn predict(
    py: Python<'_>,
    trace: PathBuf,
    arguments: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
    options: PredictOptions,
) -> Result<Prediction, Failure> {
    let PredictOptions { goal, run_time_ns, explains } = options;
    let goal = goal.as_deref().map(str::parse::<Goal>).transpose().map_err(Failure::Argument)?;
    let raised = Raised::default();
    let request = arguments.extract::<PredictArguments<'_>>()?.request(
        py,
        &raised,
        std::slice::from_ref(&trace),
    )?;
    let specs = request.specs()?;
    if explains {
        explain::check(&request)?;
    }
    let replayed = detached(py, || {
        let path = trace;
        let trace = OpenTrace::open(&path)?;
        request.check_trace(trace.meta())?;
        let job =
            Job { trace, specs: &specs, progress, raised: &raised, nr_before: AtomicU64::new(0) };
        let (meta, rows) = job.run()?;
        let why = explains.then(|| job.explain(&rows)).transpose()?;
        let plain = TraceInfo::new(&job.trace.path().to_string_lossy(), &meta);
        let info = TraceInfo { digest: Some(job.trace.digest()?), ..plain };
        let options =
            Options { goal: goal.unwrap_or_default(), run_time_ns, why, ..Options::default() };
        let settings = Settings::new(&request);
        let mut report = PredictResult::new(Vec::new(), info, settings, rows, options);
        if goal.is_some() {
            job.search(&mut report)?;
        }
        Ok(Prediction { report, has_idle_seeds: request.has_idle_seeds() })
    });
    replayed.map_err(|failure| raised.instead_of(failure))
}

type Replayed = Result<(Meta, Vec<Outcome>), Failure>;

struct Job<'a> {
    trace: OpenTrace,
    specs: &'a [CellSpec],
    progress: Option<Py<PyAny>>,
    raised: &'a Raised,
    nr_before: AtomicU64,
}

impl Job<'_> {
    /// Runs without the interpreter's lock.
    fn run(&self) -> Replayed {
        let nr_all = self.nr_rows_of_passes();
        let report = |py: Python<'_>, done| self.report(py, done, nr_all);
        let replayed = background::run(|shared| self.replay(shared), &report)?;
        Python::attach(|py| report(py, nr_all))?;
        self.nr_before.store(nr_all, Relaxed);
        Ok(replayed)
    }

    fn explain(&self, rows: &[Outcome]) -> Result<Vec<Why>, Failure> {
        let question = self.question(rows);
        self.more(|on_progress| Ok(question.answer(on_progress)?))
    }

    fn search(&self, report: &mut PredictResult) -> Result<(), Failure> {
        let question = self.question(&report.rows);
        let verdict = &mut report.verdict;
        self.more(move |on_progress| Ok(verdict.search(&question, on_progress)?))
    }

    fn question<'q>(&'q self, rows: &'q [Outcome]) -> WhyQuestion<'q> {
        WhyQuestion {
            trace: &self.trace,
            nr_rows: self.trace.meta().nr_rows,
            specs: self.specs,
            rows,
            results: &[],
        }
    }

    /// Runs work that replays more cells and adds their rows.
    fn more<T: Send>(
        &self,
        work: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let (before, more) = (self.nr_before.load(Relaxed), AtomicU64::new(0));
        let all = &more;
        let raised = self.raised;
        let work = move |shared: &Shared| {
            raised.until(shared.stop());
            let pool = ThreadPoolBuilder::new().build()?;
            let mut on_progress = |nr_done: u64, nr_all: u64| {
                all.store(nr_all, Relaxed);
                shared.done(before.saturating_add(nr_done))
            };
            pool.install(|| work(&mut on_progress))
        };
        let result = background::run(work, &|py, done| {
            let nr_all = before.saturating_add(more.load(Relaxed));
            self.report(py, done.max(before), nr_all)
        })?;
        self.nr_before.store(before.saturating_add(more.load(Relaxed)), Relaxed);
        Ok(result)
    }

    fn replay(&self, shared: &Shared) -> Replayed {
        self.raised.until(shared.stop());
        let pool = ThreadPoolBuilder::new().build()?;
        let mut done = RowsDone::default();
        let mut on_progress = |nr_read: u64| shared.done(done.observe(nr_read));
        Ok(pool.install(|| replay_until(&self.trace, self.specs, &mut on_progress))?)
    }

    /// Returns the rows of all passes: a warm cache takes two.
    fn nr_rows_of_passes(&self) -> u64 {
        self.trace.meta().nr_rows.saturating_mul(nr_passes(self.specs))
    }

    fn report(&self, py: Python<'_>, nr_done: u64, nr_all: u64) -> PyResult<()> {
        match &self.progress {
            Some(progress) => progress.call1(py, (nr_done, nr_all)).map(drop),
            None => Ok(()),
        }
    }
}
