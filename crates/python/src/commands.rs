//! Results of folio's commands in this process: `maps`, `elf`.
//!
//! Each call runs the command's own code (`largefolio_results`) with the equivalent command line,
//! which the result contains. `record` is not here: it runs programs and watches signals, so it
//! needs its own process.

use std::path::PathBuf;

use largefolio_results::ExportError;
use largefolio_results::maps::{ElfResult, MapsRequest, MapsResult, Selection, elf_kernel};
use largefolio_results::{Forms as _, Remark};
use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;

use crate::arguments::kernel_failure;
use crate::background;
use crate::errors::{Failure, detached};

/// A result as printed by `folio --json`, and its remarks.
#[pyclass(frozen, get_all, module = "largefolio._native")]
pub(crate) struct CommandResult {
    json: String,
    /// The result may differ from the intended one.
    warnings: Vec<String>,
    /// Named things that the result lacks.
    missing: Vec<String>,
}

impl CommandResult {
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
    arguments: &Bound<'_, PyAny>,
    command_line: Vec<String>,
) -> Result<CommandResult, Failure> {
    let arguments: MapsArguments = arguments.extract()?;
    let selection = match (arguments.all, arguments.cgroup) {
        (true, _) => Selection::All,
        (false, Some(dir)) => Selection::Cgroup(dir),
        (false, None) => Selection::Processes(arguments.pids),
    };
    let (files, page_cache) = (arguments.files, arguments.page_cache.into_iter().collect());
    let request = MapsRequest { selection, files, page_cache, nr_judged: usize::MAX, command_line };
    let fail = |error| Failure::Command { class: "MapsError", error: Box::new(error) };
    request.check().map_err(fail)?;
    on_all_processors(py, || {
        let reading = request.take_reading().map_err(fail)?;
        let json = MapsResult::of(&reading, &request.command_line).json();
        CommandResult::new(json, request.remarks(&reading))
    })
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct MapsArguments {
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
) -> Result<CommandResult, Failure> {
    let kernel = elf_kernel(kernel).map_err(kernel_failure)?;
    on_all_processors(py, move || {
        let result = ElfResult::of(&kernel, &paths, command_line);
        let rules_notes = Remark::of_rules(kernel.note.as_deref());
        let remarks = rules_notes.into_iter().chain(result.remarks().iter().cloned());
        CommandResult::new(result.json(), remarks.collect())
    })
}

/// Runs `work` outside the interpreter, in its own pool: a child created by fork would lose a
/// process-wide one.
fn on_all_processors<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    detached(py, || {
        background::run(|_| ThreadPoolBuilder::new().build()?.install(work), &|_, _| Ok(()))
    })
}
