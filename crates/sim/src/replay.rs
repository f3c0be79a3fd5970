//! Replays a recorded program under another kernel on another machine.
//!
//! ```text
//!   trace --decoded once--> batch --+--> cell (kernel A, machine X): place -> TLB -> mm
//!                                   +--> cell (kernel A, machine Y)      hit: counted, done
//!                                   +--> cell (kernel B, machine X)      miss: walk or fault
//! ```
//!
//! Reading order: `request` and its options; a [`cell`] and its four owners: `program` (processes,
//! spaces, files, and the calls that change them), `hardware` (CPUs, TLBs, [`clock`]), the memory
//! manager (`mm`, changed only by `Cell::change`), and `observers` (counts and pictures, which
//! never influence the others); `run`, the hot loop; `finish` and [`outcome`]; `batch` and
//! `fitting`.
//!
//! Owns the order in which a cell sees a trace. Does not own memory management (`mm`) or output.

mod attached;
mod batch;
pub mod cell;
mod changed;
mod error;
mod finish;
mod fitting;
mod hardware;
mod observers;
pub mod outcome;
mod program;
pub mod request;
mod run;
mod settings;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use largefolio_mm::memory::MemoryError;
use largefolio_trace::{Batch, Meta, OpenTrace, Reader, TraceError};
use rayon::prelude::*;

pub use batch::batches;
pub use batch::{RowsDone, nr_passes};
pub use cell::Cell;
pub use changed::Changed;
pub use error::CellError;
pub use fitting::{Fitting, Sharing, replay_fitting};
pub use hardware::clock;
pub use observers::{
    detail, fault_times, programs, regions, requested, sizes, statistics, timeline,
};
pub use outcome::{Hugetlb, Outcome};
pub use program::images::Images;
pub use program::linked::{LINKED_BYTES_MAX, Linked, LinkedChoices, LinkedError};
pub use request::allocator::Allocator;
pub use request::annotate::{Annotation, AnnotationError};
pub use request::budget::{AgeingOverBudget, Budget, Excess, FACTOR_MAX, OverBudget};
pub use request::cgroup;
pub use request::cgroup::{Cgroup, CgroupError};
pub use request::changes::{SettingChange, SettingChangeError};
pub use request::fragmented::{Fragmented, FragmentedError};
pub use request::spec::{CacheState, CellSpec, SharedMoment};
pub use request::{NR_CELLS_MAX, ReplayRequest, RequestError};

/// Raised when the same trace, rules and machine may count differently. Results never mix versions.
pub const RESULTS_VERSION: u32 = 18;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{kernel} on {machine}: {source}{}", source.remedy())]
    Cell { kernel: String, machine: String, source: CellError },
    #[error("stopped before the end of the trace")]
    Stopped,
}

impl ReplayError {
    /// Returns whether the cell's memory, or a cgroup's limit, was too small for the program.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Cell { source, .. } => source.is_out_of_memory(),
            _ => false,
        }
    }

    /// Returns whether the cell took more steps than its budget allows.
    #[must_use]
    pub fn is_out_of_steps(&self) -> bool {
        let Self::Cell { source: CellError::OverBudget(over), .. } = self else { return false };
        matches!(over.excess, Excess::Steps { .. })
    }
}

pub type Outcomes = Vec<Result<Outcome, ReplayError>>;

/// Receives the number of rows decoded so far after each batch and returns whether to continue.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Replays the trace at `path` in every cell.
///
/// Decodes the trace once, or twice if a cell starts with a warm page cache. Calls `progress` with
/// the number of rows decoded so far.
///
/// # Errors
/// A trace that cannot be read, or a cell that cannot continue.
pub fn replay(
    path: &Path,
    specs: &[CellSpec],
    progress: &mut dyn FnMut(u64),
) -> Result<(Meta, Vec<Outcome>), ReplayError> {
    let mut on_progress = |nr_rows| {
        progress(nr_rows);
        ControlFlow::Continue(())
    };
    replay_until(&OpenTrace::open(path)?, specs, &mut on_progress)
}

