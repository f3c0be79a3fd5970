//! Cells of which some may not become a row: too small for the program, or without time.
//!
//! ```text
//!   cells --passes of all, or of as many as there are processors--> outcomes
//!                     |`---- its memory was not enough --> unfit
//!                     `----- `progress` ended it before -> not replayed
//! ```

use std::num::NonZero;
use std::thread::available_parallelism;

use largefolio_trace::OpenTrace;

use super::outcome::Outcome;
use super::passes::{RowsDone, nr_passes};
use super::spec::CellSpec;
use super::{Failed, Outcomes, Progress, ReplayError, run};

/// Which cells share a pass over the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All: the trace is decoded once, and no cell is complete before the others.
    All,
    /// As many as there are processors: some are complete whenever `progress` ends it.
    Few,
}

impl Sharing {
    /// Rows that a replay of `specs` decodes.
    #[must_use]
    pub fn nr_rows(self, trace: &OpenTrace, specs: &[CellSpec]) -> u64 {
        let nr_groups = specs.len().div_ceil(self.nr_at_once(specs)) as u64;
        trace.meta().nr_rows.saturating_mul(nr_passes(specs)).saturating_mul(nr_groups)
    }

    fn nr_at_once(self, specs: &[CellSpec]) -> usize {
        match self {
            Self::All => specs.len().max(1),
            Self::Few => available_parallelism().map_or(1, NonZero::get).max(2),
        }
    }
}

/// What became of cells, each by its place among the specs.
#[derive(Debug, Default)]
pub struct Fitting {
    /// Cells that reached the end.
    pub outcomes: Vec<(usize, Outcome)>,
    /// Cells in which memory, or a control group's limit, was too small.
    pub unfit: Vec<usize>,
    /// Cells that were not complete when `progress` ended it.
    pub not_replayed: Vec<usize>,
}

impl Fitting {
    /// Whether `progress` ended it before all cells were complete.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        !self.not_replayed.is_empty()
    }

    /// Takes the cells of a pass; the first of them is the `first` of all.
    fn add(&mut self, first: usize, cells: Outcomes) -> Result<(), ReplayError> {
        for (nr, cell) in (first..).zip(cells) {
            match cell {
                Ok(outcome) => self.outcomes.push((nr, outcome)),
                Err(error) if error.is_out_of_memory() => self.unfit.push(nr),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// As [`replay_until`](super::replay_until), but a cell that is too small for the program is an
/// answer, not an error. If few share a pass, a cell for which there was no time is an answer too.
/// `progress` hears the rows of all passes, and those that `done` has heard before.
///
/// # Errors
/// As [`replay_until`](super::replay_until), except for too little memory;
/// [`ReplayError::Stopped`] only if all cells share a pass.
pub fn replay_fitting(
    trace: &OpenTrace,
    specs: &[CellSpec],
    sharing: Sharing,
    done: &mut RowsDone,
    progress: Progress<'_>,
) -> Result<Fitting, ReplayError> {
    let (mut fitting, mut first) = (Fitting::default(), 0);
    for group in specs.chunks(sharing.nr_at_once(specs)) {
        done.begin();
        let mut hear = |nr_read| progress(done.hear(nr_read));
        match run(trace, group, Failed::EndsItself, &mut hear) {
            Err(ReplayError::Stopped) if sharing == Sharing::Few => {
                fitting.not_replayed.extend(first..specs.len());
                break;
            }
            found => fitting.add(first, found?.1)?,
        }
        first += group.len();
    }
    Ok(fitting)
}
