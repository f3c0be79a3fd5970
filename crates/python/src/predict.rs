//! The replay, in this process and beside the interpreter ([`crate::beside`]).
//!
//! The pool belongs to the call: one for the whole process would be lost in a child made by fork.

use std::path::PathBuf;

use arrow_pyarrow::ToPyArrow as _;
use largefolio_report::{Exporter, Json, PredictResult, Settings, TraceInfo, table};
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, replay_until};
use largefolio_trace::{Meta, Reader, digest};
use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;

use crate::asked::Asked;
use crate::beside::{self, Shared};
use crate::errors::{Failure, detached};

/// The result of a replay.
#[pyclass(frozen, module = "largefolio._native")]
pub(crate) struct Prediction {
    report: PredictResult,
    has_idle_seeds: bool,
}

#[pymethods]
impl Prediction {
    /// The result as `folio predict --json` prints it, with an empty `command_line`.
    fn json(&self, py: Python<'_>) -> Result<String, Failure> {
        detached(py, || {
            let mut text = Vec::new();
            Json.export(&self.report, &mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        })
    }

    /// The result as one record batch, one row per cell.
    fn table<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let PredictResult { trace, settings, rows, .. } = &self.report;
        let batch = detached(py, || Ok(table::batch(trace, settings, rows)?))?;
        Ok(batch.to_pyarrow(py)?)
    }

    /// Whether some seeds would have given the same result as the first.
    #[getter]
    fn has_idle_seeds(&self) -> bool {
        self.has_idle_seeds
    }
}

/// Replays a trace; `progress` hears the finished rows and all rows.
#[pyfunction]
pub(crate) fn predict(
    py: Python<'_>,
    trace: PathBuf,
    asked: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
) -> Result<Prediction, Failure> {
    let request = asked.extract::<Asked<'_>>()?.request()?;
    let specs = request.specs()?;
    detached(py, || {
        let meta = Reader::open(&trace)?.meta().clone();
        request.check_trace(&meta)?;
        let job = Job { trace, specs: &specs, nr_rows: meta.nr_rows, progress };
        let (meta, rows) = job.run()?;
        let path = &job.trace;
        let plain = TraceInfo::new(&path.to_string_lossy(), &meta);
        let info = TraceInfo { digest: Some(digest(path)?), ..plain };
        let report = PredictResult::new(Vec::new(), info, Settings::new(&request), rows);
        Ok(Prediction { report, has_idle_seeds: request.has_idle_seeds() })
    })
}

type Replayed = Result<(Meta, Vec<Outcome>), Failure>;

/// A replay that is ready to run.
struct Job<'a> {
    trace: PathBuf,
    specs: &'a [CellSpec],
    nr_rows: u64,
    progress: Option<Py<PyAny>>,
}

impl Job<'_> {
    /// Runs it; called without the interpreter's lock.
    fn run(&self) -> Replayed {
        let replayed = beside::run(|shared| self.replay(shared), &|py, done| self.tell(py, done))?;
        Python::attach(|py| self.tell(py, self.nr_rows_of_passes()))?;
        Ok(replayed)
    }

    fn replay(&self, shared: &Shared) -> Replayed {
        let pool = ThreadPoolBuilder::new().build()?;
        let (mut before, mut last) = (0, 0);
        let mut hear = |nr_read: u64| {
            if nr_read < last {
                before += last;
            }
            last = nr_read;
            shared.done(before + nr_read)
        };
        Ok(pool.install(|| replay_until(&self.trace, self.specs, &mut hear))?)
    }

    /// Rows of all passes: a warm cache takes two.
    fn nr_rows_of_passes(&self) -> u64 {
        let is_warm = self.specs.iter().any(|spec| spec.cache == CacheState::Warm);
        self.nr_rows.saturating_mul(if is_warm { 2 } else { 1 })
    }

    fn tell(&self, py: Python<'_>, nr_done: u64) -> PyResult<()> {
        match &self.progress {
            Some(progress) => progress.call1(py, (nr_done, self.nr_rows_of_passes())).map(drop),
            None => Ok(()),
        }
    }
}