/// Like [`replay`], for an open trace. `progress` can stop it early.
///
/// # Errors
/// As [`replay`], or [`ReplayError::Stopped`].
pub fn replay_until(
    trace: &OpenTrace,
    specs: &[CellSpec],
    progress: Progress<'_>,
) -> Result<(Meta, Vec<Outcome>), ReplayError> {
    let (meta, cells) = run(trace, specs, Failed::EndsAll, progress)?;
    Ok((meta, cells.into_iter().collect::<Result<_, _>>()?))
}

/// Like [`replay_until`], but a cell that fails does not end the others.
///
/// # Errors
/// A trace that cannot be read, or [`ReplayError::Stopped`].
pub fn replay_each(
    trace: &OpenTrace,
    specs: &[CellSpec],
    progress: Progress<'_>,
) -> Result<(Meta, Outcomes), ReplayError> {
    run(trace, specs, Failed::EndsItself, progress)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    EndsAll,
    EndsItself,
}

type Lane = Result<Box<Cell>, ReplayError>;

pub(crate) fn run(
    trace: &OpenTrace,
    specs: &[CellSpec],
    failed: Failed,
    progress: Progress<'_>,
) -> Result<(Meta, Outcomes), ReplayError> {
    let mut reader = trace.reader()?;
    let meta = Arc::new(trace.meta().clone());
    let is_linked = specs.iter().any(|spec| !spec.linked.is_empty());
    let images = if is_linked { Images::of(trace)? } else { Images::default() };
    let mut lanes: Vec<Lane> = Vec::new();
    for spec in specs {
        match Cell::new(spec, &meta, &images, &mut || progress(0)) {
            Err(CellError::Memory(MemoryError::Stopped)) => return Err(ReplayError::Stopped),
            made => lanes.push(made.map(Box::new).map_err(|source| of_cell(spec, source))),
        }
    }
    check(&mut lanes, failed)?;
    if lanes.iter().flatten().any(|cell| cell.is_warming()) {
        pass(reader, &mut lanes, &Cell::is_warming, failed, progress)?;
        for lane in &mut lanes {
            step(lane, |cell| if cell.is_warming() { cell.end_warming() } else { Ok(()) });
        }
        check(&mut lanes, failed)?;
        reader = trace.reader()?;
    }
    pass(reader, &mut lanes, &|_| true, failed, progress)?;
    let finish = |lane: Lane| lane.map(|cell| cell.finish());
    let outcomes = lanes.into_iter().map(finish).collect();
    Ok((Arc::unwrap_or_clone(meta), outcomes))
}

fn step(lane: &mut Lane, take: impl FnOnce(&mut Cell) -> Result<(), CellError>) {
    if let Ok(cell) = lane
        && let Err(source) = take(cell)
    {
        *lane = Err(of_cell(cell.spec(), source));
    }
}

fn check(lanes: &mut Vec<Lane>, failed: Failed) -> Result<(), ReplayError> {
    if failed == Failed::EndsItself {
        return Ok(());
    }
    match lanes.iter().position(Result::is_err).map(|nr| lanes.swap_remove(nr)) {
        Some(Err(error)) => Err(error),
        _ => Ok(()),
    }
}

fn pass(
    mut reader: Reader,
    lanes: &mut Vec<Lane>,
    takes: &(dyn Fn(&Cell) -> bool + Sync),
    failed: Failed,
    progress: Progress<'_>,
) -> Result<(), ReplayError> {
    let (mut current, mut next) = (Batch::default(), Batch::default());
    let mut is_more = reader.next_batch(&mut current)?;
    while is_more && lanes.iter().any(Result::is_ok) {
        let (decoded, ()) = rayon::join(
            || reader.next_batch(&mut next),
            || {
                lanes.par_iter_mut().for_each(|lane| {
                    step(lane, |cell| if takes(cell) { cell.replay(&current) } else { Ok(()) });
                });
            },
        );
        check(lanes, failed)?;
        is_more = decoded?;
        std::mem::swap(&mut current, &mut next);
        if progress(reader.nr_read()).is_break() {
            return Err(ReplayError::Stopped);
        }
    }
    Ok(())
}

fn of_cell(spec: &CellSpec, source: CellError) -> ReplayError {
    let (kernel, machine) = (spec.kernel.name.clone(), spec.machine.name.clone());
    ReplayError::Cell { kernel, machine, source }
}
