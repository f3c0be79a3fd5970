//! Results of folio's commands in this process: `maps`, `elf`, `study`, `crosscheck replay`.
//!
//! Each call runs the command's own code (`largefolio_results`) with the equivalent command line,
//! which the result contains. `record`, `study --live` and `crosscheck` on the running kernel are
//! not here: they run programs, watch signals, fork keepers of settings and mount filesystems, so
//! they need their own process.

use std::path::{Path, PathBuf};

use largefolio_report::ExportError;
use largefolio_results::crosscheck::ReplayRequest;
use largefolio_results::maps::{ElfResult, MapsRequest, MapsResult, Selection, elf_kernel};
use largefolio_results::study::{self, StudyRequest};
use largefolio_results::{Forms as _, Remark};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::replay::{Budget, ReplayError};
use largefolio_sim::study::Measurements;
use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;

use crate::asked::of_kernel;
use crate::beside::{self, Shared};
use crate::errors::{Failure, detached};

/// A result as printed by `folio --json`, and its remarks.
#[pyclass(frozen, get_all, module = "largefolio._native")]
pub(crate) struct Found {
    json: String,
    /// The result may differ from the intended one.
    warnings: Vec<String>,
    /// Named things that the result lacks.
    missing: Vec<String>,
}

impl Found {
    fn new(json: Result<String, ExportError>, remarks: Vec<Remark>) -> Result<Self, Failure> {
        let (mut warnings, mut missing) = (Vec::new(), Vec::new());
        for remark in remarks {
            match remark {
                Remark::Warning(text) => warnings.push(text),
                Remark::Missing(text) => missing.push(text),
            }
        }
        Ok(Self { json: json?, warnings, missing })
    }
}

/// Folio sizes of the processes `pids` (of every process with `all`, of the members of `cgroup`)
/// and in the page cache of `files` and of all files below `page_cache`.
#[pyfunction]
pub(crate) fn maps(
    py: Python<'_>,
    asked: &Bound<'_, PyAny>,
    command_line: Vec<String>,
) -> Result<Found, Failure> {
    let asked: AskedMaps = asked.extract()?;
    let selection = match (asked.all, asked.cgroup) {
        (true, _) => Selection::All,
        (false, Some(dir)) => Selection::Cgroup(dir),
        (false, None) => Selection::Processes(asked.pids),
    };
    let (files, page_cache) = (asked.files, asked.page_cache.into_iter().collect());
    let request = MapsRequest { selection, files, page_cache, nr_judged: usize::MAX, command_line };
    let fail = |error| Failure::Found { class: "MapsError", error: Box::new(error) };
    request.check().map_err(fail)?;
    on_all_processors(py, |_| {
        let look = request.look().map_err(fail)?;
        let json = MapsResult::of(&look, &request.command_line).json();
        Found::new(json, request.remarks(&look))
    })
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct AskedMaps {
    pids: Vec<u32>,
    all: bool,
    cgroup: Option<PathBuf>,
    files: Vec<PathBuf>,
    page_cache: Option<PathBuf>,
}

/// The folio sizes that could map the segments of the programs `paths` under the rules of `kernel`.
#[pyfunction]
pub(crate) fn elf(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    kernel: Option<&str>,
    command_line: Vec<String>,
) -> Result<Found, Failure> {
    let kernel = elf_kernel(kernel).map_err(of_kernel)?;
    on_all_processors(py, move |_| {
        let result = ElfResult::of(&kernel, &paths, command_line);
        let of_rules = Remark::of_rules(kernel.note.as_deref());
        let remarks = of_rules.into_iter().chain(result.remarks().iter().cloned());
        Found::new(result.json(), remarks.collect())
    })
}

/// Published tables compared with the model's counts and estimates. `traces` is the folder of
/// recorded traces; by default, it is searched for here and next to the command `folio`.
#[pyfunction]
#[pyo3(name = "study")]
pub(crate) fn study_(
    py: Python<'_>,
    asked: &Bound<'_, PyAny>,
    command_line: Vec<String>,
) -> Result<Found, Failure> {
    let asked: AskedStudy = asked.extract()?;
    let fail = |error| Failure::Found { class: "StudyError", error: Box::new(error) };
    let studies = StudyRequest::studies(&asked.names, &asked.files, Budget::default());
    let studies = studies.map_err(|error| fail(error.into()))?;
    let beside = || study::beside(Path::new(&asked.folio), "traces");
    let traces = asked.traces.unwrap_or_else(|| study::find_traces(&studies, beside()));
    let request = StudyRequest { studies, traces, command_line };
    on_all_processors(py, |shared| {
        let result = request.run(&Measurements::new(), &mut |_, nr_rows| shared.done(nr_rows));
        let result = result.map_err(fail)?.ok_or(ReplayError::Stopped)?;
        let missing = request.remarks().into_iter();
        Found::new(result.json(), missing.chain(result.surprises()).collect())
    })
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct AskedStudy {
    names: Vec<String>,
    files: Vec<PathBuf>,
    traces: Option<PathBuf>,
    folio: String,
}

/// Replays recordings of kernels in the model and compares, under the rules of `kernel` or of each
/// recorded kernel.
#[pyfunction]
pub(crate) fn replay(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    kernel: Option<&str>,
    command_line: Vec<String>,
) -> Result<Found, Failure> {
    let kernel = kernel.map(Kernel::parse).transpose()?.map(Kernel::without_policy).transpose()?;
    let request = ReplayRequest { paths, kernel, command_line };
    let fail = |error| Failure::Found { class: "RecordingError", error: Box::new(error) };
    request.check().map_err(fail)?;
    on_all_processors(py, |shared| {
        let result = request.run(&mut |nr| shared.done(nr as u64)).map_err(fail)?;
        let result = result.ok_or(ReplayError::Stopped)?;
        Found::new(result.json(), result.remarks())
    })
}

/// Runs `work` outside the interpreter, in its own pool: a child created by fork would lose a
/// process-wide one.
fn on_all_processors<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Shared) -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    detached(py, || {
        beside::run(|shared| ThreadPoolBuilder::new().build()?.install(|| work(shared)), &|_, _| {
            Ok(())
        })
    })
}
