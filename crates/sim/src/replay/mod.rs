//! Replay: a recorded program under another kernel on another machine.
//!
//! ```text
//!   trace --decoded once--> batch --+--> cell (kernel A, machine X): place -> TLB -> mm
//!                                   +--> cell (kernel A, machine Y)      hit: counted, done
//!                                   +--> cell (kernel B, machine X)      miss: walk or fault
//! ```
//!
//! Reading order: `annotate` (folio sizes a loader asks for), [`cell`] (one combination, the hot
//! loop), `place` (recorded addresses become
//! addresses of the modelled kernel), `program` (threads, processes, open files), `layout`
//! (mapping what was placed), `syscalls` (events that change memory), `files`, [`clock`] (what
//! khugepaged wakes by), `touched` and [`census`] (what is counted), `reads` (who waits for which
//! read), [`detail`] (what pictures need besides), `finish`, [`outcome`], [`request`] (what is asked
//! for becomes cells).
//!
//! Owns the order in which a cell sees a trace. Does not own what memory does (`mm`) or what is
//! printed.

mod annotate;
pub mod cell;
pub mod census;
pub mod clock;
pub mod detail;
mod files;
mod finish;
mod layout;
pub mod outcome;
mod place;
mod program;
mod reads;
pub mod request;
mod syscalls;
mod touched;

use std::ops::ControlFlow;
use std::path::Path;

use largefolio_trace::{Batch, Meta, Op, Reader, TraceError};
use rayon::prelude::*;

pub use annotate::{Annotation, AnnotationError};
pub use cell::{CacheState, Cell, CellError, CellSpec};
pub use outcome::Outcome;
pub use request::{Request, RequestError};

/// A processor needs a century for more, and every counter stays below 2^63.
const NR_REFERENCES_MAX: u64 = 1 << 62;

/// Why a trace could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A cell.
    #[error("{kernel} on {machine}: {source}")]
    Cell {
        /// Kernel of the cell.
        kernel: String,
        /// Machine of the cell.
        machine: String,
        /// What went wrong.
        source: CellError,
    },
    /// The runs of a trace add up to more than any program does.
    #[error("the runs of the trace count more than {NR_REFERENCES_MAX} references: it is damaged")]
    TooManyReferences,
    /// The progress callback asked for the end.
    #[error("stopped before the end of the trace")]
    Stopped,
}

/// Hears the rows decoded so far after each batch, and says whether to go on.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Replays the trace at `path` in every cell, decoding it once (twice where a cell starts with a
/// warm page cache); `progress` hears the rows decoded so far, on the thread that calls.
///
/// # Errors
/// A trace that cannot be read, or a cell that cannot go on; [`ReplayError::Stopped`] when
/// `progress` said so.
pub fn replay(
    path: &Path,
    specs: &[CellSpec],
    progress: Progress<'_>,
) -> Result<(Meta, Vec<Outcome>), ReplayError> {
    let meta = Reader::open(path)?.meta().clone();
    let mut cells = Vec::new();
    for spec in specs {
        cells.push(Cell::new(spec, &meta).map_err(|source| of_cell(spec, source))?);
    }
    if cells.iter().any(Cell::is_warming) {
        pass(path, &mut cells, &|cell| cell.is_warming(), progress)?;
        for cell in cells.iter_mut().filter(|cell| cell.is_warming()) {
            cell.end_warming(&meta).map_err(|source| of_cell(cell.spec(), source))?;
        }
    }
    pass(path, &mut cells, &|_| true, progress)?;
    Ok((meta, cells.into_iter().map(Cell::finish).collect()))
}

/// Feeds the whole trace to the cells that `takes` selects.
fn pass(
    path: &Path,
    cells: &mut [Cell],
    takes: &(dyn Fn(&Cell) -> bool + Sync),
    progress: Progress<'_>,
) -> Result<(), ReplayError> {
    let mut reader = Reader::open(path)?;
    let (mut current, mut next) = (Batch::default(), Batch::default());
    let mut is_more = reader.next_batch(&mut current)?;
    let mut nr_references = 0_u64;
    while is_more {
        nr_references = nr_references
            .checked_add(references_in(&current))
            .filter(|&sum| sum < NR_REFERENCES_MAX)
            .ok_or(ReplayError::TooManyReferences)?;
        let (decoded, replayed) = rayon::join(
            || reader.next_batch(&mut next),
            || {
                cells.par_iter_mut().filter(|cell| takes(cell)).try_for_each(|cell| {
                    cell.replay(&current).map_err(|source| of_cell(cell.spec(), source))
                })
            },
        );
        replayed?;
        is_more = decoded?;
        std::mem::swap(&mut current, &mut next);
        if progress(reader.nr_read()).is_break() {
            return Err(ReplayError::Stopped);
        }
    }
    Ok(())
}

/// References of a batch; a sum that does not fit is as large as any.
fn references_in(batch: &Batch) -> u64 {
    let is_reference = |&op: &u8| op <= Op::Write as u8;
    let runs = batch.ops().iter().zip(batch.lens()).filter(|(op, _)| is_reference(op));
    runs.fold(0, |sum: u64, (_, len)| sum.saturating_add(*len))
}

fn of_cell(spec: &CellSpec, source: CellError) -> ReplayError {
    let (kernel, machine) = (spec.kernel.name.clone(), spec.machine.name.clone());
    ReplayError::Cell { kernel, machine, source }
}
