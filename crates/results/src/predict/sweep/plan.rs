//! Determines which cells a request names, and the tasks for the missing cells.
//!
//! Invariants:
//! - P1: no cell is planned twice: the identities are the same if a kernel is named twice or a
//!   trace is in two places.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use largefolio_sim::replay::{Annotation, Budget, Linked, RequestError, batches};
use largefolio_sim::sweep::{CellId, Named, RecipeError, Setting, Stamp};
use largefolio_trace::shown::spelled;
use largefolio_trace::{OpenTrace, TraceError};

use super::error::SweepError;
use super::manifest::{Failure, RequestedTrace, RunRequest};
use super::task::{Task, TaskCell};
use super::{IsStopped, SweepRequest, go_on};

/// Maximum number of cells per trace: a million is weeks of replay, and more is a mistake.
const NR_CELLS_MAX: usize = 1 << 20;
/// Maximum number of cells of all traces: each takes half a kilobyte in the plan.
const NR_CELLS_OF_ALL_MAX: usize = 1 << 22;

#[derive(Debug)]
struct Text {
    named: Arc<Named>,
    stamp: Stamp,
}

#[derive(Debug)]
struct OfTrace {
    path: String,
    bytes: Option<Vec<u8>>,
    digest: String,
    /// Their `kernel` and `machine` are indexes into the plan's lists.
    cells: Vec<TaskCell>,
}

#[derive(Debug)]
pub(super) struct Plan {
    kernels: Vec<Text>,
    machines: Vec<Text>,
    traces: Vec<OfTrace>,
    named: Vec<RequestedTrace>,
    planned: BTreeSet<CellId>,
    broken: Vec<Failure>,
    first: Setting,
    budget: Budget,
    /// Physical memory sizes in bytes, without duplicates.
    memory_bytes: Vec<u64>,
    /// Seeds that make a difference, without duplicates.
    seeds: Vec<u64>,
    linked: Vec<Vec<String>>,
}

pub(super) fn check(request: &SweepRequest, is_stopped: IsStopped<'_>) -> Result<(), SweepError> {
    request.cells.check(NR_CELLS_MAX)?;
    check_number(request.traces.len(), request.cells.nr_cells())?;
    // Also refuses kernels and machines that cannot be written down.
    for kernel in request.cells.kernels() {
        Named::kernel(kernel).map_err(RecipeError::from)?;
    }
    check_names(request, is_stopped)
}

fn check_number(nr_traces: usize, nr_cells: usize) -> Result<(), SweepError> {
    let limit = NR_CELLS_OF_ALL_MAX;
    if nr_traces.saturating_mul(nr_cells) > limit {
        return Err(SweepError::TooManyCells { nr_traces, nr_cells, limit });
    }
    Ok(())
}

impl Plan {
    pub(super) fn new(
        request: &SweepRequest,
        is_stopped: IsStopped<'_>,
    ) -> Result<Self, SweepError> {
        let kernels = request.cells.kernels().into_iter().map(|kernel| Ok(Named::kernel(kernel)?));
        let machines =
            request.cells.machines().into_iter().map(|machine| Ok(Named::machine(machine)?));
        let Some(first) = request.cells.first() else {
            return Err(RequestError::Nothing("kernel on a machine").into());
        };
        let mut plan = Self {
            kernels: kernels.map(text).collect::<Result<_, _>>()?,
            machines: machines.map(text).collect::<Result<_, _>>()?,
            traces: Vec::new(),
            named: Vec::new(),
            planned: BTreeSet::new(),
            broken: Vec::new(),
            first: Setting::of(&first),
            budget: first.budget,
            memory_bytes: request.cells.memory(),
            seeds: request.cells.seeds(),
            linked: request.cells.ways_to_link().iter().map(|way| texts(way)).collect(),
        };
        for path in &request.traces {
            plan.add_trace(path, request.place(path), is_stopped)?;
        }
        Ok(plan)
    }

    fn add_trace(
        &mut self,
        path: &Path,
        place: &Path,
        is_stopped: IsStopped<'_>,
    ) -> Result<(), SweepError> {
        go_on(is_stopped)?;
        let name = spelled(path);
        let bytes = path.as_os_str().as_bytes();
        let bytes = path.to_str().is_none().then(|| bytes.to_vec());
        // A file that is not a trace can have any length, and so its digest can take long.
        let digest = |trace: OpenTrace| trace.digest_until(&mut || is_stopped());
        let trace_digest = match OpenTrace::open(place).and_then(digest) {
            Ok(digest) => Ok(digest.ok_or(SweepError::Stopped)?),
            Err(error) => Err(error),
        };
        self.named.push(RequestedTrace {
            path: name.clone(),
            digest: trace_digest.as_ref().ok().cloned(),
        });
        match trace_digest {
            Ok(digest) => {
                let mut cells = self.cells_of(&digest);
                cells.retain(|cell| self.planned.insert(cell.id.clone()));
                self.traces.push(OfTrace { path: name, bytes, digest, cells });
            }
            Err(error) => self.add_broken(name, &error),
        }
        Ok(())
    }

    fn add_broken(&mut self, trace: String, error: &TraceError) {
        let nr_cells = self.settings().len() * self.kernels.len() * self.machines.len();
        self.broken.push(Failure::of_trace(trace, nr_cells, error.to_string()));
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for linked in &self.linked {
            let of_link = Setting { linked: linked.clone(), ..self.first.clone() };
            for &memory_bytes in &self.memory_bytes {
                let of_seed = |&seed| Setting { memory_bytes, seed, ..of_link.clone() };
                settings.extend(self.seeds.iter().map(of_seed));
            }
        }
        settings
    }

    fn cells_of(&self, digest: &str) -> Vec<TaskCell> {
        let settings = self.settings();
        let mut cells = Vec::new();
        for (kernel, of_kernel) in self.kernels.iter().enumerate() {
            for (machine, of_machine) in self.machines.iter().enumerate() {
                cells.extend(settings.iter().map(|setting| TaskCell {
                    id: CellId::of_stamps(digest, &of_kernel.stamp, &of_machine.stamp, setting),
                    kernel,
                    machine,
                    setting: setting.clone(),
                }));
            }
        }
        cells
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = &CellId> {
        self.traces.iter().flat_map(|trace| trace.cells.iter().map(|cell| &cell.id))
    }

    pub(super) fn nr_asked(&self) -> usize {
        self.cells().count() + self.nr_broken()
    }

    pub(super) fn nr_broken(&self) -> usize {
        self.broken.iter().map(|failure| failure.nr_cells).sum()
    }

    pub(super) fn broken(&self) -> &[Failure] {
        &self.broken
    }

    pub(super) fn keep_others(&self, failures: &mut Vec<Failure>) {
        let named: BTreeSet<&str> = self.named.iter().map(|trace| trace.path.as_str()).collect();
        failures.retain_mut(|failure| {
            if failure.is_of_trace() {
                return !named.contains(failure.trace.as_str());
            }
            failure.keep_others(&|cell| self.planned.contains(cell))
        });
    }

    pub(super) fn texts(&self) -> BTreeMap<String, String> {
        let texts = self.kernels.iter().chain(&self.machines);
        texts.map(|text| (text.stamp.text.clone(), text.named.toml.clone())).collect()
    }

    pub(super) fn run_request(&self) -> RunRequest {
        let stamps = |texts: &[Text]| texts.iter().map(|text| text.stamp.clone()).collect();
        RunRequest {
            traces: self.named.clone(),
            kernels: stamps(&self.kernels),
            machines: stamps(&self.machines),
            memory_bytes: self.memory_bytes.clone(),
            seeds: self.seeds.clone(),
            setting: self.first.clone(),
        }
    }

    pub(super) fn tasks(
        &self,
        nr_cells_max: usize,
        is_done: &dyn Fn(&CellId) -> bool,
    ) -> Vec<Task> {
        let mut tasks = Vec::new();
        for trace in &self.traces {
            let open = trace.cells.iter().filter(|cell| !is_done(&cell.id));
            let batches = batches(open, nr_cells_max, |cell| cell.setting.memory_bytes);
            tasks.extend(batches.iter().map(|cells| self.task(trace, cells)));
        }
        tasks
    }

    /// Creates a task for `cells` with only the kernels and machines that they use.
    fn task(&self, trace: &OfTrace, cells: &[&TaskCell]) -> Task {
        let mut task = Task {
            trace: trace.path.clone(),
            trace_bytes: trace.bytes.clone(),
            digest: trace.digest.clone(),
            kernels: Vec::new(),
            machines: Vec::new(),
            cells: Vec::new(),
            budget: self.budget,
        };
        for cell in cells {
            let kernel = place(&mut task.kernels, &self.kernels[cell.kernel].named);
            let machine = place(&mut task.machines, &self.machines[cell.machine].named);
            task.cells.push(TaskCell { kernel, machine, ..(*cell).clone() });
        }
        task
    }
}

fn place(among: &mut Vec<Arc<Named>>, named: &Arc<Named>) -> usize {
    among.iter().position(|known| Arc::ptr_eq(known, named)).unwrap_or_else(|| {
        among.push(Arc::clone(named));
        among.len() - 1
    })
}

fn text(named: Result<Named, RecipeError>) -> Result<Text, RecipeError> {
    let named = named?;
    Ok(Text { stamp: named.stamp(), named: Arc::new(named) })
}

/// Refuses a name that occurs in no trace, because it would silently have no effect. Unreadable
/// traces are reported elsewhere.
fn check_names(request: &SweepRequest, is_stopped: IsStopped<'_>) -> Result<(), SweepError> {
    let SweepRequest { cells, traces, .. } = request;
    if cells.annotations.is_empty() && cells.linked.is_empty() && cells.cgroups.is_empty() {
        return Ok(());
    }
    let mut metas = Vec::new();
    for path in traces {
        go_on(is_stopped)?;
        // Reads only the footer: a reader would verify the whole file.
        metas.extend(OpenTrace::open(request.place(path)).ok().map(|trace| trace.meta().clone()));
    }
    if metas.is_empty() {
        return Ok(());
    }
    let fits = |annotation: &&Annotation| {
        metas.iter().flat_map(|meta| &meta.files).any(|file| annotation.fits(&file.path))
    };
    if let Some(idle) = cells.annotations.iter().find(|annotation| !fits(annotation)) {
        return Err(SweepError::IdleAnnotation(idle.to_string()));
    }
    let metas: Vec<_> = metas.iter().collect();
    cells.check_cgroups_of(&metas)?;
    Ok(cells.check_linked(&metas)?)
}

fn texts(way: &[Linked]) -> Vec<String> {
    way.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_all_traces_are_bounded_together() {
        assert!(check_number(4, NR_CELLS_MAX).is_ok());
        let error = check_number(5, NR_CELLS_MAX).unwrap_err().to_string();
        assert!(error.starts_with("5 traces x 1,048,576 cells make 5,242,880 cells"), "{error}");
        assert!(check_number(usize::MAX, 2).is_err());
    }
}
